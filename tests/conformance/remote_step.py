"""An engine whose steps are done by remote workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from leasehold import PipelineEntry, Registry, StepDispatchEntry
from leasehold.ports.documents import Documents
from leasehold.registry.pipelines import Catalog
from leasehold.services.engine import Engine
from tests.worlds.engines import engine_on_store


@contextmanager
def engine_of_remote_step(documents: Documents, folder: Path) -> Iterator[Engine]:
    """Wire one on these documents, with artifacts below the folder.

    Its pipeline `away` has the step of that name alone; `far` has `farther` after it.
    """
    steps = [
        StepDispatchEntry(
            step_type=name,
            handler="remote",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
        )
        for name in ("away", "farther")
    ]
    pipelines = [
        PipelineEntry(name="away", steps=("away",)),
        PipelineEntry(name="far", steps=("away", "farther")),
    ]
    catalog = Catalog(steps=Registry("dispatch", steps), pipelines=Registry("pipelines", pipelines))
    environ = {"LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts"}
    with engine_on_store(environ, catalog=catalog, documents=documents) as engine:
        yield engine
