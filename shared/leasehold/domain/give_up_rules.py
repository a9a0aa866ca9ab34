"""Whether a run is to be given up in place of its next attempt: one rule for each reason.

Whoever would begin an attempt checks here first: a hint that arrives, a claim, a settlement that
would schedule a retry, and the sweep. So a run is given up for the same reasons and with the same
words whoever comes by first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from leasehold.domain.dispatch import Rules
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import DeadLetterReason, RunStatus

_MAX_DETAIL: Final = 500
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
    for rule in _RULES:
        if detail := rule(manifest, now, rules):
            return Verdict(_RULES[rule], detail)
    return None


def _permanent(manifest: Manifest, now: datetime, rules: Rules) -> str | None:  # noqa: ARG001
    """It failed in a way that no retry can repair."""
    error = manifest.error
    if manifest.status is not RunStatus.ERROR or error is None or not error.permanent:
        return None
    return f"{error.type}: {error.message}"[:_MAX_DETAIL]


def _out_of_retries(manifest: Manifest, now: datetime, rules: Rules) -> str | None:  # noqa: ARG001
    """It failed once more than it may be repeated."""
    failed, retries = manifest.attempts.failed, manifest.dispatch.max_retries
    if manifest.status is not RunStatus.ERROR or failed <= retries:
        return None
    error = manifest.error
    last = "" if error is None else f"; last: {error.type}: {error.message}"[:_MAX_DETAIL]
    return f"Step {manifest.current_step} failed {failed} of {retries + 1} times{last}"


def _stuck(manifest: Manifest, now: datetime, rules: Rules) -> str | None:  # noqa: ARG001
    """Its attempts are cut short again and again, without progress in between."""
    if manifest.interruptions <= rules.max_interruptions:
        return None
    return (
        f"Step {manifest.current_step} was interrupted or lost its lease "
        f"{manifest.interruptions} times without progress; "
        f"at most {rules.max_interruptions} are allowed."
    )


def _silent(manifest: Manifest, now: datetime, rules: Rules) -> str | None:  # noqa: ARG001
    """Nothing was heard of it for too long, once more.

    The first time is no proof: the machine, or the sweep, may have been away.
    """
    if manifest.silences <= _MAX_SILENCES:
        return None
    silent = now - (manifest.heartbeat_at or now)
    return (
        f"Step {manifest.current_step} was not heard of for {round(silent.total_seconds())} s, "
        "for the second time without progress."
    )


def _unrecovered(manifest: Manifest, now: datetime, rules: Rules) -> str | None:
    """It failed, and nobody tried again within the window.

    Time parked does not count: a run that is resumed or retried is PENDING.
    """
    if manifest.status is not RunStatus.ERROR or manifest.error_at is None:
        return None
    if manifest.lease is not None:
        return None
    if now < max(manifest.error_at + rules.recovery_window, _due_by(manifest, rules)):
        return None
    waited = round((now - manifest.error_at).total_seconds())
    return (
        f"Step {manifest.current_step} failed and was not tried again within {waited} s; "
        f"the recovery window has {round(rules.recovery_window.total_seconds())} s."
    )


def _never_started(manifest: Manifest, now: datetime, rules: Rules) -> str | None:
    """Its tasks were lost again and again, or nobody claimed it."""
    dispatch, step = manifest.dispatch, manifest.current_step
    if manifest.lease is not None:
        return None
    if dispatch.schedule_to_start_s is not None:
        was_claimed = dispatch.enqueued  # a lease notes it, and the attempt that ends has had one
        if was_claimed or now < _due_by(manifest, rules):
            return None
        return f"No worker claimed step {step} within {dispatch.schedule_to_start_s} s."
    if dispatch.redispatched <= rules.max_interruptions:
        return None
    return f"{dispatch.redispatched} tasks of step {step} were lost before one got the lease."


def _due_by(manifest: Manifest, rules: Rules) -> datetime:
    """Return by when the next attempt was to begin: nothing gives the run up before its alarm."""
    dispatch = manifest.dispatch
    if dispatch.schedule_to_start_s is not None:
        since = max(dispatch.not_before, dispatch.seen_at or dispatch.not_before)
        return since + timedelta(seconds=dispatch.schedule_to_start_s)
    return dispatch.not_before + rules.grace


#: In the order in which they are checked: what is known for sure comes first.
_RULES: Final[dict[Callable[[Manifest, datetime, Rules], str | None], DeadLetterReason]] = {
    _permanent: DeadLetterReason.PERMANENT_FAILURE,
    _out_of_retries: DeadLetterReason.RETRIES_EXHAUSTED,
    _stuck: DeadLetterReason.STUCK_IN_PROGRESS,
    _silent: DeadLetterReason.STUCK_IN_PROGRESS,
    _unrecovered: DeadLetterReason.UNRECOVERED_ERROR,
    _never_started: DeadLetterReason.NEVER_STARTED,
}
