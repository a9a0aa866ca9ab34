"""Which signal a step is given for a name: its own, or the first that no other has.

And the note that a step waited for one in vain is no signal, whatever the two are called.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest
from leasehold.domain.result import SignalRequest
from leasehold.domain.signal import (
    MAX_SIGNALS,
    Signal,
    bounded,
    place_of,
    signal_for,
    with_missed,
)
from leasehold.domain.status import Outcome
from leasehold.domain.stored import replace
from leasehold.errors import LeaseLostError
from tests.unit.domain.runs import Runs
from tests.worlds.builders import at_position

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


#: The place that waited, or waits.
AT_DRAFT = place_of("draft", 1)


def test_a_signal_with_the_id_of_the_note_of_a_missed_one_counts(runs: Runs) -> None:
    """A sender that names its signals by steps would be told that it sent another value before."""
    missed = with_missed(None, "go", AT_DRAFT, AT)
    run = replace(runs.handed_off(), signals=missed)
    sent = Signal(name="go", id=missed[0].id, at=AT, digest="d-1", inline="1")

    change = lifecycle.signal(run, runs.at(6), rules=runs.rules, sent=sent, actor="ada", known=None)

    assert change.outcome is Outcome.SIGNAL_KEPT
    assert change.manifest.signals == (*missed, replace(sent, at=runs.at(6)))


def test_a_worker_that_refuses_what_it_waited_for_in_vain_drops_no_note_of_that(
    runs: Runs,
) -> None:
    """Else its wait would begin anew, and be over as late again."""
    missed = with_missed(None, "go", AT_DRAFT, AT)
    run = replace(runs.leased(), signals=missed)

    change = _refused(runs, run)

    assert change.manifest.signals == missed
    assert change.manifest.waits_for is None


def test_a_worker_whose_lease_is_over_begins_no_wait(runs: Runs) -> None:
    """Another one may be at work: its attempt would end, and the run would be blocked."""
    with pytest.raises(LeaseLostError):
        _refused(runs, runs.leased(), at=31)


def test_a_worker_that_hears_no_answer_is_told_once_more_that_its_run_waits(runs: Runs) -> None:
    leased = runs.leased()
    first = _refused(runs, leased)

    again = _refused(runs, first.manifest, fence=runs.fence(leased))

    assert (again.outcome, again.changed) == (first.outcome, False)


def test_a_recreated_run_has_the_signals_of_its_step_and_those_that_nothing_took(
    runs: Runs,
) -> None:
    """It asks a person for nothing twice, and waits anew for what came too late."""
    own, free, of_another = signal(1, taken_by=AT_DRAFT), signal(2), signal(3, taken_by="first-1")
    (missed,) = with_missed(None, "late", AT_DRAFT, AT)
    old = replace(runs.dead_lettered(), signals=(of_another, own, missed, free))

    created = lifecycle.recreate(
        old, runs.at(9), rules=runs.rules, new=runs.new("r-2"), actor="ada", reason="fixed"
    ).created

    assert created is not None
    assert created.signals == (own, free)


def test_a_later_trial_of_a_step_drops_the_value_that_it_had(runs: Runs) -> None:
    own = signal(1, taken_by=place_of("draft", 2))
    run = at_position(replace(runs.leased(), signals=(own,)), trial=2)

    assert runs.with_output(run, at=5).signals == (replace(own, inline=None),)


def test_a_signal_that_does_not_fit_is_dropped_alone(runs: Runs) -> None:
    """The next one of its name is given to the step at once."""
    bad, good = signal(1), signal(2)
    run = replace(runs.leased(), signals=(bad, good))

    change = _refused(runs, run)

    assert change.manifest.signals == (
        replace(bad, taken_by="", inline=None),
        replace(good, taken_by=AT_DRAFT),
    )
    assert change.manifest.waits_for is None


def test_a_run_forgets_signals_that_are_done_with_and_nothing_that_a_step_is_given() -> None:
    done = [replace(signal(n, taken_by="first"), inline=None) for n in range(3)]
    large = replace(signal(3, taken_by="second"), inline=None, ref="runs/r-1/values/3.json")
    (missed,) = with_missed(None, "go", "second", AT)
    free = [signal(n) for n in range(4, MAX_SIGNALS)]

    kept = bounded((missed, large, *done, *free))

    assert kept == (missed, large, *done[1:], *free)


def _refused(runs: Runs, run: Manifest, at: float = 1, *, fence: Fence | None = None) -> Change:
    """The run once its handler refuses the signal that it was given for `go`."""
    wanted = SignalRequest("go", timeout_s=None, otherwise="block", refused="no number")
    return lifecycle.wait_for(
        run, runs.at(at), rules=runs.rules, fence=fence or runs.fence(run), wanted=wanted
    )
