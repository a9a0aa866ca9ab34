"""Whether a run is to be given up in place of its next attempt: one rule for each reason.

Each component that would begin an attempt checks here first: a hint that arrives, a claim, a
settlement that would schedule a retry, and the sweep. So a run is given up for the same reasons and
with the same words in each of them.

Only the sweep gives up an attempt that did not begin in time, and only if a process looked all the
time: a hint that arrives proves a queue that delivers, and a claim a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from leasehold.domain.dispatch import Rules
from leasehold.domain.manifest import Manifest
from leasehold.domain.printable import counted
from leasehold.domain.status import ERROR, DeadLetterReason
from leasehold.domain.trace import MAX_DETAIL_CHARS
from leasehold.frozen import dataclass

_MAX_SILENCES: Final = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """The run is to be given up: why, for machines and for people."""

    reason: DeadLetterReason
    detail: str


def verdict_on(manifest: Manifest, now: datetime, rules: Rules) -> Verdict | None:
    """Return why the next attempt must not begin, or None: it may.

    Args:
        manifest: the run, with the end of its last attempt counted.
        now: the store's time.
        rules: the thresholds.
    """
    is_failed = manifest.status is ERROR
    failed = _first(_OF_FAILURES, manifest, now, rules) if is_failed else None
    return failed or _first(_OF_ENDS, manifest, now, rules)


def verdict_on_wait(manifest: Manifest, now: datetime, rules: Rules) -> Verdict | None:
    """Return why the run waits no longer for its next attempt to begin, or None: it does.

    Args:
        manifest: the run; its task is known to be lost and counted, or no worker claimed the step.
        now: the store's time, at which a process looks that looked before too.
        rules: the thresholds.
    """
    return _first(_OF_WAITS, manifest, now, rules)


_Rule: TypeAlias = Callable[[Manifest, datetime, Rules], str | None]


def _first(
    table: Mapping[_Rule, DeadLetterReason], manifest: Manifest, now: datetime, rules: Rules
) -> Verdict | None:
    for rule, reason in table.items():
        if detail := rule(manifest, now, rules):
            return Verdict(reason, detail)
    return None


def _permanent(manifest: Manifest, now: datetime, rules: Rules) -> str | None:  # noqa: ARG001
    """It failed in a way that no retry can repair."""
    error = manifest.error
    if error is None or not error.permanent:
        return None
    return f"{error.type}: {error.message}"[:MAX_DETAIL_CHARS]


def _out_of_retries(manifest: Manifest, now: datetime, rules: Rules) -> str | None:  # noqa: ARG001
    """It failed once more than it may be repeated without progress."""
    failed, retries = manifest.position.failures, manifest.position.dispatch.max_retries
    if failed <= retries:
        return None
    words = f"failed {failed} of {retries + 1} times without progress"
    return f"Step {manifest.position.step} {words}{_last_error(manifest)}"


def _too_many_failures(manifest: Manifest, now: datetime, rules: Rules) -> str | None:  # noqa: ARG001
    """It makes progress and fails, again and again; more retries than that may be used up."""
    failed, most = (
        manifest.position.attempts.failed,
        max(rules.max_failures, manifest.position.dispatch.max_retries),
    )
    if failed <= most:
        return None
    words = (
        f"failed {counted(failed, 'time')}, with progress in between; at most {most} are allowed"
    )
    return f"Step {manifest.position.step} {words}{_last_error(manifest)}"


def _last_error(manifest: Manifest) -> str:
    error = manifest.error
    return "" if error is None else f"; last: {error.type}: {error.message}"[:MAX_DETAIL_CHARS]


def _stuck(manifest: Manifest, now: datetime, rules: Rules) -> str | None:  # noqa: ARG001
    """Its attempts are cut short again and again, without progress in between."""
    if manifest.position.interruptions <= rules.max_interruptions:
        return None
    return (
        f"Step {manifest.position.step} was interrupted or lost its lease "
        f"{counted(manifest.position.interruptions, 'time')} without progress; "
        f"PIPELINE_MAX_INTERRUPTIONS allows {rules.max_interruptions}."
    )


def _silent(manifest: Manifest, now: datetime, rules: Rules) -> str | None:  # noqa: ARG001
    """Nothing was heard of it for too long, once more.

    The first time is no proof: the machine, or the sweep, may have been away.
    """
    if manifest.position.silences <= _MAX_SILENCES:
        return None
    silent = now - (manifest.position.heartbeat_at or now)
    return (
        f"Step {manifest.position.step} was not heard of for {round(silent.total_seconds())} s, "
        "for the second time without progress."
    )


def _unrecovered(manifest: Manifest, now: datetime, rules: Rules) -> str | None:
    """It failed, and its next attempt is known to be lost for as long as the window."""
    if manifest.status is not ERROR:
        return None
    dispatch = manifest.position.dispatch
    lost_since = dispatch.lost_since
    if dispatch.claim_by is not None:
        lost_since = None if now < dispatch.claim_by else dispatch.waits_since
    if lost_since is None or now < lost_since + rules.recovery_window:
        return None
    return (
        f"Step {manifest.position.step} failed, and its next attempt was not begun within "
        f"{_seconds(now - lost_since)} s in which the sweep ran; "
        f"the recovery window has {_seconds(rules.recovery_window)} s."
    )


def _never_started(manifest: Manifest, now: datetime, rules: Rules) -> str | None:
    """Its tasks were lost again and again, or no worker claimed it."""
    dispatch, step = manifest.position.dispatch, manifest.position.step
    if dispatch.claim_by is not None:
        if now < dispatch.claim_by:
            return None
        return f"No worker claimed step {step} within {dispatch.schedule_to_start_s} s."
    if dispatch.redispatched <= rules.max_interruptions:
        return None
    one, more = f"task of step {step} was", f"tasks of step {step} were"
    return f"{counted(dispatch.redispatched, one, more)} lost before one got the lease."


def _seconds(duration: timedelta) -> int:
    return round(duration.total_seconds())


#: Of a run whose last attempt failed, in the order in which they are checked: what is known for
#: sure comes first.
_OF_FAILURES: Final[Mapping[_Rule, DeadLetterReason]] = {
    _permanent: DeadLetterReason.PERMANENT_FAILURE,
    _out_of_retries: DeadLetterReason.RETRIES_EXHAUSTED,
    _too_many_failures: DeadLetterReason.RETRIES_EXHAUSTED,
}

#: Of any run, after those.
_OF_ENDS: Final[Mapping[_Rule, DeadLetterReason]] = {
    _stuck: DeadLetterReason.STUCK_IN_PROGRESS,
    _silent: DeadLetterReason.STUCK_IN_PROGRESS,
}

#: A reason that only a process that looked all the time can find.
_OF_WAITS: Final[Mapping[_Rule, DeadLetterReason]] = {
    _unrecovered: DeadLetterReason.UNRECOVERED_ERROR,
    _never_started: DeadLetterReason.NEVER_STARTED,
}
