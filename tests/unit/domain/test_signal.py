"""Which signal a step is given for a name: its own, or the first that no other has."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from leasehold.domain.signal import Signal, place_of, signal_for
from leasehold.domain.stored import replace
from tests.unit.domain.runs import Runs

AT = datetime(2026, 8, 1, tzinfo=UTC)


def signal(number: int, name: str = "go", taken_by: str | None = None) -> Signal:
    return Signal(id=f"s-{number}", name=name, at=AT, inline=f"{number}", taken_by=taken_by)


@pytest.mark.parametrize(
    ("signals", "wanted"),
    [
        ([], None),
        ([signal(1, name="other")], None),
        ([signal(1), signal(2)], "s-1"),
        ([signal(1, taken_by="first"), signal(2)], "s-2"),
        ([signal(1), signal(2, taken_by="second")], "s-2"),
        ([signal(1, taken_by="first")], None),
    ],
)
def test_a_step_has_its_own_signal_or_the_first_free_one(
    signals: list[Signal], wanted: str | None
) -> None:
    found = signal_for(signals, "go", "second")

    assert (found and found.id) == wanted


def test_a_step_that_is_handed_off_keeps_no_value_of_a_signal(runs: Runs) -> None:
    """It was for that step alone, and would count among the texts of the run to its end."""
    own, free = signal(1, taken_by=place_of("draft", 1)), signal(2)
    run = replace(runs.leased(), signals=(own, free))

    after = runs.with_output(run, at=5).signals

    assert after == (replace(own, inline=None), free)
