"""A store that is away is asked again for as long as that may help."""

from __future__ import annotations

import pytest

from leasehold.attempt.outage import outlast
from leasehold.errors import StoreUnavailableError

AWAY = StoreUnavailableError(store="store", problem="it is away")


def test_the_waits_grow_and_then_halve_the_time_that_is_left() -> None:
    """A short lease has several tries, and a clock that stands still ends them too."""
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) > 9

    def ask() -> None:
        raise AWAY

    with pytest.raises(StoreUnavailableError):
        outlast(
            ask,
            AWAY,
            0.0,
            now=lambda: 0.0,
            until=lambda: 1.0,
            wait=wait,
            report=lambda _: None,
        )

    assert waits == pytest.approx([0.1, 0.2, 0.35, 0.175, 0.0875])
