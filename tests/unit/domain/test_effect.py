"""What a run owes, beyond tasks: a kind of effect that is a row of `OWED` and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pytest

from leasehold.domain import effect, lifecycle
from leasehold.domain.dispatch import Rules
from leasehold.domain.explanation import explain
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.domain.stored import replace
from tests.unit.domain.runs import At, Bound, Runs

ENDS = ["completed", "dead_lettered", "blocked"]


@dataclass(frozen=True)
class Announcement:
    """That a run ended, or waits for a person."""

    run_id: str


def owed_announcements(manifest: Manifest) -> tuple[Announcement, ...]:
    """A label says that it was made."""
    is_due = manifest.is_idle and not manifest.paused and "announced" not in manifest.labels
    return (Announcement(manifest.run_id),) if is_due else ()


@pytest.fixture(autouse=True)
def announcements(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later version, whose runs owe announcements."""
    monkeypatch.setattr(effect, "OWED", (*effect.OWED, owed_announcements))


def idle(runs: Runs, state: str) -> Manifest:
    """A run that waits for a person, or that ended and is archived: it owes what is new alone."""
    run: Manifest = getattr(runs, state)()
    return replace(run, archive=None)


@pytest.fixture
def on_alarm(rules: Rules) -> Bound:
    return partial(lifecycle.on_alarm, rules=rules, generation=1, in_queue=False)


@pytest.mark.parametrize(("state", "second"), [("completed", 9), ("blocked", 5)])
def test_a_run_that_is_idle_and_owes_something_keeps_an_alarm(
    runs: Runs, at: At, state: str, second: int
) -> None:
    run = idle(runs, state)

    assert effect.owed_effects(run) == (Announcement("r-1"),)
    assert run.alarm_at == at(second + 60)


def test_a_live_run_owes_its_task_and_no_announcement(runs: Runs, at: At) -> None:
    run = runs.pending()

    assert [type(owed).__name__ for owed in effect.owed_effects(run)] == ["Task"]
    assert run.alarm_at == at(60)


def test_a_paused_run_that_owes_nothing_has_no_alarm(runs: Runs) -> None:
    assert runs.paused(runs.pending()).alarm_at is None


@pytest.mark.parametrize("state", ENDS)
def test_at_its_alarm_what_is_owed_is_published_again_and_nothing_else_happens(
    runs: Runs, on_alarm: Bound, at: At, state: str
) -> None:
    run = idle(runs, state)

    change = on_alarm(run, at(69))

    assert (change.outcome, change.changed) == (Outcome.REPUBLISHED, True)
    assert (change.owed, change.events) == ((Announcement("r-1"),), ())
    assert change.manifest.alarm_at == at(129)
    later = {"alarm_at": run.alarm_at, "updated_at": run.updated_at}
    assert replace(change.manifest, **later) == run


def test_before_its_alarm_nothing_is_published_again(runs: Runs, on_alarm: Bound, at: At) -> None:
    assert not on_alarm(runs.completed(), at(68)).changed


def test_what_was_carried_out_is_not_published_and_the_alarm_goes(
    runs: Runs, on_alarm: Bound, at: At
) -> None:
    """The process that carries it out writes the run and its alarm; a stray alarm is removed."""
    announced = replace(idle(runs, "completed"), labels=("announced",))

    change = on_alarm(announced, at(69))

    assert (change.outcome, change.owed) == (Outcome.REPAIRED, ())
    assert change.manifest.alarm_at is None


@pytest.mark.parametrize("state", ENDS)
def test_an_idle_run_has_an_alarm_if_and_only_if_it_owes_something(
    runs: Runs, rules: Rules, at: At, state: str
) -> None:
    owes = idle(runs, state)
    announced = replace(owes, labels=("announced",))
    found = {
        (name, alarm): [breach.code for breach in lifecycle.breaches(run, at(20), rules)]
        for name, run_of in (("owes", owes), ("announced", announced))
        for alarm, run in (
            ("alarm", replace(run_of, alarm_at=owes.alarm_at)),
            ("none", replace(run_of, alarm_at=None)),
        )
    }

    assert found == {
        ("owes", "alarm"): [],
        ("owes", "none"): ["no_alarm"],
        ("announced", "alarm"): ["stray_alarm"],
        ("announced", "none"): [],
    }


def test_a_missing_alarm_is_reported_with_the_owed_effects_and_set(
    runs: Runs, rules: Rules, at: At
) -> None:
    run = replace(idle(runs, "completed"), alarm_at=None)

    (breach,) = lifecycle.breaches(run, at(20), rules)
    change = lifecycle.on_audit(run, at(20), rules=rules, generation=1, in_queue=False)

    assert breach.finding == "It is COMPLETED, and owes its announcement, and has no alarm."
    assert (change.outcome, change.manifest.alarm_at) == (Outcome.REPAIRED, at(80))
    assert change.owed == (Announcement("r-1"),)


def test_why_says_that_a_run_that_ended_is_to_be_published(
    runs: Runs, rules: Rules, at: At
) -> None:
    found = explain(runs.completed(), at(20), rules)

    assert found.words == (
        "Run r-1 waits for what it owes to be published, until 2026-01-01T12:01:09Z; "
        "if nothing happens by then, it is published again."
    )
