"""A run that moves in one line of a table."""

from __future__ import annotations

from leasehold.domain.manifest_parts import Progress
from leasehold.domain.stored import replace
from leasehold.domain.summary import RunProgress, summary_of
from leasehold.presentation.run_state import run_line
from tests.unit.domain.runs import At, Runs
from tests.worlds.builders import with_step


def test_a_run_that_is_worked_on_says_how_far_its_step_is_and_when_it_was_heard_of(
    runs: Runs, at: At
) -> None:
    run = runs.leased(runs.handed_off(), at=6)
    progress = Progress(fraction=0.25, message="page 3")
    run = replace(run, steps=with_step(run, "send", progress=progress))

    line = run_line(summary_of(run), at(20))

    assert (line.step, line.attempt, line.message) == ("send", "1", "page 3")
    assert line.fraction == 0.25
    assert line.heartbeat == "14 s ago"
    assert line.words == "run r-1 letters IN_PROGRESS step send attempt 1: 25%, page 3"


def test_a_run_that_waits_has_neither_progress_nor_a_heartbeat(runs: Runs, at: At) -> None:
    line = run_line(summary_of(runs.failed()), at(20))

    assert (line.fraction, line.message, line.heartbeat) == (None, "", "")
    assert (line.attempt, line.state.text) == ("2", "ERROR overloaded")


def test_a_heartbeat_of_a_clock_that_is_ahead_was_now(runs: Runs, at: At) -> None:
    assert run_line(summary_of(runs.leased(at=5)), at(2)).heartbeat == "0.0 s ago"


def test_what_strangers_say_stays_in_its_column(runs: Runs, at: At) -> None:
    summary = summary_of(runs.leased())
    progress = RunProgress(steps_done=0, steps=1, fraction=0.1, message="a\n\x1b[2J" + "x" * 9999)
    hostile = replace(summary, progress=progress, current_step="s" * 999, pipeline="\u202e")

    line = run_line(hostile, at(1))

    assert line.message.startswith("a \\x1b[2J")
    assert (len(line.message), len(line.step), line.pipeline) == (200, 40, "\\u202e")


def test_a_share_that_is_not_a_number_is_ignored(runs: Runs, at: At) -> None:
    summary = summary_of(runs.leased())
    for given, drawn in ((float("nan"), 0.0), (float("inf"), 0.0), (7.0, 1.0), (-1.0, 0.0)):
        progress = RunProgress.model_construct(steps_done=0, steps=1, fraction=given, message="far")
        assert run_line(replace(summary, progress=progress), at(1)).fraction == drawn


def test_a_count_that_no_number_can_hold_is_no_share(runs: Runs, at: At) -> None:
    progress = RunProgress(steps_done=10**400, steps=1, fraction=0.5, message="far")

    assert run_line(replace(summary_of(runs.leased()), progress=progress), at(1)).fraction is None
