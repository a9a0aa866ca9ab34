"""A step that skips to a later one, on each store: the steps between are left out."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from leasehold import (
    GateContext,
    GateEntry,
    GatePolicyFailure,
    PermanentError,
    PipelineEntry,
    Registry,
    Step,
    StepContext,
    StepDispatchEntry,
    StepResult,
    TrialPolicy,
)
from leasehold.domain.lease import fence_of
from leasehold.domain.ledger import ledger_of
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest, run_ref
from leasehold.domain.manifest_parts import SkippedStep
from leasehold.domain.timeline import timeline
from leasehold.errors import ChainError, InvalidRequestError
from leasehold.registry.pipelines import Catalog
from leasehold.remote_workers.claim_step import claim_step
from leasehold.remote_workers.manage_lease import LeaseCredentials, complete_step
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import sweep
from tests.worlds.engines import OpenEngine

pytestmark = pytest.mark.one_store

CALLED: list[str] = []
BROKEN: list[str] = []


def triage(ctx: StepContext, given: dict[str, Any]) -> StepResult[str]:
    """Skip to where the input says."""
    CALLED.append("triage")
    return StepResult(str(given["text"]), skip_to=given["to"])


def edit(ctx: StepContext, given: str) -> str:
    CALLED.append(ctx.step)
    return f"{given}, {ctx.step}"


def tidy(ctx: StepContext, given: str) -> StepResult[str]:
    """Skip once more."""
    return StepResult(given, skip_to="publish")


def publish(ctx: StepContext, given: Any) -> str:
    CALLED.append("publish")
    if BROKEN:
        raise PermanentError("no press")
    return f"{given}, published"


class Page(BaseModel):
    """What only `review` makes."""

    settled: bool
    score: float
    findings: list[str]


def review(ctx: StepContext, given: str) -> Page:
    return Page(settled=True, score=1, findings=[])


def count(ctx: StepContext, given: Page) -> float:
    return given.score


def is_checked(ctx: GateContext, output: str) -> None:
    if output.startswith("bad"):
        raise GatePolicyFailure("bad", "It is bad.", "Look at it.")


TRIAGE = Step("triage", skips_to=("shorten", "publish"))
STEPS = (TRIAGE, Step("edit", "correct"), Step("edit", "shorten"), "publish")
NEWS = PipelineEntry(name="news", steps=STEPS)
UNDECLARED = PipelineEntry(name="news", steps=("triage", *STEPS[1:]))


def catalog_of(*pipelines: PipelineEntry, **of_triage: Any) -> Catalog:
    steps = [
        StepDispatchEntry(
            step_type=name,
            handler=of_triage.get("handler", "")
            if name == "triage" and of_triage
            else f"{__name__}:{name}",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
            isolation="inline",
            gates=("checked",) if name == "triage" else (),
        )
        for name in ("triage", "edit", "tidy", "publish", "review", "count")
    ]
    gates = [GateEntry(name="checked", check=f"{__name__}:is_checked")]
    return Catalog(
        Registry("dispatch", steps), Registry("pipelines", pipelines), Registry("gates", gates)
    )


@pytest.fixture(autouse=True)
def forget() -> None:
    CALLED.clear()
    BROKEN.clear()


def started(engine: Engine, to: str | None, text: str = "news") -> Manifest:
    return start_run(engine, StartRequest("news", {"text": text, "to": to})).manifest


def attempt(engine: Engine, run_id: str) -> Manifest:
    run = get_run(engine, run_id)
    execute_step(engine, Hint(run_id, run.position.dispatch.generation))
    return get_run(engine, run_id)


def settled(engine: Engine, run: Manifest) -> Manifest:
    while not (run.is_idle or run.block):
        run = attempt(engine, run.run_id)
    return run


def asked(engine: Engine, run: Manifest, operation: Operation, **facts: Any) -> Manifest:
    change = operate(engine, run.run_id, OperationRequest(operation, actor="ada", **facts))
    return change.created or change.manifest


def output(run: Manifest, step: str = "publish") -> str:
    return str(json.loads(run.steps[step].output or "null"))


@pytest.mark.each_store
def test_the_steps_between_are_left_out_and_the_target_gets_the_output(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(catalog_of(NEWS))

    done = settled(engine, started(engine, "publish"))

    assert (done.status, output(done)) == ("COMPLETED", "news, published")
    assert CALLED == ["triage", "publish"]
    assert done.plan == ("triage", "publish")
    assert done.whole_plan == ("triage", "correct", "shorten", "publish")
    assert done.skipped == (
        SkippedStep(step="correct", by="triage"),
        SkippedStep(step="shorten", by="triage"),
    )
    assert ledger_of(done).steps.keys() == {"triage", "publish"}


def test_a_step_may_skip_to_any_place_that_it_declares_or_to_none(open_engine: OpenEngine) -> None:
    engine = open_engine(catalog_of(NEWS))

    first = settled(engine, started(engine, "shorten"))
    second = settled(engine, started(engine, None))
    plain = engine.documents.get(run_ref(second.run_id))

    assert output(first) == "news, shorten, published"
    assert output(second) == "news, correct, shorten, published"
    assert plain is not None
    assert "skipped" not in plain.document


def test_what_two_steps_skip_is_left_out_and_noted_together(open_engine: OpenEngine) -> None:
    first = Step("triage", skips_to=("tidy",))
    second = Step("tidy", skips_to=("publish",))
    steps = (first, Step("edit", "correct"), second, Step("edit", "shorten"), "publish")
    engine = open_engine(catalog_of(PipelineEntry(name="news", steps=steps)))

    done = settled(engine, started(engine, "tidy"))

    assert (output(done), CALLED) == ("news, published", ["triage", "publish"])
    assert done.whole_plan == ("triage", "correct", "tidy", "shorten", "publish")
    assert done.skipped == (
        SkippedStep(step="correct", by="triage"),
        SkippedStep(step="shorten", by="tidy"),
    )


def test_the_trace_says_which_step_skipped_another(open_engine: OpenEngine) -> None:
    engine = open_engine(catalog_of(NEWS))
    done = settled(engine, started(engine, "publish"))

    events = [(one.type, one.step, one.detail) for one in timeline(done, [])]

    skipped = "step triage skipped to publish"
    assert events[3:6] == [
        ("step_handed_off", "triage", None),
        ("step_skipped", "correct", skipped),
        ("step_skipped", "shorten", skipped),
    ]


@pytest.mark.parametrize(
    ("to", "finding"),
    [
        ("nowhere", "a later step than 'triage' (correct, shorten, publish)"),
        ("triage", "a later step than 'triage' (correct, shorten, publish)"),
        ("correct", "what the pipeline declares (shorten, publish)"),
    ],
)
def test_a_skip_that_is_not_declared_blocks_and_keeps_the_output(
    open_engine: OpenEngine, to: str, finding: str
) -> None:
    engine = open_engine(catalog_of(NEWS))

    blocked = settled(engine, started(engine, to))
    approved = asked(engine, blocked, Operation.APPROVE)
    done = settled(engine, approved)

    assert blocked.block is not None
    assert (blocked.status, blocked.block.code) == ("BLOCKED", "skip_refused")
    assert finding in blocked.block.finding
    assert output(blocked, "triage") == "news"
    assert output(done) == "news, correct, shorten, published"  # as no skip was possible
    assert CALLED.count("triage") == 1


def test_a_deploy_that_declares_the_skip_has_the_run_go_on_with_its_output(
    open_engine: OpenEngine,
) -> None:
    blocked = settled(old := open_engine(catalog_of(UNDECLARED)), started(old, "publish"))
    new = open_engine(catalog_of(NEWS))

    looked_at = asked(new, blocked, Operation.RETRY)
    done = settled(new, looked_at)

    assert blocked.block is not None
    assert blocked.block.code == "skip_refused"
    assert (done.status, output(done)) == ("COMPLETED", "news, published")
    assert CALLED == ["triage", "publish"]


def test_an_output_that_a_gate_refused_goes_where_it_was_to_go_once_it_is_approved(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(catalog_of(NEWS))
    blocked = settled(engine, started(engine, "publish", "bad news"))

    done = settled(engine, asked(engine, blocked, Operation.APPROVE))

    assert blocked.block is not None
    assert blocked.block.check_id == "bad"
    assert (output(done), done.plan) == ("bad news, published", ("triage", "publish"))


def test_a_run_is_recreated_behind_the_skip_at_it_and_before_it(open_engine: OpenEngine) -> None:
    engine = open_engine(catalog_of(NEWS))
    BROKEN.append("publish")
    dead = settled(engine, started(engine, "publish"))
    BROKEN.clear()

    behind = settled(engine, asked(engine, dead, Operation.RECREATE))
    at_it = settled(engine, asked(engine, dead, Operation.RECREATE, from_step="shorten"))
    before = settled(engine, asked(engine, dead, Operation.RECREATE, from_step="correct"))

    assert dead.dead_lettered
    assert (output(behind), behind.skipped) == ("news, published", dead.skipped)
    assert (output(before), before.skipped) == ("news, correct, shorten, published", None)
    assert CALLED.count("triage") == 1
    assert at_it.status == "COMPLETED"


def test_a_retried_step_may_choose_again(open_engine: OpenEngine) -> None:
    engine = open_engine(catalog_of(NEWS))
    run = started(engine, "shorten", "bad news")
    blocked = settled(engine, run)

    again = asked(engine, blocked, Operation.RETRY)

    assert again.steps["triage"].skip_to is None
    assert settled(engine, again).steps["triage"].skip_to == "shorten"


def test_a_remote_worker_skips_and_is_refused_where_it_cannot(open_engine: OpenEngine) -> None:
    engine = open_engine(catalog_of(NEWS, handler="remote"))
    run = started(engine, "publish")
    claimed = claim_step(engine, "triage", "worker").manifest
    while claimed.run_id != run.run_id:  # of another test
        claimed = claim_step(engine, "triage", "worker").manifest
    held = LeaseCredentials(run.run_id, fence_of(claimed))

    with pytest.raises(InvalidRequestError, match="skipTo is 'correct'; allowed: what the pip"):
        complete_step(engine, held, '"news"', "SUCCESS", "correct")
    complete_step(engine, held, '"news"', "SUCCESS", "publish")

    assert output(settled(engine, get_run(engine, run.run_id))) == "news, published"


def test_a_worker_that_dies_after_the_skip_changes_nothing_of_it(open_engine: OpenEngine) -> None:
    """Its task is lost as well: the sweep finds the run at the target."""
    engine = open_engine(catalog_of(NEWS))
    run = attempt(engine, started(engine, "publish").run_id)
    sweep(engine)

    assert (run.position.step, run.position.dispatch.generation) == ("publish", 2)
    assert output(settled(engine, run)) == "news, published"


def test_a_target_that_cannot_take_the_output_is_refused_before_a_run(
    open_engine: OpenEngine,
) -> None:
    steps = (Step("edit", skips_to=("count",)), "review", "count")
    engine = open_engine(catalog_of(PipelineEntry(name="news", steps=steps)))

    with pytest.raises(ChainError, match="step 'edit' gives str, and step 'count' takes Page"):
        start_run(engine, StartRequest("news", "text"))


def test_trials_are_skipped_as_a_whole(open_engine: OpenEngine) -> None:
    steps = (Step("triage", skips_to=("last",)), "edit", "review", Step("publish", "last"))
    trials = TrialPolicy(author="edit", reviewer="review", max_trials=2)
    engine = open_engine(catalog_of(PipelineEntry(name="news", steps=steps, trials=trials)))

    done = settled(engine, started(engine, "last"))

    assert (done.status, output(done, "last")) == ("COMPLETED", "news, published")
    assert done.looped_steps == ()
