"""An engine whose only step is done by remote workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from leasehold import PipelineEntry, Registry, StepDispatchEntry
from leasehold.bootstrap import boot
from leasehold.ports.documents import Documents
from leasehold.registry.pipelines import Catalog
from leasehold.services.engine import Engine


@contextmanager
def engine_of_remote_step(documents: Documents, folder: Path) -> Iterator[Engine]:
    """Wire one on these documents, with artifacts below the folder; its step is called `away`."""
    step = StepDispatchEntry(
        step_type="away",
        handler="remote",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
    )
    catalog = Catalog(
        steps=Registry("dispatch", [step]),
        pipelines=Registry("pipelines", [PipelineEntry(name="away", steps=("away",))]),
    )
    environ = {"LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts"}
    bundle = boot(environ, catalog=catalog, documents=documents)
    yield bundle.engine
    bundle.engine.leases.close()
