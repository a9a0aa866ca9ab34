"""What was paid for is not paid for again on a way back: counted, in both stores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from leasehold import PermanentError, PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.domain.checkpoint import KeptCounts
from leasehold.domain.lease import fence_of
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Attempts, ErrorRecord
from leasehold.domain.timeline import timeline
from leasehold.errors import InvalidRequestError
from leasehold.registry.pipelines import Catalog
from leasehold.remote_workers.claim_step import acquire_run
from leasehold.remote_workers.manage_lease import LeaseCredentials, fail_step, save_checkpoint
from leasehold.services.batch import batch
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.purge import purge
from leasehold.services.read_results import read_output
from leasehold.services.read_runs import RunFilter, get_run
from leasehold.services.start_run import StartRequest, start_run
from tests.worlds.catalogs import remote_step
from tests.worlds.engines import OpenEngine

pytestmark = [pytest.mark.one_store, pytest.mark.catalog(__name__)]


#: What was paid for, in order; how much each run's `work` gives up at, until it is repaired.
PAID: list[str] = []
BROKEN: list[str] = []

ITEMS = 6


def collect(ctx: StepContext, given: dict[str, Any]) -> dict[str, Any]:
    PAID.append("collect")
    return given


def work(ctx: StepContext, given: dict[str, Any]) -> list[str]:
    """Pay for two calls an item: one that is recorded, one whose item is in the checkpoint."""
    items = ctx.checkpointed(range(ITEMS), every=1)
    for number in items:
        answer = ctx.once(f"ask {number}", _pay, f"ask {number}", given["size"])
        if BROKEN and number == ITEMS // 2:
            raise PermanentError(BROKEN[0])
        items.results.append(_pay(f"item {number}", given["size"]) + answer)
    return [result.strip("x ") for result in items.results]


def _pay(name: str, size: int) -> str:
    PAID.append(name)
    return name.ljust(size, "x")


def _entry(name: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{name}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
    )


STEPS = Registry("dispatch", [_entry("collect"), _entry("work")])
PIPELINES = Registry("pipelines", [PipelineEntry(name="paid", steps=("collect", "work"))])


#: A text of this size stays in the manifest, and one of that size in an artifact.
SMALL, LARGE = 10, 40_000
DONE = ITEMS // 2
RECREATE = OperationRequest(Operation.RECREATE, actor="ada", reason="the quota is raised")
ALL = ["collect", *(f"{kind} {number}" for number in range(ITEMS) for kind in ("ask", "item"))]


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    PAID.clear()
    BROKEN[:] = ["no quota"]
    yield
    BROKEN.clear()


def given_up(engine: Engine, label: str, size: int) -> Manifest:
    """A run that was given up in the middle of its second step, after seven paid calls."""
    request = StartRequest("paid", {"size": size}, labels={"of": label})
    run = settled(engine, start_run(engine, request).manifest)
    assert run.dead_lettered
    return run


def settled(engine: Engine, run: Manifest) -> Manifest:
    while not run.is_terminal:
        execute_step(engine, Hint(run.run_id, run.position.dispatch.generation))
        run = get_run(engine, run.run_id)
    return run


def files(engine: Engine, run: Manifest) -> list[str]:
    return list(engine.artifacts.list(f"runs/{run.run_id}"))


def purged(engine: Engine, label: str) -> tuple[int, list[str]]:
    later = engine.clock.now() + timedelta(hours=1)
    done = purge(engine, RunFilter(label=f"of:{label}"), ended_before=later)
    return done.purged, [run_id for run_id, _ in done.kept]


@pytest.mark.each_store
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_run_that_was_given_up_is_recreated_without_a_call_paid_twice(
    engine: Engine, unique: str, size: int
) -> None:
    dead = given_up(engine, unique, size)
    BROKEN.clear()

    change = operate(engine, dead.run_id, RECREATE)
    again = operate(engine, dead.run_id, RECREATE)
    assert change.created is not None
    kept_files = files(engine, dead)
    early = purged(engine, unique)
    run = settled(engine, change.created)

    assert change.kept == KeptCounts(steps=1, checkpoint=DONE, calls=DONE + 1)
    assert again.kept == change.kept  # another one of the same, as nothing binds it to the first
    assert len(kept_files) == (0 if size == SMALL else 1 + DONE + 1)
    assert (early, files(engine, dead)) == ((0, [dead.run_id]), kept_files)
    assert (run.status, PAID) == ("COMPLETED", ALL)
    assert len(json.loads(read_output(engine, run.run_id))) == ITEMS


def test_a_new_run_counts_the_attempts_and_calls_of_its_own(engine: Engine, unique: str) -> None:
    dead = given_up(engine, unique, SMALL)
    BROKEN.clear()

    created = operate(engine, dead.run_id, RECREATE).created
    assert created is not None
    run = settled(engine, created)

    before, after = dead.steps[dead.current_step], run.steps[dead.current_step]
    assert before.calls is not None
    assert after.calls is not None
    assert after.attempts == Attempts()
    assert (before.calls.made + after.calls.made, after.calls.spared) == (ITEMS, 1)
    completed = [one for one in timeline(run, []) if one.type == "step_completed"]
    assert [one.attempt for one in completed if one.step == dead.current_step] == [1]


@pytest.mark.each_store
def test_what_a_new_run_shares_is_purged_with_the_old_one_after_it(
    engine: Engine, unique: str
) -> None:
    dead = given_up(engine, unique, LARGE)
    BROKEN.clear()
    created = operate(engine, dead.run_id, RECREATE).created
    assert created is not None
    settled(engine, created)

    done = purged(engine, unique)

    assert done == (2, [])
    assert (files(engine, dead), files(engine, created)) == ([], [])


def test_a_new_run_that_is_given_up_too_passes_on_what_it_was_given(
    engine: Engine, unique: str
) -> None:
    """Its checkpoint lies with the first of the three runs."""
    first = given_up(engine, unique, LARGE)
    second = operate(engine, first.run_id, RECREATE).created
    assert second is not None
    assert settled(engine, second).dead_lettered
    BROKEN.clear()

    change = operate(engine, second.run_id, RECREATE)
    assert change.created is not None
    run = settled(engine, change.created)

    assert change.kept == KeptCounts(steps=1, checkpoint=DONE, calls=DONE + 1)
    assert (run.status, PAID) == ("COMPLETED", ALL)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_anew_pays_for_the_failed_step_again_and_for_no_other(
    engine: Engine, unique: str, size: int
) -> None:
    dead = given_up(engine, unique, size)
    paid = [*PAID]
    BROKEN.clear()

    request = OperationRequest(Operation.RECREATE, actor="ada", anew=True)
    change = operate(engine, dead.run_id, request)
    assert change.created is not None
    run = settled(engine, change.created)

    assert change.kept == KeptCounts(steps=1)
    assert (run.status, PAID) == ("COMPLETED", paid + ALL[1:])


def test_anew_where_nothing_is_kept_is_refused_and_changes_nothing(
    engine: Engine, unique: str
) -> None:
    BROKEN.clear()
    request = StartRequest("paid", {"size": SMALL}, labels={"of": unique})
    run = settled(engine, start_run(engine, request).manifest)

    anew = OperationRequest(Operation.RECREATE, actor="ada", anew=True)
    with pytest.raises(InvalidRequestError, match="anew is True; allowed: nothing here"):
        operate(engine, run.run_id, anew)

    assert get_run(engine, run.run_id) == run
    wanted = RunFilter(label=f"of:{unique}")
    assert batch(engine, anew, wanted, limit=5).changed == 1  # whose runs a filter found


def test_a_batch_sums_up_what_its_runs_keep(engine: Engine, unique: str) -> None:
    dead = [given_up(engine, unique, size) for size in (SMALL, LARGE)]
    BROKEN.clear()
    wanted = RunFilter(label=f"of:{unique}", dead_lettered=True)
    paid = len(PAID)

    expected = batch(engine, RECREATE, wanted, limit=5, dry_run=True)
    done = batch(engine, RECREATE, wanted, limit=5)
    new = [get_run(engine, get_run(engine, run.run_id).recreated_as[0]) for run in dead]
    ended = [settled(engine, run).status for run in new]

    assert expected.kept == done.kept == KeptCounts(steps=2, checkpoint=2 * DONE, calls=8)
    assert (done.changed, ended) == (2, ["COMPLETED", "COMPLETED"])
    assert (paid, len(PAID)) == (2 * 8, 2 * len(ALL))


def test_work_whose_file_is_gone_is_done_again(engine: Engine, unique: str) -> None:
    """The files of recorded calls are looked for when they are read, and counted until then."""
    dead = given_up(engine, unique, LARGE)
    for name in files(engine, dead):
        engine.artifacts.delete(name)
    BROKEN.clear()

    change = operate(engine, dead.run_id, RECREATE)
    assert change.created is not None

    assert change.kept == KeptCounts(steps=1, calls=DONE + 1)
    assert settled(engine, change.created).status == "COMPLETED"
    assert len(PAID) == len(ALL) + 2 * DONE + 1


def test_a_run_that_was_cancelled_keeps_its_work_for_the_new_one(
    engine: Engine, unique: str
) -> None:
    BROKEN[:] = []
    request = StartRequest("paid", {"size": LARGE}, labels={"of": unique})
    run = start_run(engine, request).manifest
    execute_step(engine, Hint(run.run_id, run.position.dispatch.generation))
    operate(engine, run.run_id, OperationRequest(Operation.CANCEL, actor="ada"))

    change = operate(engine, run.run_id, RECREATE)
    assert change.created is not None

    assert change.kept == KeptCounts(steps=1)
    assert change.created.current_step == "work"
    assert (settled(engine, change.created).status, PAID) == ("COMPLETED", ALL)


def test_another_input_begins_at_the_first_step_and_keeps_nothing(
    engine: Engine, unique: str
) -> None:
    dead = given_up(engine, unique, SMALL)

    request = OperationRequest(Operation.RECREATE, actor="ada", input={"size": 11})
    change = operate(engine, dead.run_id, request)

    assert change.created is not None
    assert (change.created.current_step, change.kept) == ("collect", KeptCounts())


def test_a_pipeline_that_lost_the_step_is_named_in_one_line(
    open_engine: OpenEngine, engine: Engine, unique: str
) -> None:
    dead = given_up(engine, unique, SMALL)
    shorter = Registry("pipelines", [PipelineEntry(name="paid", steps=("collect",))])
    other = open_engine(Catalog(STEPS, shorter))

    with pytest.raises(InvalidRequestError) as refused:
        operate(other, dead.run_id, RECREATE)

    assert refused.value.message == "fromStep is 'work'; allowed: collect (no such step)."
    assert get_run(engine, dead.run_id).recreated_as == ()


# -- remote workers --------------------------------------------------------------------------------


@pytest.mark.each_store
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_remote_worker_of_the_new_run_resumes_from_the_old_ones_checkpoint(
    open_engine: OpenEngine, unique: str, size: int
) -> None:
    engine = open_engine(remote_step)
    run_id = start_run(engine, StartRequest("away", {"n": 1}, unique)).manifest.run_id
    claimed = acquire_run(engine, run_id, "vm-1")
    worker = LeaseCredentials(run_id, fence_of(claimed.manifest))
    results = json.dumps(["x" * size])
    save_checkpoint(engine, worker, iteration_count=140, phase="", partial_results=results)
    error = ErrorRecord(type="QuotaError", code="quota", message="no quota")
    fail_step(engine, worker, error, permanent=True)

    change = operate(engine, run_id, RECREATE)
    assert change.created is not None
    again = acquire_run(engine, change.created.run_id, "vm-2")
    new: Any = LeaseCredentials(change.created.run_id, fence_of(again.manifest))
    save_checkpoint(engine, new, iteration_count=1, phase="", partial_results="[]")

    assert change.kept == KeptCounts(checkpoint=140)
    assert again.partial_results == results
    assert files(engine, get_run(engine, run_id)) == ([] if size == SMALL else [*_old(again)])


def _old(claimed: Any) -> list[str]:
    return [claimed.manifest.position.checkpoint.partial_results.ref]
