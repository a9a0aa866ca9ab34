"""What can be asked about runs; nothing here writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from leasehold.domain.manifest import Manifest, run_ref
from leasehold.domain.timeline import timeline
from leasehold.domain.trace import TraceEvent
from leasehold.errors import UnknownRunError
from leasehold.ports.documents import Query
from leasehold.services.engine import Engine

_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list; fields that are None are not looked at."""

    status: str | None = None
    pipeline: str | None = None
    dead_lettered: bool | None = None
    label: str | None = None


def get_run(engine: Engine, run_id: str) -> Manifest:
    """Return the manifest, or raise UnknownRunError."""
    found = engine.documents.get(run_ref(run_id))
    if found is None:
        raise UnknownRunError(run_id=run_id)
    return Manifest.model_validate(found.document)


def list_runs(engine: Engine, wanted: RunFilter, *, limit: int = 50) -> list[Manifest]:
    """Return the runs that fit, newest first."""
    equal: dict[str, Any] = {
        "status": wanted.status,
        "pipeline": wanted.pipeline,
        "deadLettered": wanted.dead_lettered,
    }
    query = Query(
        "runs",
        order_by="createdAt",
        equal={name: value for name, value in equal.items() if value is not None},
        contains=None if wanted.label is None else ("labels", wanted.label),
        descending=True,
        limit=limit,
    )
    return [Manifest.model_validate(found.document) for found in engine.documents.query(query)]


def timeline_of(engine: Engine, run_id: str) -> list[TraceEvent]:
    """Return all that happened to a run, oldest first; UnknownRunError where there is none."""
    manifest = get_run(engine, run_id)
    stored: list[TraceEvent] = []
    after: tuple[Any, str] | None = None
    while True:
        page = engine.documents.query(Query(f"runs/{run_id}/trace", limit=_PAGE, after=after))
        stored += [TraceEvent.model_validate(found.document) for found in page]
        if len(page) < _PAGE:
            return timeline(manifest, stored)
        after = (None, page[-1].ref.id)
