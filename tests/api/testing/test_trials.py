"""Trials as an engine runs them: what handlers find, what is refused, what a run keeps."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold import (
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
    StepResult,
    TrialPolicy,
    in_process,
    testing,
)
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import to_document
from leasehold.errors import (
    InvalidOutputError,
    InvalidRequestError,
    PartialOutputError,
    ReviewerModelError,
)
from leasehold.registry.pipelines import Catalog
from leasehold.remote_workers.claim_step import ClaimedStep, claim_step
from leasehold.remote_workers.manage_lease import LeaseCredentials, complete_step
from leasehold.testing import InProcessEngine, step_context
from tests.worlds.builders import environ_of

pytestmark = pytest.mark.catalog(__name__)


def write(ctx: StepContext, given: Any) -> Any:
    """Return what is known by now; the input may say that it is PARTIAL."""
    plan = given["trials"][ctx.trial - 1]
    seen = {"trial": ctx.trial, "findings": ctx.findings}
    if ctx.trial > 1:
        seen["before"] = ctx.output_of("write")["trial"]
        seen["status_before"] = ctx.status_of("write")
        seen["review_before"] = ctx.output_of("review")["score"]
    return StepResult({**given, "seen": seen, "trial": ctx.trial}, plan.get("status", "SUCCESS"))


def polish(ctx: StepContext, given: Any) -> Any:
    assert ctx.output_of("write")["trial"] == ctx.trial == given["trial"]
    return {**given, "polished": ctx.trial}


def review(ctx: StepContext, given: Any) -> Any:
    plan = given["trials"][ctx.trial - 1]
    verdict = {"settled": plan["settled"], "score": plan["score"], "findings": plan["findings"]}
    return {**verdict, "seen": given["seen"], "status": ctx.status_of("write")}


def publish(ctx: StepContext, given: Any) -> Any:
    return {
        "review": given,
        "written": ctx.output_of("write")["trial"],
        "polished": ctx.output_of("polish")["polished"],
        "status": ctx.status_of("write"),
        "findings": ctx.findings,
    }


def _step(name: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{name}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
    )


STEPS = Registry("dispatch", [_step(name) for name in ("write", "polish", "review", "publish")])
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(
            name="paper",
            steps=("write", "polish", "review", "publish"),
            trials=TrialPolicy(author="write", reviewer="review", max_trials=3),
        ),
        PipelineEntry(
            name="short",
            steps=("write", "review"),
            trials=TrialPolicy(author="write", reviewer="review", max_trials=3),
        ),
    ],
)


def verdict(score: float, *, settled: bool = False, **facts: Any) -> dict[str, Any]:
    """The result of a trial."""
    return {"settled": settled, "score": score, "findings": [f"of {score}"], **facts}


def names(engine: InProcessEngine, run_id: str) -> list[tuple[str, str | None, int | None]]:
    """Type, step and trial of what happened, without what is true of each step."""
    dull = ("step_started", "step_handed_off")
    events = engine.trace(run_id)
    return [(str(one.type), one.step, one.trial) for one in events if one.type not in dull]


PLAN = [verdict(0.5), verdict(0.9), verdict(0.7)]


def test_each_trial_finds_what_the_one_before_left_and_the_best_is_handed_on(
    engine: InProcessEngine,
) -> None:
    run = engine.run("paper", {"trials": PLAN})

    seen = {"trial": 2, "findings": ["of 0.5"], "before": 1, "status_before": "SUCCESS"}
    review = {**verdict(0.9), "seen": {**seen, "review_before": 0.5}, "status": "SUCCESS"}
    assert engine.output(run.run_id) == {
        "review": review,
        "written": 2,
        "polished": 2,
        "status": "SUCCESS",
        "findings": [],
    }
    assert names(engine, run.run_id) == [
        ("run_started", None, None),
        ("step_completed", "write", 1),
        ("step_completed", "polish", 1),
        ("step_completed", "review", 1),
        ("author_slot_opened", "write", 2),
        ("step_completed", "write", 2),
        ("step_completed", "polish", 2),
        ("step_completed", "review", 2),
        ("author_slot_opened", "write", 3),
        ("step_completed", "write", 3),
        ("step_completed", "polish", 3),
        ("step_completed", "review", 3),
        ("trial_chosen", "review", 2),
        ("step_completed", "publish", 1),
        ("run_completed", None, None),
    ]


def test_a_handler_in_its_own_process_finds_the_same(tmp_path: Path) -> None:
    environ = environ_of(tmp_path) | {"LEASEHOLD_ISOLATION": ""}  # as the steps say
    plan = [verdict(0.5), verdict(0.4, settled=True, status="PARTIAL")]
    with in_process.InProcessEngine(
        STEPS, PIPELINES, environ=environ, workers=1
    ) as engine:  # which begins again where no process was to be had, as on a busy machine
        run = engine.wait(engine.start("short", {"trials": plan}).run_id)

    assert run.status == "COMPLETED"
    output = json.loads(run.steps["review"].output or "")
    assert output["seen"] == {
        "trial": 2,
        "findings": ["of 0.5"],
        "before": 1,
        "status_before": "SUCCESS",
        "review_before": 0.5,
    }
    assert output["status"] == "PARTIAL"


def test_a_verdict_that_does_not_fit_fails_the_attempt_and_names_the_field(
    engine: InProcessEngine,
) -> None:
    run = engine.start("paper", {"trials": [verdict("good")]})  # type: ignore[arg-type]
    engine.run_until_idle()

    failed = next(one for one in engine.runs() if one.run_id == run.run_id)
    assert failed.error is not None
    assert (failed.status, failed.error.code, failed.error.step) == (
        "ERROR",
        "invalid_verdict",
        "review",
    )
    assert failed.error.message == (
        "The output of reviewer review has no verdict: its 'score' is a text, and has to be a "
        "finite number."
    )
    done = engine.run_until_settled(run.run_id)
    assert (done.dead_letter_reason, done.position.trial) == ("RETRIES_EXHAUSTED", 1)


def test_outputs_of_many_trials_do_not_fill_the_document(tmp_path: Path) -> None:
    """Ten trials of three outputs of 30 KB: what has no room goes into artifacts."""
    plan = [verdict(number, padding="x" * 3_000) for number in range(10)]
    ten = TrialPolicy(author="write", reviewer="review", max_trials=10)
    paper = PipelineEntry(name="paper", steps=("write", "polish", "review"), trials=ten)
    with testing.engine(Catalog(STEPS, Registry("pipelines", [paper])), tmp_path) as engine:
        run = engine.run("paper", {"trials": plan})

        assert run.status == "COMPLETED"
        document = to_document(run)
        assert len(json.dumps(document, default=str)) < 256 * 1024
        kept = [one for record in run.steps.values() for one in record.trials or ()]
        assert len(kept) == 27
        assert {one.output is None for one in kept} == {True, False}
        assert engine.output(run.run_id)["score"] == 9


def test_a_run_recreated_behind_a_partial_output_says_which_and_what_to_type(
    engine: InProcessEngine,
) -> None:
    plan = [verdict(0.5, settled=True, status="PARTIAL")]
    run = engine.run("paper", {"trials": plan})
    (event,) = [
        one
        for one in engine.trace(run.run_id)
        if (one.type, one.step) == ("step_completed", "write")
    ]
    assert (event.model_extra or {})["outputStatus"] == "PARTIAL"

    with pytest.raises(PartialOutputError, match="the output of step write is PARTIAL"):
        engine.recreate(run.run_id, from_step="publish")
    refused = engine.batch("recreate", {"pipeline": "paper"}, limit=5, from_step="publish")
    kept = engine.recreate(run.run_id, from_step="publish", keep_partial=True)

    assert refused.refused == [(run.run_id, "partial_output")]
    assert engine.run_until_settled(kept.run_id).status == "COMPLETED"
    assert engine.output(kept.run_id)["status"] == "PARTIAL"


# -- models and workers of other kinds -------------------------------------------------------------


def nothing(ctx: Any, given: Any) -> dict[str, list[str]]:
    return {}


def grade(ctx: Any, given: Any) -> int:
    return 1


def test_a_reviewer_whose_model_surely_has_no_verdict_is_refused_before_anything_runs(
    tmp_path: Path,
) -> None:
    rule = TrialPolicy(author="nothing", reviewer="grade", max_trials=2)
    catalog = Catalog(
        Registry("dispatch", [_step("nothing"), _step("grade")]),
        Registry(
            "pipelines", [PipelineEntry(name="grades", steps=("nothing", "grade"), trials=rule)]
        ),
    )

    with pytest.raises(ReviewerModelError) as refused, testing.engine(catalog, tmp_path):
        pass

    assert refused.value.message == (
        "Pipeline 'grades': step 'grade' reviews its trials, and gives int: it is a number and "
        "must be an object. A verdict has settled (true or false), score (a number) and findings "
        "(a list)."
    )


REMOTE = Catalog(
    Registry(
        "dispatch",
        [
            StepDispatchEntry(
                step_type=name,
                handler="remote",
                agent_timeout=timedelta(minutes=1),
                dispatch_deadline=timedelta(minutes=2),
            )
            for name in ("author", "reviewer")
        ],
    ),
    Registry(
        "pipelines",
        [
            PipelineEntry(
                name="remote",
                steps=("author", "reviewer"),
                trials=TrialPolicy(author="author", reviewer="reviewer", max_trials=2),
            )
        ],
    ),
)


def credentials(claimed: ClaimedStep) -> LeaseCredentials:
    run = claimed.manifest
    assert run.position.lease is not None
    return LeaseCredentials(run.run_id, Fence(run.position.lease.lease_id, run.fencing_token))


def test_remote_workers_write_and_review_as_well(tmp_path: Path) -> None:
    with testing.engine(REMOTE, tmp_path) as engine:
        parts = engine.engine
        started = engine.start("remote", None)

        def complete(step: str, output: Any, findings: list[str]) -> None:
            claimed = claim_step(parts, step, "vm-1")
            assert claimed.findings == findings
            complete_step(parts, credentials(claimed), json.dumps(output), "SUCCESS")

        complete("author", "one", [])
        complete("reviewer", verdict(0.5), [])
        complete("author", "two", ["of 0.5"])
        claimed = claim_step(parts, "reviewer", "vm-1")
        with pytest.raises(InvalidOutputError, match=r"it lacks 'settled'.* Nothing was changed"):
            complete_step(parts, credentials(claimed), '{"score": 1, "findings": []}', "SUCCESS")
        with pytest.raises(InvalidOutputError, match="its 'score' is null"):
            complete_step(
                parts, credentials(claimed), json.dumps(verdict(0) | {"score": None}), "PARTIAL"
            )
        complete_step(parts, credentials(claimed), json.dumps(verdict(0.4)), "SUCCESS")

        (run,) = engine.runs()
        assert (run.run_id, run.status) == (started.run_id, "COMPLETED")
        assert engine.output(run.run_id, "author") == "one"


def test_a_remote_reviewer_that_says_its_output_is_an_error_needs_no_verdict(
    tmp_path: Path,
) -> None:
    with testing.engine(REMOTE, tmp_path) as engine:
        parts = engine.engine
        engine.start("remote", None)
        complete_step(parts, credentials(claim_step(parts, "author", "vm-1")), "1", "SUCCESS")

        claimed = claim_step(parts, "reviewer", "vm-1")
        ended = complete_step(parts, credentials(claimed), '"no model"', "ERROR")

        assert ended.outcome == "retry_scheduled"


# -- contexts of unit tests ------------------------------------------------------------------------


def test_a_unit_test_says_what_the_reviewer_found_and_how_whole_outputs_are() -> None:
    outputs = {"collect": 1, "read": 2}
    with step_context(
        trial=2, findings=["too short"], outputs=outputs, statuses={"read": "PARTIAL"}
    ) as ctx:
        assert ctx.findings == ["too short"]
        assert [ctx.status_of(step) for step in outputs] == ["SUCCESS", "PARTIAL"]
        with pytest.raises(InvalidRequestError, match="allowed: collect, read"):
            ctx.status_of("nobody")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"findings": ["a"]}, "none in the first trial; give trial=2 as well"),
        ({"findings": "a", "trial": 2}, "a list of JSON values"),
        ({"statuses": {"read": "PARTIAL"}}, "none: no outputs are given"),
        ({"statuses": {"read": "GOOD"}, "outputs": {"read": 1}}, "SUCCESS, PARTIAL"),
    ],
)
def test_what_a_test_cannot_say_of_a_trial_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidRequestError) as refused, step_context(**given):
        pass

    assert refused.value.details["allowed"] == problem
