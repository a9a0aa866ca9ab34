"""The alarm: who is looked after, and when."""

from __future__ import annotations

import pytest

from tests.unit.domain.runs import At, Runs


@pytest.mark.parametrize(
    ("state", "second"),
    [("pending", 60), ("handed_off", 65), ("failed", 75), ("leased", 30)],
)
def test_a_live_run_is_looked_at_when_what_it_waits_for_is_late(
    runs: Runs, at: At, state: str, second: int
) -> None:
    """A grace of 60 s after a task is due; the end of the lease where a worker holds one."""
    run = getattr(runs, state)()

    assert run.alarm_at == at(second)


def test_a_run_that_waits_for_a_person_has_no_alarm(runs: Runs) -> None:
    assert runs.blocked().alarm_at is None


def test_a_run_that_waits_for_other_code_is_looked_at(runs: Runs, at: At) -> None:
    assert runs.unknown().alarm_at == at(70)
    assert runs.unable().manifest.alarm_at == at(15)
    assert runs.paused(runs.unknown()).alarm_at is None


@pytest.mark.parametrize("state", ["pending", "failed", "blocked", "handed_off"])
def test_a_paused_run_has_no_alarm(runs: Runs, state: str) -> None:
    run = runs.paused(getattr(runs, state)())

    assert run.alarm_at is None


def test_a_paused_run_is_looked_at_while_its_attempt_runs(runs: Runs, at: At) -> None:
    """It is not idle yet: should its worker die, the sweep must end the lease."""
    run = runs.paused(runs.leased())

    assert run.alarm_at == at(30)


@pytest.mark.parametrize("state", ["completed", "dead_lettered", "cancelled"])
def test_a_run_that_is_over_is_looked_at_until_it_is_archived(runs: Runs, state: str) -> None:
    run = runs.cancelled(runs.leased()) if state == "cancelled" else getattr(runs, state)()

    assert run.alarm_at == run.updated_at + runs.rules.grace
    archived = runs.archived(run, at=3700)  # nobody may still write a file by then
    assert (archived.alarm_at, archived.archive) == (None, None)
