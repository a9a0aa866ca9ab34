"""Reading runs: one, a page, all that match, and the timeline of one; nothing here writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from leasehold.services.limits import DEFAULT_PAGE
from leasehold.services.paging import SCAN_PAGE, place_behind, place_of, scan, token_of

#: Lists are newest first.
_ORDER: Final = "createdAt"
_MAX_SHOWN: Final = 128


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
    engine: Engine,
    wanted: RunFilter,
    *,
    limit: int = DEFAULT_PAGE,
    page_token: str | None = None,
) -> RunPage:
    """Return the runs that fit, newest first.

    Args:
        engine: the parts.
        wanted: which runs.
        limit: how many at most; a caller's own is at most MAX_PAGE.
        page_token: of an earlier page of the same filter; None: the first page.

    Raises:
        InvalidRequestError: the page token is not one of this filter.
    """
    mark = _mark_of(wanted)
    after = None if page_token is None else place_of(page_token, mark)
    more = limit + 1  # one more tells whether there is a next page
    found = engine.documents.query(replace(_query(wanted), limit=more, after=after))
    runs = [run for one in found[:limit] if (run := _readable(engine, one)) is not None]
    if len(found) < more:
        return RunPage(runs, None)
    return RunPage(runs, token_of(place_behind(found[limit - 1], _ORDER), mark))


def matching_runs(engine: Engine, wanted: RunFilter) -> Iterator[Manifest]:
    """Yield all runs that fit, newest first, read page by page."""
    for found in scan(engine.documents, replace(_query(wanted), limit=SCAN_PAGE)):
        if (run := _readable(engine, found)) is not None:
            yield run


def _query(wanted: RunFilter) -> Query:
    equal: dict[str, Any] = {
        "status": wanted.status,
        "pipeline": wanted.pipeline,
        "deadLettered": wanted.dead_lettered,
    }
    return Query(
        "runs",
        order_by=_ORDER,
        equal={name: value for name, value in equal.items() if value is not None},
        contains=None if wanted.label is None else ("labels", wanted.label),
        descending=True,
    )


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
    query = Query(f"runs/{run_id}/trace", limit=SCAN_PAGE)
    found = ((one.ref.id, _readable_event(engine, one)) for one in scan(engine.documents, query))
    stored = [event for name, event in found if event and is_of_run(manifest, name, event)]
    return timeline(manifest, stored)


def _readable_event(engine: Engine, found: Snapshot) -> TraceEvent | None:
    """Return the event, or None for one that would hide all the others."""
    try:
        return TraceEvent.model_validate(found.document)
    except ValidationError as error:
        engine.log(f"the event {found.ref} cannot be read: {error.error_count()} problems")
        return None
