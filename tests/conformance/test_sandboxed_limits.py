"""A handler in its own process takes a limit through its worker."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from leasehold import Limit, PipelineEntry, Registry, StepDispatchEntry
from leasehold.bootstrap import boot
from leasehold.domain.lowered_limit import LoweredLimit, lowered_ref
from leasehold.domain.slots import Slot, slot_ref
from leasehold.ports.documents import Documents
from leasehold.registry.pipelines import Catalog
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run

pytestmark = pytest.mark.one_store

STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="asks",
            handler="tests.conformance.limited_calls:asks",
            agent_timeout=timedelta(seconds=60),
            dispatch_deadline=timedelta(seconds=120),
            limits=(Limit("provider:{given.model}", at_once=1, per_call=True),),
        ),
        StepDispatchEntry(
            step_type="is_refused",
            handler="tests.conformance.limited_calls:is_refused",
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
def test_its_slot_is_taken_for_the_block_and_free_after_it(
    documents: Documents, tmp_path: Path, unique: str
) -> None:
    settings = {"LEASEHOLD_ARTIFACTS": f"file://{tmp_path}"}
    catalog = Catalog(steps=STEPS, pipelines=PIPELINES)
    bundle = boot(settings, catalog=catalog, documents=documents)
    try:
        started = start_run(bundle.engine, StartRequest("asks", {"model": unique}))
        run_id = started.manifest.run_id

        outcome = execute_step(bundle.engine, Hint(run_id, 1))

        assert outcome == "completed"
        calls = get_run(bundle.engine, run_id).steps["asks"].calls
        assert calls is not None
        assert calls.made == 2
        found = documents.get(slot_ref(f"provider:{unique}", 0))
        assert found is not None
        slot = Slot.model_validate(found.document)
        assert (slot.run_id, slot.key) == ("", f"provider:{unique}")
    finally:
        bundle.processes.close()
        bundle.engine.leases.close()


@pytest.mark.sandboxed
def test_a_refusal_in_its_block_reaches_its_worker(
    documents: Documents, tmp_path: Path, unique: str
) -> None:
    settings = {"LEASEHOLD_ARTIFACTS": f"file://{tmp_path}"}
    bundle = boot(settings, catalog=Catalog(steps=STEPS, pipelines=PIPELINES), documents=documents)
    try:
        started = start_run(bundle.engine, StartRequest("is_refused", {"model": unique}))

        assert execute_step(bundle.engine, Hint(started.manifest.run_id, 1)) == "completed"

        found = documents.get(lowered_ref(f"busy:{unique}"))
        assert found is not None
        assert LoweredLimit.model_validate(found.document).share == 0.5
    finally:
        bundle.processes.close()
        bundle.engine.leases.close()
