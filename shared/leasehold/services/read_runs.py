"""What can be asked about runs; nothing here writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from leasehold.domain.json_text import digest
from leasehold.domain.manifest import Manifest, manifest_of
from leasehold.domain.masks import masked_event, masked_run
from leasehold.domain.timeline import timeline
from leasehold.domain.trace import TraceEvent, is_of_run
from leasehold.errors import UnreadableRunError
from leasehold.ports.documents import Query, Snapshot
from leasehold.services.engine import Engine, find_run
from leasehold.services.page_tokens import place_of, token_of

#: Lists are newest first.
_ORDER: Final = "createdAt"
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list; fields that are None are not looked at."""

    status: str | None = None
    pipeline: str | None = None
    dead_lettered: bool | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class RunPage:
    """Some runs, and where the next ones begin; None: there are no more."""

    runs: list[Manifest]
    next_page_token: str | None


def get_run(engine: Engine, run_id: str) -> Manifest:
    """Return the manifest with all that is in it, or raise UnknownRunError."""
    return find_run(engine, run_id).manifest


def read_run(engine: Engine, run_id: str) -> Manifest:
    """Return the run as everybody may see it; UnknownRunError where there is none."""
    return masked_run(get_run(engine, run_id))


def list_runs(
    engine: Engine, wanted: RunFilter, *, limit: int = 50, page_token: str | None = None
) -> RunPage:
    """Return the runs that fit, newest first.

    Raises:
        InvalidRequestError: the page token is none of ours.
    """
    mark = _mark_of(wanted)
    equal: dict[str, Any] = {
        "status": wanted.status,
        "pipeline": wanted.pipeline,
        "deadLettered": wanted.dead_lettered,
    }
    query = Query(
        "runs",
        order_by=_ORDER,
        equal={name: value for name, value in equal.items() if value is not None},
        contains=None if wanted.label is None else ("labels", wanted.label),
        descending=True,
        limit=limit + 1,  # one more tells whether there is a next page
        after=None if page_token is None else place_of(page_token, mark),
    )
    found = engine.documents.query(query)
    runs = [run for one in found[:limit] if (run := _readable(engine, one)) is not None]
    more = len(found) > limit
    return RunPage(runs, token_of(found[limit - 1], _ORDER, mark) if more else None)


def _readable(engine: Engine, found: Snapshot) -> Manifest | None:
    """Return the run, or None for one that would hide all the others of its page."""
    try:
        return manifest_of(found.ref.id, found.document)
    except UnreadableRunError as error:
        engine.log(str(error))
        return None


def _mark_of(wanted: RunFilter) -> str:
    """Return what tells the tokens of one query from those of another."""
    return digest(repr(wanted))[:8]


def read_timeline(engine: Engine, run_id: str) -> list[TraceEvent]:
    """Return all that happened to a run, oldest first, as everybody may see it."""
    return [masked_event(event) for event in timeline_of(engine, run_id)]


def timeline_of(engine: Engine, run_id: str) -> list[TraceEvent]:
    """Return all that happened to a run, oldest first; UnknownRunError where there is none.

    What an earlier run of this id left is none of it; an event that cannot be read is logged.
    """
    manifest = get_run(engine, run_id)
    stored: list[TraceEvent] = []
    after: tuple[Any, str] | None = None
    while True:
        page = engine.documents.query(Query(f"runs/{run_id}/trace", limit=_PAGE, after=after))
        events = ((found.ref.id, _readable_event(engine, found)) for found in page)
        stored += [event for name, event in events if event and is_of_run(manifest, name, event)]
        if len(page) < _PAGE:
            return timeline(manifest, stored)
        after = (None, page[-1].ref.id)


def _readable_event(engine: Engine, found: Snapshot) -> TraceEvent | None:
    """Return the event, or None for one that would hide all the others."""
    try:
        return TraceEvent.model_validate(found.document)
    except ValidationError as error:
        engine.log(f"the event {found.ref} cannot be read: {error.error_count()} problems")
        return None
