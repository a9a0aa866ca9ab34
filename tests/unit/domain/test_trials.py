"""Trials: an author and its reviewer run again until one of them counts."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.checkpoint import KeptCounts
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import TrialRule, TrialVerdict
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.summary import progress_of
from leasehold.domain.trials import findings_in, last_review, record_with_output
from leasehold.errors import InvalidRequestError, InvalidVerdictError, PartialOutputError
from tests.unit.domain.trial_runs import PLAN, RULE, RULES, TrialRun, review
from tests.worlds.builders import at_position, new_run


@pytest.fixture
def run() -> TrialRun:
    """A run that waits at the author of its first trial."""
    return TrialRun.begun().output()


SLOTS = ("author_slot_opened", "author_slot_refused", "trial_chosen")


def test_a_reviewer_that_does_not_settle_opens_the_next_trial(run: TrialRun) -> None:
    run.trial(0.5)

    now = run.run
    assert (now.status, now.current_step, now.position.trial) == (RunStatus.PENDING, "write", 2)
    assert (now.position.dispatch.step, now.position.dispatch.trial, now.position.lease) == (
        "write",
        2,
        None,
    )
    assert run.change is not None
    assert run.change.outcome is Outcome.HANDED_OFF
    assert run.traced(*SLOTS) == [("author_slot_opened", "write", 2, None)]
    assert [now.steps[step].status for step in PLAN] == ["COMPLETED"] + ["PENDING"] * 4
    assert [
        [(one.trial, one.output) for one in now.steps[step].trials or ()]
        for step in ("collect", "write", "review")
    ] == [[], [(1, '"write of trial 1"')], [(1, json.dumps(review(0.5)))]]


def test_a_reviewer_that_settles_ends_the_trials(run: TrialRun) -> None:
    run.trial(0.5).trial(0.1, settled=True)

    assert run.run.current_step == "publish"
    assert run.run.position.trial == 1
    assert run.outputs()["write"] == "write of trial 2"
    assert [run.run.steps[step].trial for step in PLAN] == [None, 2, 2, 2, None]
    assert run.traced(*SLOTS)[-1] == ("trial_chosen", "review", 2, "settled")


@pytest.mark.parametrize(
    ("scores", "best"), [((0.5, 0.9, 0.7), 2), ((3, 2, 1), 1), ((1, 5, 5), 3), ((-1, -2, -1), 3)]
)
def test_the_best_trial_counts_once_they_are_used_up(
    run: TrialRun, scores: tuple[float, ...], best: int
) -> None:
    for score in scores:
        run.trial(score)

    records = [run.run.steps[step] for step in ("write", "polish", "review")]
    assert run.outputs()["write"] == f"write of trial {best}"
    assert run.outputs()["review"] == review(scores[best - 1])
    assert {record.trial for record in records} == {best}
    others = [number for number in (1, 2, 3) if number != best]
    assert [[one.trial for one in record.trials or ()] for record in records] == [others] * 3
    assert run.traced("trial_chosen") == [("trial_chosen", "review", best, "trials_used_up")]
    assert json.loads(run.run.given.text or "") == review(scores[best - 1])


def test_no_trial_begins_after_an_author_whose_output_is_partial(run: TrialRun) -> None:
    run.trial(0.5).trial(0.2, author="PARTIAL")

    assert run.run.current_step == "publish"
    assert run.outputs()["write"] == "write of trial 1"
    assert run.traced(*SLOTS)[1:] == [
        ("author_slot_refused", "review", 2, "author_output_partial"),
        ("trial_chosen", "review", 1, "author_output_partial"),
    ]


def test_a_reviewer_at_the_end_of_the_plan_completes_the_run() -> None:
    run = TrialRun.begun(plan=PLAN[:-1]).output().trial(0.9).trial(0.5).trial(0.1)

    assert run.run.status is RunStatus.COMPLETED
    assert run.outputs()["review"] == review(0.9)
    assert run.run.alarm_at is None


def test_a_run_of_a_pipeline_without_trials_takes_a_verdict_for_any_output() -> None:
    run = TrialRun.begun(rule=None).output().trial(0.5)

    assert run.run.current_step == "publish"
    assert run.traced(*SLOTS) == []


# -- what happens within a trial -------------------------------------------------------------------


def test_attempts_are_counted_anew_in_each_trial(run: TrialRun) -> None:
    run.fails().trial(0.5).fails().fails()

    assert run.run.position.attempts.failed == 2
    run.trial(0.6)
    record = run.run.steps["write"]
    assert [one.attempts_ended for one in record.trials or ()] == [1, 2]
    assert record.attempts.failed == 3


def test_a_run_given_up_in_a_later_trial_keeps_what_the_earlier_ones_gave(run: TrialRun) -> None:
    run.trial(0.5).output().fails(permanent=True)

    now = run.run
    assert (now.dead_lettered, now.current_step, now.position.trial) == (True, "polish", 2)
    assert [one.trial for one in now.steps["review"].trials or ()] == [1]
    assert run.traced("step_dead_lettered")[0][2] == 2


@pytest.mark.parametrize("step", ["write", "review"])
def test_a_gate_within_a_trial_waits_for_a_person(run: TrialRun, step: str) -> None:
    run.trial(0.5)
    if step == "review":
        run.output().output()
    said = review(0.6) if step == "review" else None
    run.refused(said)
    assert (run.run.status, run.run.position.trial) == (RunStatus.BLOCKED, 2)

    run.operate(lifecycle.approve)

    after = ("write", 3) if step == "review" else ("polish", 2)
    assert (run.run.current_step, run.run.position.trial) == after
    assert run.change is not None
    assert run.change.outcome is Outcome.APPROVED


def test_an_approved_verdict_decides_as_it_would_have_without_the_gate(run: TrialRun) -> None:
    run.output().output().refused(review(0.6, settled=True)).operate(lifecycle.approve)

    assert run.run.current_step == "publish"
    assert run.run.steps["review"].trial == 1


def test_a_verdict_that_no_gate_could_judge_decides_once_it_is_approved(run: TrialRun) -> None:
    run.output().output().unjudged(review(0.6)).operate(lifecycle.approve)

    assert (run.run.current_step, run.run.position.trial) == ("write", 2)


def test_a_reviewer_that_runs_again_gives_its_own_verdict(run: TrialRun) -> None:
    run.output().output().refused(review(0.6, settled=True)).operate(lifecycle.retry)
    assert run.run.steps["review"].verdict is None

    run.output(review(0.2))

    assert (run.run.current_step, run.run.position.trial) == ("write", 2)
    assert run.run.steps["review"].trials is not None
    assert run.run.steps["review"].trials[0].verdict == TrialVerdict(settled=False, score=0.2)


def test_a_run_that_is_paused_opens_its_trial_when_it_is_resumed(run: TrialRun) -> None:
    run.output().output().lease().operate(lifecycle.pause).output(review(0.5))
    generation = run.run.position.dispatch.generation
    assert (run.run.current_step, run.run.position.trial, run.run.alarm_at) == ("write", 2, None)

    run.operate(lifecycle.resume)

    assert (run.run.position.dispatch.generation, run.run.position.dispatch.trial) == (
        generation + 1,
        2,
    )


def test_a_run_that_is_cancelled_takes_no_verdict(run: TrialRun) -> None:
    run.output().output().lease()
    fence = run.fence
    run.operate(lifecycle.cancel)

    late = lifecycle.complete(
        run.run, run.now, rules=RULES, fence=fence, output=run.run.given, verdict=None
    )

    assert (late.outcome, late.changed) == (Outcome.CANCELLED, False)


def test_a_deploy_that_does_not_know_the_author_leaves_the_trial_to_one_that_does(
    run: TrialRun,
) -> None:
    run.output().knowing("polish", "review").output()
    run.output(review(0.5))

    assert (run.run.status, run.run.current_step, run.run.position.trial) == ("PENDING", "write", 2)
    assert (run.run.position.dispatch.step, run.run.position.dispatch.trial) == ("write", 2)
    assert run.run.position.dispatch.provisional


def test_a_settlement_that_is_repeated_opens_no_second_trial(run: TrialRun) -> None:
    run.output().output().lease()
    fence = run.fence
    run.output(review(0.5))
    again = lifecycle.complete(
        run.run, run.now, rules=RULES, fence=fence, output=run.run.given, verdict=None
    )

    assert (again.outcome, again.changed) == (Outcome.HANDED_OFF, False)


# -- what a handler finds --------------------------------------------------------------------------


def test_each_step_of_a_trial_finds_the_review_of_the_one_before(run: TrialRun) -> None:
    assert last_review(run.run) is None
    run.trial(0.5).trial(0.7)

    for _ in ("write", "polish"):
        found = last_review(run.run)
        assert found is not None
        assert findings_in(found.text or "") == ["of 0.7"]
        run.output()
    run.output(review(1, settled=True))
    assert (run.run.current_step, last_review(run.run)) == ("publish", None)


def test_an_output_is_that_of_this_trial_or_else_of_the_one_before(run: TrialRun) -> None:
    def found(step: str) -> object:
        record = record_with_output(run.run, step)
        return None if record is None else json.loads(record.output or "")

    assert (found("write"), found("collect")) == (None, "collect of trial 1")
    run.trial(0.5)
    assert (found("write"), found("review")) == ("write of trial 1", review(0.5))
    run.output()
    assert (found("write"), found("polish")) == ("write of trial 2", "polish of trial 1")
    run.output().output(review(0.1)).trial(0.2)
    assert (found("write"), found("review")) == ("write of trial 1", review(0.5))
    assert (found("publish"), found("nobody")) == (None, None)


# -- verdicts --------------------------------------------------------------------------------------


PROBLEM = "its 'settled' is a number, and has to be true or false"


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ('["settled"]', "it is a list, and not an object with settled, score, findings"),
        ('"yes"', "it is a text, and not an object with settled, score, findings"),
        ('{"score": 1, "findings": []}', "it lacks 'settled', which has to be true or false"),
        (
            '{"settled": 1, "score": 1, "findings": "none"}',
            f"{PROBLEM}; its 'findings' is a text, and has to be a list",
        ),
        (
            '{"settled": true, "score": "0.8", "findings": []}',
            "its 'score' is a text, and has to be a finite number",
        ),
        (
            '{"settled": true, "score": 1e999, "findings": []}',
            "its 'score' is a number, and has to be a finite number",
        ),
        (
            f'{{"settled": true, "score": {"9" * 400}, "findings": []}}',
            "its 'score' is a number, and has to be a finite number",
        ),
    ],
)
def test_an_output_without_a_verdict_is_refused_by_its_field(
    run: TrialRun, output: str, problem: str
) -> None:
    run.output().output()

    with pytest.raises(InvalidVerdictError) as refused:
        run.output(json.loads(output.replace("1e999", "Infinity")))

    assert refused.value.message == f"The output of reviewer review has no verdict: {problem}."


# -- what is kept ----------------------------------------------------------------------------------


def test_progress_never_counts_more_steps_than_there_are(run: TrialRun) -> None:
    for score in (0.1, 0.2, 0.3):
        for _ in ("write", "polish", "review"):
            run.output(review(score) if run.run.current_step == "review" else None)
            progress = progress_of(run.run)
            assert 0 <= progress.steps_done < progress.steps == len(PLAN)
            assert 0 <= progress.fraction < 1
    run.output()
    assert progress_of(run.run).fraction == 1


def test_the_texts_of_all_trials_count_and_room_for_the_rest_is_kept_free(run: TrialRun) -> None:
    """Nine records of at most 512 bytes come yet."""
    assert run.run.text_bytes == len('{"to":"ada"}"collect of trial 1"') + 9 * 512

    before = run.run.text_bytes
    run.trial(0.5)

    outputs = ['"write of trial 1"', '"polish of trial 1"', json.dumps(review(0.5))]
    assert run.run.text_bytes == before + sum(map(len, outputs))


def test_a_rule_whose_steps_the_plan_does_not_have_means_no_trials() -> None:
    """It was written into the store by hand."""
    for rule in (
        TrialRule(author="nobody", reviewer="review", max_trials=3),
        TrialRule(author="review", reviewer="write", max_trials=3),
    ):
        run = TrialRun.begun(rule=rule).output().trial(0.5)

        assert run.run.current_step == "publish"


def test_a_version_before_this_one_may_take_a_step_of_a_later_trial(run: TrialRun) -> None:
    """It sets the number of the trial back to 1; how many are over is counted."""
    run.trial(0.5).output()
    run.run = at_position(run.run, trial=1)

    run.output()
    assert run.run.position.trial == 2
    run.output(review(0.4))

    assert (run.run.current_step, run.run.position.trial) == ("write", 3)


# -- recreate --------------------------------------------------------------------------------------


def recreation(run: Manifest, **more: Any) -> Change:
    new = new_run("r-2", plan=PLAN, trials=RULE)
    at = run.updated_at + timedelta(seconds=1)
    return lifecycle.recreate(run, at, rules=RULES, new=new, actor="ada", reason="", **more)


def recreated(run: Manifest, from_step: str, *, keep_partial: bool = False) -> Manifest:
    change = recreation(run, from_step=from_step, keep_partial=keep_partial)
    assert change.created is not None
    return change.created


def test_a_run_recreated_behind_the_trials_keeps_the_one_that_counts(run: TrialRun) -> None:
    run.trial(0.5).trial(0.4).trial(0.3).fails(permanent=True)

    new = recreated(run.run, "publish")

    assert new.steps["write"].output == '"write of trial 1"'
    assert new.steps["write"].trials == run.run.steps["write"].trials
    assert (new.trials, new.current_step, new.position.trial) == (RULE, "publish", 1)


def test_a_run_recreated_in_a_trial_goes_on_in_it(run: TrialRun) -> None:
    """The trials before were paid for, and the author is told what the reviewer found in them."""
    run.trial(0.5).trial(0.7).output().fails(permanent=True)

    change = recreation(run.run)
    assert change.created is not None
    again = TrialRun(change.created, now=run.now + timedelta(seconds=2))

    assert change.kept == KeptCounts(steps=2, trials=2)
    assert (
        again.run.current_step,
        again.run.position.trial,
        again.run.position.dispatch.trial,
    ) == ("polish", 3, 3)
    again.output().output(review(0.6))
    assert again.run.current_step == "publish"
    assert again.outputs()["write"] == "write of trial 2"


def test_a_run_recreated_anew_in_a_trial_begins_with_the_first(run: TrialRun) -> None:
    run.trial(0.5).output().fails(permanent=True)

    change = recreation(run.run, anew=True)

    assert change.created is not None
    assert change.kept == KeptCounts(steps=2)
    assert (change.created.current_step, change.created.position.trial) == ("polish", 1)
    assert {record.trials for record in change.created.steps.values()} == {None}


def test_a_trial_that_is_retried_anew_is_the_first_again(run: TrialRun) -> None:
    run.trial(0.5).output().fails()
    facts = {"rules": RULES, "actor": "ada", "reason": ""}

    kept = lifecycle.retry(run.run, run.now, **facts)
    anew = lifecycle.retry(run.run, run.now, **facts, anew=True)

    assert (kept.manifest.position.trial, kept.kept) == (2, KeptCounts(steps=2, trials=1))
    assert (anew.manifest.position.trial, anew.manifest.position.dispatch.trial) == (1, 1)
    assert anew.kept == KeptCounts(steps=2)


def test_a_run_recreated_earlier_in_a_trial_begins_with_its_first(run: TrialRun) -> None:
    run.trial(0.5).output().output().fails(permanent=True)

    again = TrialRun(recreated(run.run, "polish"), now=run.now + timedelta(seconds=2))
    assert again.run.steps["write"].output == '"write of trial 2"'
    again.output().output(review(0.5))

    assert (again.run.current_step, again.run.position.trial) == ("write", 2)
    again.trial(0.9).trial(0.1)
    assert again.outputs()["write"] == "write of trial 2"
    assert [one.trial for one in again.run.steps["write"].trials or ()] == [1, 3]


def test_a_run_given_up_in_a_later_trial_is_recreated_behind_them_with_the_best_so_far(
    run: TrialRun,
) -> None:
    """The output of an earlier trial was paid for, and a person may find it good enough."""
    run.trial(0.5).trial(0.2).fails(permanent=True)

    new = recreated(run.run, "publish")

    assert new.steps["write"].output == '"write of trial 1"'
    assert new.current_step == "publish"


def test_a_run_given_up_within_a_trial_is_not_recreated_in_the_middle_of_it(run: TrialRun) -> None:
    run.trial(0.5).fails(permanent=True)

    with pytest.raises(InvalidRequestError) as refused:
        recreated(run.run, "review")

    assert (
        refused.value.message
        == "fromStep is 'review'; allowed: collect, write (step write handed no output on)."
    )


def test_a_recreated_run_keeps_a_partial_output_only_on_request() -> None:
    run = TrialRun.begun(rule=None).output().output(status="PARTIAL").fails(permanent=True)

    with pytest.raises(PartialOutputError) as refused:
        recreated(run.run, "polish")

    assert refused.value.message == (
        "Cannot recreate run r-1 from step polish: the output of step write is PARTIAL, and only "
        "outputs of status SUCCESS are kept. Begin at step write (--from-step write), or keep it "
        "all the same (--keep-partial; keepPartial over HTTP)."
    )
    assert recreated(run.run, "write").current_step == "write"
    assert recreated(run.run, "polish", keep_partial=True).steps["write"].output_status == "PARTIAL"
