"""The time that all tries of one call share."""

from __future__ import annotations

from typing import NoReturn

import pytest

from leasehold.adapters.firestore.retry_budget import AnotherTryError, RetryBudget
from leasehold.errors import StoreUnavailableError
from leasehold.testing import FrozenClock


def test_a_call_gives_up_when_its_time_is_over_and_waits_no_longer_for_an_answer() -> None:
    """An attempt waits for it whose lease runs: a try that begins later than that costs the run."""
    clock = FrozenClock()
    budget = RetryBudget(clock, "the store", 20)
    timeouts: list[float] = []

    def fail() -> NoReturn:
        timeouts.append(round(budget.timeout(), 3))
        clock.advance(6)
        raise AnotherTryError("no answer")

    with pytest.raises(StoreUnavailableError, match="no success within 20 s; at the last try: no"):
        budget.run(fail)

    assert timeouts == [5, 5, 5, 2]
