"""Growing waits: between attempts of a step, and between tries of anything else."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Final

from leasehold.domain.manifest_parts import Dispatch, ErrorRecord, RetryRule
from leasehold.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits between tries, counted as Cloud Tasks counts its own.

    Args:
        minimum: the first wait.
        maximum: no wait is longer.
        doublings: how often the wait doubles; after that it grows by the same amount each time.
    """

    minimum: timedelta = timedelta(seconds=10)
    maximum: timedelta = timedelta(seconds=300)
    doublings: int = 5

    def wait(self, failures: int) -> timedelta:
        """Return how long to wait after this many failures in a row (1 or more)."""
        before = failures - 1
        doubled = min(before, self.doublings)
        factor: int = 2**doubled * max(1, before - doubled + 1)
        try:
            return min(self.minimum * factor, self.maximum)
        except OverflowError:  # a shorter one than no calendar has
            return self.maximum

    def wait_s(self, failures: int) -> float:
        """Return the same in seconds."""
        return self.wait(failures).total_seconds()

    def waits_s(self) -> Iterator[float]:
        """Yield the waits in seconds, one after another, without end."""
        return map(self.wait_s, itertools.count(1))


def doubling(first: timedelta, longest: timedelta) -> Backoff:
    """Return waits that double from the first one on, up to the longest."""
    return Backoff(first, longest, doublings=_MAX_DOUBLINGS)


def growing(first: timedelta, factor: float, longest: timedelta, tries: int) -> timedelta:
    """Return the wait after so many tries: each is `factor` times the one before, up to `longest`.

    Args:
        first: the first wait.
        factor: 1 or more.
        longest: no wait is longer.
        tries: 1 or more.
    """
    try:
        return min(first * factor ** (tries - 1), longest)
    except OverflowError:  # a longer one than any calendar has
        return longest


#: With this many, any first wait has become longer than any longest one.
_MAX_DOUBLINGS: Final = 40


#: The waits of a queue between deliveries of one task that were not answered with 2xx. A handler's
#: failure is answered so, and its next attempt is its own task: a queue repeats only tasks that
#: met an outage, of the store or of the function. So it waits for no provider, and never for long:
#: a run goes on within the longest of these waits once the outage is over.
QUEUE_BACKOFF: Final = Backoff(
    minimum=timedelta(seconds=0.1), maximum=timedelta(seconds=10), doublings=7
)

#: Whatever an error asks for, it puts the next attempt off by no more than this.
MAX_RETRY_AFTER: Final = timedelta(days=1)


def wait_after(
    error: ErrorRecord | None, failures: int, dispatch: Dispatch, backoff: Backoff
) -> timedelta:
    """Return how long to wait after this many failures in a row.

    Args:
        error: the last of them; it may ask for a longer wait.
        failures: 1 or more.
        dispatch: of the attempt that failed; its step may have its own waits.
        backoff: the waits of steps without.
    """
    rule = dispatch.retry
    wait = backoff.wait(failures) if rule is None else _wait_by(rule, failures)
    retry_after_s = None if error is None else error.retry_after_s
    if retry_after_s is None:
        return wait
    return max(wait, min(timedelta(seconds=retry_after_s), MAX_RETRY_AFTER))


def is_listed(names: Collection[str], dispatch: Dispatch) -> bool:
    """Return whether the policy of the step says of one of these names not to retry it."""
    return dispatch.retry is not None and not set(names).isdisjoint(dispatch.retry.non_retryable)


def _wait_by(rule: RetryRule, failures: int) -> timedelta:
    first, longest = timedelta(seconds=rule.first_s), timedelta(seconds=rule.max_s)
    return growing(first, rule.factor, longest, failures)
