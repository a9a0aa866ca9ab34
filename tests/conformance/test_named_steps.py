"""One step type at several places of a pipeline, under names, on each store."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

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
    TrialPolicy,
)
from leasehold.domain.lease import fence_of
from leasehold.domain.ledger import ledger_of
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest, run_ref
from leasehold.domain.stored import Write
from leasehold.registry.pipelines import Catalog
from leasehold.remote_workers.claim_step import claim_step
from leasehold.remote_workers.manage_lease import LeaseCredentials, complete_step
from leasehold.services.catalog_fit import LiveRunCheck
from leasehold.services.derive_budgets import LedgerSamples
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.explain_run import explain_run
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.read_runs import RunFilter, get_run, list_runs
from leasehold.services.start_run import StartRequest, start_run
from tests.worlds.engines import OpenEngine

pytestmark = pytest.mark.one_store

PAID: list[str] = []
BROKEN: list[str] = []

#: `shorten` and `shorten-more` are the step type `cut`, which has no place of its own name.
STEPS = ("write", Step("cut", name="shorten"), Step("cut", name="shorten-more"), "send")


def write(ctx: StepContext, given: str) -> str:
    return given


def cut(ctx: StepContext, given: str) -> str:
    """Leave out a letter, which is paid for."""
    if ctx.step in BROKEN:
        raise PermanentError("no quota")
    half: str = ctx.once("cut", _paid, ctx.step, given)
    return half


def _paid(step: str, given: str) -> str:
    PAID.append(step)
    return given[:-1]


def send(ctx: StepContext, given: str) -> list[str]:
    return [given, ctx.output_of("shorten"), ctx.status_of("shorten-more"), ctx.step, ctx.step_type]


def review(ctx: StepContext, given: str) -> dict[str, Any]:
    return {"settled": len(given) < 3, "score": 1.0, "findings": [ctx.step]}


def is_short(ctx: GateContext, output: str) -> None:
    if len(output) > 4:
        raise GatePolicyFailure("long", f"{ctx.step} of type {ctx.step_type}", "Cut more.")


def entry(name: str, **fields: Any) -> StepDispatchEntry:
    defaults = {
        "handler": f"{__name__}:{name}",
        "agent_timeout": timedelta(minutes=1),
        "dispatch_deadline": timedelta(minutes=2),
        "isolation": "inline",
    }
    return StepDispatchEntry(step_type=name, **{**defaults, **fields})


def catalog_of(*pipelines: PipelineEntry, **of_cut: Any) -> Catalog:
    steps = [entry("write"), entry("cut", **of_cut), entry("send"), entry("review")]
    gates = [GateEntry(name="short", check=f"{__name__}:is_short")]
    return Catalog(
        Registry("dispatch", steps), Registry("pipelines", pipelines), Registry("gates", gates)
    )


LETTER = PipelineEntry(name="letter", steps=STEPS)


@pytest.fixture(autouse=True)
def forget() -> None:
    PAID.clear()
    BROKEN.clear()


def started(engine: Engine, given: Any, unique: str, pipeline: str = "letter") -> Manifest:
    return start_run(engine, StartRequest(pipeline, given, labels={"of": unique})).manifest


def attempt(engine: Engine, run_id: str) -> Manifest:
    run = get_run(engine, run_id)
    execute_step(engine, Hint(run_id, run.position.dispatch.generation))
    return get_run(engine, run_id)


def settled(engine: Engine, run: Manifest) -> Manifest:
    while not run.is_idle:
        run = attempt(engine, run.run_id)
    return run


def test_each_place_has_its_own_output(open_engine: OpenEngine, unique: str) -> None:
    engine = open_engine(catalog_of(LETTER, agent_timeout=timedelta(seconds=40)))
    run = attempt(engine, started(engine, "letter", unique).run_id)
    at_shorten = run.position.dispatch

    done = settled(engine, run)

    assert at_shorten.step == "shorten"
    assert (at_shorten.timeout_ms, at_shorten.queue) == (40_000, "cut")  # as its step type says
    assert done.status == "COMPLETED"
    assert {name: json.loads(done.steps[name].output or "") for name in done.plan} == {
        "write": "letter",
        "shorten": "lette",
        "shorten-more": "lett",
        "send": ["lett", "lette", "SUCCESS", "send", "send"],
    }
    assert PAID == ["shorten", "shorten-more"]  # each has results of its own


def test_a_run_says_what_its_names_are_and_a_run_without_names_says_nothing(
    open_engine: OpenEngine, unique: str
) -> None:
    engine = open_engine(
        catalog_of(LETTER, PipelineEntry(name="plain", steps=("write", Step("cut"))))
    )

    named = engine.documents.get(run_ref(started(engine, "a", unique).run_id))
    plain = engine.documents.get(run_ref(started(engine, "a", unique, "plain").run_id))

    assert named is not None
    assert plain is not None
    assert list(named.document["plan"]) == ["write", "shorten", "shorten-more", "send"]
    assert named.document["places"] == {
        "shorten": {"stepType": "cut"},
        "shorten-more": {"stepType": "cut"},
    }
    assert "places" not in plain.document


def test_a_gate_of_the_type_judges_each_place(open_engine: OpenEngine, unique: str) -> None:
    engine = open_engine(catalog_of(LETTER, gates=("short",)))
    run = settled(engine, started(engine, "letters", unique))

    assert (run.status, run.position.step) == ("BLOCKED", "shorten")
    assert run.block is not None
    assert run.block.finding == "shorten of type cut"

    operate(engine, run.run_id, OperationRequest(Operation.APPROVE, actor="ada"))
    assert get_run(engine, run.run_id).position.step == "shorten-more"


def test_a_run_is_recreated_from_a_name(open_engine: OpenEngine, unique: str) -> None:
    engine = open_engine(catalog_of(LETTER))
    BROKEN.append("shorten-more")
    dead = settled(engine, started(engine, "letter", unique))
    BROKEN.clear()

    request = OperationRequest(Operation.RECREATE, actor="ada", from_step="shorten-more")
    created = operate(engine, dead.run_id, request).created
    assert created is not None
    done = settled(engine, created)

    assert (dead.dead_lettered, dead.position.step) == (True, "shorten-more")
    assert created.places == dead.places
    assert (done.status, PAID) == ("COMPLETED", ["shorten", "shorten-more"])


def test_trials_run_between_names(open_engine: OpenEngine, unique: str) -> None:
    looped = PipelineEntry(
        name="looped",
        steps=(
            "write",
            Step("cut", name="first"),
            Step("cut", name="last"),
            Step("review", "judge"),
        ),
        trials=TrialPolicy(author="first", reviewer="judge", max_trials=2),
    )
    engine = open_engine(catalog_of(looped))

    done = settled(engine, started(engine, "letter", unique, "looped"))

    assert done.looped_steps == ("first", "last", "judge")
    assert (done.status, done.position.trial) == ("COMPLETED", 2)
    assert PAID == ["first", "last"] * 2


def test_a_remote_worker_claims_a_place_by_its_type(open_engine: OpenEngine, unique: str) -> None:
    engine = open_engine(catalog_of(LETTER, handler="remote"))
    run = attempt(engine, started(engine, f"letter {unique}", unique).run_id)

    assert (run.claimable, run.current_step) == ("cut", "shorten")
    for name in ("shorten", "shorten-more"):
        claimed = claim_step(engine, "cut", "worker")
        assert (claimed.manifest.run_id, claimed.manifest.position.step) == (run.run_id, name)
        held = LeaseCredentials(run.run_id, fence_of(claimed.manifest))
        complete_step(engine, held, json.dumps(name), "SUCCESS")
    assert settled(engine, get_run(engine, run.run_id)).status == "COMPLETED"


def test_a_worker_that_does_not_know_names_blocks_the_run_and_one_that_does_goes_on(
    open_engine: OpenEngine, unique: str
) -> None:
    """It sees a step that its catalog has not, as the name of a place is never a step type."""
    new = open_engine(catalog_of(LETTER))
    run = attempt(new, started(new, "letter", unique).run_id)

    def as_before(document: Any, _: Any) -> Write[None]:
        return Write(None, {name: it for name, it in document.items() if name != "places"})

    found = new.documents.get(run_ref(run.run_id))
    assert found is not None
    new.documents.transact(run_ref(run.run_id), as_before)  # as a version without them reads it
    generation = run.position.dispatch.generation
    outcome = execute_step(open_engine(catalog_of()), Hint(run.run_id, generation))
    new.documents.transact(run_ref(run.run_id), lambda *_: Write(None, dict(found.document)))

    assert outcome == "step_unknown"
    assert PAID == []
    assert settled(new, get_run(new, run.run_id)).status == "COMPLETED"


def test_a_name_whose_step_type_is_gone_does_not_fit_the_catalog(
    open_engine: OpenEngine, unique: str
) -> None:
    engine = open_engine(catalog_of(LETTER))
    run = started(engine, "letter", unique)
    steps = Registry("dispatch", [one for one in engine.catalog.steps if one.step_type != "cut"])
    other = open_engine(Catalog(steps, Registry("pipelines", [])))

    assert list(LiveRunCheck(engine).misfits(run)) == []
    assert [(one.step, one.code) for one in LiveRunCheck(other).misfits(run)] == [
        ("shorten", "step_unknown"),
        ("shorten-more", "step_unknown"),
    ]


@pytest.mark.each_store
def test_lists_why_and_the_ledger_have_the_names(open_engine: OpenEngine, unique: str) -> None:
    engine = open_engine(catalog_of(LETTER))
    run = attempt(engine, started(engine, "letter", unique).run_id)
    page = list_runs(engine, RunFilter(label=f"of:{unique}"), limit=5, page_token=None)
    why = explain_run(engine, run.run_id, is_gone=lambda _: False)

    entry_ = ledger_of(settled(engine, run))

    assert [one.current_step for one in page.runs] == ["shorten"]
    assert "step shorten" in why.explanation.words
    assert entry_.step_types == ("write", "cut", "send")
    assert {name: one.step_type for name, one in entry_.steps.items()} == {
        "write": None,
        "shorten": "cut",
        "shorten-more": "cut",
        "send": None,
    }


def test_limits_are_learnt_from_all_places_of_a_type(open_engine: OpenEngine, unique: str) -> None:
    engine = open_engine(catalog_of(LETTER))
    before = len(LedgerSamples(engine).samples("cut", engine.clock.now() - timedelta(days=1)))
    settled(engine, started(engine, "letter", unique))

    found = LedgerSamples(engine).samples("cut", engine.clock.now() - timedelta(days=1))

    assert len(found) == before + 2
