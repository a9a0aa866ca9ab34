"""A handler in its own process takes a limit through its worker."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leasehold import Limit, PipelineEntry, Registry, StepDispatchEntry
from leasehold.domain.lowered_limit import LoweredLimit, lowered_ref
from leasehold.domain.slots import Slot, slot_ref
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run

pytestmark = [pytest.mark.one_store, pytest.mark.catalog(__name__)]

STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="asks",
            handler="tests.worlds.catalogs.limited_calls:asks",
            agent_timeout=timedelta(seconds=60),
            dispatch_deadline=timedelta(seconds=120),
            limits=(Limit("provider:{given.model}", at_once=1, per_call=True),),
        ),
        StepDispatchEntry(
            step_type="is_refused",
            handler="tests.worlds.catalogs.limited_calls:is_refused",
            agent_timeout=timedelta(seconds=60),
            dispatch_deadline=timedelta(seconds=120),
            limits=(Limit("busy:{given.model}", at_once=8, per_call=True, adaptive=True),),
        ),
    ],
)
PIPELINES = Registry(
    "pipelines", [PipelineEntry(name=one.step_type, steps=(one.step_type,)) for one in STEPS]
)


@pytest.mark.sandboxed
def test_its_slot_is_taken_for_the_block_and_free_after_it(engine: Engine, unique: str) -> None:
    run_id = start_run(engine, StartRequest("asks", {"model": unique})).manifest.run_id

    outcome = execute_step(engine, Hint(run_id, 1))

    assert outcome == "completed"
    calls = get_run(engine, run_id).steps["asks"].calls
    assert calls is not None
    assert calls.made == 2
    found = engine.documents.get(slot_ref(f"provider:{unique}", 0))
    assert found is not None
    slot = Slot.model_validate(found.document)
    assert (slot.run_id, slot.key) == ("", f"provider:{unique}")


@pytest.mark.sandboxed
def test_a_refusal_in_its_block_reaches_its_worker(engine: Engine, unique: str) -> None:
    run_id = start_run(engine, StartRequest("is_refused", {"model": unique})).manifest.run_id

    assert execute_step(engine, Hint(run_id, 1)) == "completed"

    found = engine.documents.get(lowered_ref(f"busy:{unique}"))
    assert found is not None
    assert LoweredLimit.model_validate(found.document).share == 0.5
