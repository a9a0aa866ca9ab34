"""One step of a run in one line."""

from __future__ import annotations

from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Attempts, Progress, SkippedStep
from leasehold.domain.stored import replace
from leasehold.presentation.run_state import StepLine, step_line
from tests.unit.domain.runs import At, Runs
from tests.unit.domain.trial_runs import TrialRun, review
from tests.worlds.builders import at_position, with_step


def lines(run: Manifest, at: At, seconds: float, worker: str | None = None) -> list[StepLine]:
    return [step_line(run, step, at(seconds), worker=worker) for step in run.plan]


def test_a_step_that_waits_says_for_what(runs: Runs, at: At) -> None:
    draft, send = lines(runs.pending(), at, 1)

    assert (draft.icon, draft.began, draft.words) == ("·", True, "waits for a worker")
    assert (send.icon, send.began, send.words) == ("·", False, "")


def test_a_step_that_runs_turns_and_says_how_far_it_is_and_who_runs_it(runs: Runs, at: At) -> None:
    run = runs.leased()
    run = replace(
        run, steps=with_step(run, "draft", progress=Progress(fraction=0.5, message="page 3"))
    )

    ours, theirs = lines(run, at, 5, "host-a")[0], lines(run, at, 5)[0]

    assert (ours.fraction, ours.words) == (0.5, "50%, page 3")
    assert theirs.words == "50%, page 3  held by host-a, renewed or over in 25 s"
    assert ours.icon not in "·✗■✓"
    assert ours.icon != lines(run, at, 5.1, "host-a")[0].icon


def test_a_step_that_failed_says_when_it_is_tried_again(runs: Runs, at: At) -> None:
    run = runs.failed()
    due = run.position.dispatch.not_before

    (draft, _) = lines(run, at, 5)

    assert draft.icon == "✗"
    assert draft.words == f"attempt 2 in {(due - at(5)).total_seconds():.0f} s"
    assert draft.error == "AgentClientError: Try later."


def test_the_icon_of_an_overlay_marks_the_step_that_it_holds_up(runs: Runs, at: At) -> None:
    handed_off = runs.handed_off()

    icons = [line.icon for line in lines(replace(handed_off, paused=True), at, 6)]

    assert icons == ["✓", "‖"]
    assert lines(runs.dead_lettered(), at, 9)[0].icon == "💀"


def test_a_share_that_cannot_be_drawn_is_none_of_it_or_all(runs: Runs, at: At) -> None:
    run = runs.leased()
    for given, drawn in ((float("nan"), 0.0), (7.0, 1.0), (-1.0, 0.0)):
        progress = Progress.model_construct(fraction=given, message="")
        line = lines(replace(run, steps=with_step(run, "draft", progress=progress)), at, 1)[0]
        assert line.fraction == drawn


def test_a_step_says_which_trial_it_is_in_from_the_second_on() -> None:
    run = TrialRun.begun().output().lease()
    assert _words(run, "write") == ""
    run.output().output().output(review(0.5))
    assert _words(run, "write") == "trial 2 of 3"
    run.lease()
    assert _words(run, "write") == "trial 2 of 3"


def test_a_step_whose_output_is_not_whole_says_so() -> None:
    run = TrialRun.begun(rule=None).output(status="PARTIAL")

    assert _words(run, "collect") == "PARTIAL"


def test_a_step_says_its_checkpoint_and_how_its_attempts_before_ended(runs: Runs, at: At) -> None:
    run = runs.checkpointed(runs.leased(), at=3, iterations=14, phase="crawl")
    run = at_position(run, attempts=Attempts(failed=1, continued=2))

    (draft, _) = lines(run, at, 5, "host-a")

    assert draft.words == "checkpoint 14 of crawl  attempt 4 (1 failed, 2 continued)"


def test_a_step_that_is_over_says_what_it_took(runs: Runs, at: At) -> None:
    run = runs.handed_off()
    run = replace(run, steps=with_step(run, "draft", attempts=Attempts(failed=1, interrupted=1)))

    assert lines(run, at, 6)[0].words == "1 failed, 1 interrupted"


def test_a_long_word_of_a_handler_is_cut(runs: Runs, at: At) -> None:
    run = runs.leased()
    progress = Progress(fraction=0.5, message="\x1b[2J" + "x" * 500)
    run = replace(run, steps=with_step(run, "draft", progress=progress))

    words = lines(run, at, 5, "host-a")[0].words

    assert words.startswith("50%, \\x1b[2Jxxx")
    assert len(words) < 100


def _words(run: TrialRun, step: str) -> str:
    return step_line(run.run, step, run.now, worker="host-a").words


def test_a_step_that_was_skipped_says_by_which_one(runs: Runs, at: At) -> None:
    run = runs.pending()
    skipped = (SkippedStep(step="send", by="draft"),)
    run = replace(run, plan=("draft",), skipped=skipped)

    draft, send = (step_line(run, step, at(1), worker=None) for step in run.whole_plan)

    assert draft.words == "waits for a worker"
    assert (send.icon, send.began, send.words) == ("↷", False, "skipped by step draft")
