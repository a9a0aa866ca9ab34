"""The samples of the budget engine: how long attempts took, and how each of them ended."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from leasehold.domain.deadlines import MAX_DEADLINE
from leasehold.domain.status import AttemptEnd, Termination
from leasehold.frozen import dataclass

#: No attempt takes longer; a longer duration is a clock that jumped, or a source that lies.
MAX_ATTEMPT_S: Final = MAX_DEADLINE.total_seconds()


class Outcome(StrEnum):
    """How an attempt ended, as far as its duration says something about the step."""

    #: It returned a result: both durations are complete.
    SUCCESS = "success"
    #: Its own limit or deadline ended it: it would have taken longer (a censored observation).
    CLIPPED = "clipped"
    #: A shutdown, kill, cancel or lost lease ended it: it would have taken longer (censored, too).
    INTERRUPTED = "interrupted"
    #: It raised an error: counted, and no duration is learnt from it.
    FAILED = "failed"

    @property
    def is_censored(self) -> bool:
        """Return whether the attempt would have taken longer than it did."""
        return self is Outcome.CLIPPED or self is Outcome.INTERRUPTED


#: Why an attempt ended that would have taken longer: its own limit, or another cause.
_CLIPPED: Final = frozenset(
    {Termination.AGENT_TIMEOUT_EXCEEDED.value, Termination.DISPATCH_DEADLINE_EXCEEDED.value}
)
_INTERRUPTED: Final = frozenset(
    {
        Termination.LEASE_EXPIRED.value,
        Termination.INSTANCE_SHUTDOWN.value,
        Termination.CANCELLED.value,
    }
)
_COMPLETED: Final = frozenset({"completed", AttemptEnd.REPEATED.value})


def outcome_of(end: object, reason: object) -> Outcome | None:
    """Return how an attempt ended; None: an outage, or it was continued by the next one.

    Args:
        end: an `AttemptEnd`, or `completed`.
        reason: the `Termination` that cut it short; None: none did.
    """
    if end in _COMPLETED:
        return Outcome.SUCCESS
    if reason in _CLIPPED:
        return Outcome.CLIPPED
    if reason in _INTERRUPTED:
        return Outcome.INTERRUPTED
    return Outcome.FAILED if end == AttemptEnd.FAILED.value else None


@dataclass(frozen=True, slots=True)
class AttemptSample:
    """One attempt of a step.

    Args:
        ended_at: when it ended, in UTC.
        outcome: how it ended.
        bootstrap_seconds: from the lease to the first tool call, or to the end of an attempt that
            was ended before.
        execution_seconds: from there to the result, or to the end of an attempt that was ended
            before; None where the attempt never came so far.
        cold: whether it was the first attempt of its process.
        retried: whether an attempt of the same step and run went before it.
        tail_probe: whether it ran under the longest limit of the ladder (see `tail_probe.py`).
        usd: its part of what the attempts of its step and run have spent, by its time.
    """

    ended_at: datetime
    outcome: Outcome
    bootstrap_seconds: float
    execution_seconds: float | None
    cold: bool = False
    retried: bool = False
    tail_probe: bool = False
    usd: float = 0.0

    @property
    def total_seconds(self) -> float:
        """Return the seconds of both phases."""
        return self.bootstrap_seconds + (self.execution_seconds or 0.0)


class Observation(NamedTuple):
    """One duration of one phase.

    Args:
        seconds: how long the phase took, above 0.
        censored: whether it was ended then, and would have taken longer.
    """

    seconds: float
    censored: bool = False


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """How many attempts of the window there were, by kind.

    Args:
        successes: those with a result.
        clipped: ended by their own limit.
        interrupted: ended by a shutdown, kill, cancel or lost lease.
        failures: those that raised; no duration is learnt from them.
        cold: first attempts of a process, of those that are learnt from.
        warm: later attempts of a process, of those that are learnt from.
        retried: those that are not the first of their step and run, of those that are learnt from.
        tail_probes: those that ran under the longest limit, of those that are learnt from.
        dropped: samples that cannot be true; no kind above counts them.
    """

    successes: int = 0
    clipped: int = 0
    interrupted: int = 0
    failures: int = 0
    cold: int = 0
    warm: int = 0
    retried: int = 0
    tail_probes: int = 0
    dropped: int = 0

    @property
    def learnt_from(self) -> int:
        """Return how many samples the estimates are made of."""
        return self.successes + self.clipped + self.interrupted


def believable(samples: Iterable[object], now: datetime) -> list[AttemptSample]:
    """Return the samples that can be true, in order of their ends; never raise."""
    return sorted(
        (one for one in samples if isinstance(one, AttemptSample) and _can_be_true(one, now)),
        key=_order,
    )


def _order(sample: AttemptSample) -> tuple[datetime, float, str, bool, bool]:
    """Return what samples are sorted by: so that equal times do not leave it to the source."""
    return sample.ended_at, sample.total_seconds, sample.outcome, sample.cold, sample.retried


def _can_be_true(sample: AttemptSample, now: datetime) -> bool:
    """Return whether the attempt ended before now, in one of the ways, after possible times."""
    return (
        isinstance(sample.ended_at, datetime)
        and sample.ended_at.tzinfo is not None
        and sample.ended_at <= now
        and isinstance(sample.outcome, Outcome)
        and _is_duration(sample.bootstrap_seconds)
        and (
            sample.outcome is not Outcome.SUCCESS
            if sample.execution_seconds is None
            else _is_duration(sample.execution_seconds)
        )
        and isinstance(sample.usd, int | float)
        and 0 <= sample.usd < math.inf  # nor a NaN
    )


def _is_duration(seconds: object) -> bool:
    """Return whether an attempt can take this long; NaN and infinity are refused as well."""
    return (
        isinstance(seconds, int | float)
        and not isinstance(seconds, bool)
        and 0 <= seconds <= MAX_ATTEMPT_S
    )


def count(samples: Sequence[AttemptSample], dropped: int) -> SampleCounts:
    """Return how many believable samples there are of each kind, beside those dropped."""
    learnt = [sample for sample in samples if sample.outcome is not Outcome.FAILED]
    return SampleCounts(
        successes=_how_many(samples, Outcome.SUCCESS),
        clipped=_how_many(samples, Outcome.CLIPPED),
        interrupted=_how_many(samples, Outcome.INTERRUPTED),
        failures=_how_many(samples, Outcome.FAILED),
        cold=sum(sample.cold for sample in learnt),
        warm=sum(not sample.cold for sample in learnt),
        retried=sum(sample.retried for sample in learnt),
        tail_probes=sum(sample.tail_probe for sample in learnt),
        dropped=dropped,
    )


def _how_many(samples: Sequence[AttemptSample], outcome: Outcome) -> int:
    return sum(sample.outcome is outcome for sample in samples)
