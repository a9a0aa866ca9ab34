"""Reading runs: one, a page, all that match, and the timeline of one; nothing here writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from math import ceil
from typing import Any, Final, Generic, TypeVar

from pydantic import ValidationError

from leasehold.domain.json_text import digest
from leasehold.domain.manifest import Manifest, manifest_of
from leasehold.domain.redaction import masked_event, masked_run
from leasehold.domain.stored import Document
from leasehold.domain.summary import Summary, head_of, head_paths, summary_of
from leasehold.domain.timeline import timeline
from leasehold.domain.trace import TraceEvent, is_of_run
from leasehold.errors import InvalidRequestError, UnreadableRunError
from leasehold.ports.documents import Queries, Query, Range, Snapshot
from leasehold.registry.dispatch import is_step_type
from leasehold.services.engine import Engine, find_run
from leasehold.services.limits import DEFAULT_PAGE, MAX_LABELS
from leasehold.services.paging import (
    SCAN_PAGE,
    WHOLE_RUNS,
    Place,
    place_behind,
    place_of,
    scan,
    token_of,
)

#: Lists are newest first.
_ORDER: Final = "createdAt"

#: What no index finds is looked for in so many runs at most, so that no page takes long.
MAX_LOOKED_AT: Final = 2000

#: How many runs are read at once to be summaries.
SUMMARIES: Final = 100


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list; fields that are None are not looked at, and all others must hold.

    Args:
        status: runs in this status, but for those that were cancelled in it and stay so for
            ever: `cancelled` asks for them. A run that was given up is in ERROR.
        pipeline: runs of this pipeline.
        dead_lettered: whether they were given up.
        label: `key:value`, which they have; of several, they have each. A store looks for the
            first, the others are looked at in what it finds. Kept: each once, one alone as a text.
        paused: whether they are paused.
        cancelled: whether they were cancelled.
        since: runs that began then or later.
        until: runs that began before then.
        step: runs that are at this step, or ended there.
    """

    status: str | None = None
    pipeline: str | None = None
    dead_lettered: bool | None = None
    label: str | tuple[str, ...] | None = None
    paused: bool | None = None
    cancelled: bool | None = None
    since: datetime | None = None
    until: datetime | None = None
    step: str | None = None

    def __post_init__(self) -> None:
        labels = self.labels
        object.__setattr__(self, "label", labels if len(labels) > 1 else next(iter(labels), None))

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, each once, in the order in which they were given."""
        given = (self.label,) if isinstance(self.label, str) else self.label or ()
        return tuple(dict.fromkeys(given))


Listed = TypeVar("Listed")


@dataclass(frozen=True, slots=True)
class RunPage(Generic[Listed]):
    """Some runs, and where the next ones begin; None: there are no more."""

    runs: list[Listed]
    next_page_token: str | None


def get_run(engine: Engine, run_id: str) -> Manifest:
    """Return the manifest with all that is in it, or raise UnknownRunError."""
    return find_run(engine, run_id).manifest


def read_run(engine: Engine, run_id: str) -> Manifest:
    """Return the run for readers; UnknownRunError where there is none."""
    return masked_run(get_run(engine, run_id))


def list_summaries(
    engine: Engine,
    wanted: RunFilter,
    *,
    limit: int = DEFAULT_PAGE,
    page_token: str | None = None,
) -> RunPage[Summary]:
    """Return the runs that fit in a line each, newest first; otherwise as `list_runs`.

    Nothing else of them is read. A run is left out, and logged, where that much is unreadable.
    """

    def read(found: Snapshot) -> Summary | None:
        head = _read(engine, head_of, found)
        return None if head is None else summary_of(head)

    heads = _Heads(engine)
    return _list(heads, wanted, limit=limit, page_token=page_token, read=read, most=SUMMARIES)


def list_runs(
    engine: Engine,
    wanted: RunFilter,
    *,
    limit: int = DEFAULT_PAGE,
    page_token: str | None = None,
) -> RunPage[Manifest]:
    """Return the runs that fit, with all that is in them, newest first.

    Args:
        engine: the parts.
        wanted: which runs.
        limit: how many at most; a caller's own is at most MAX_PAGE. A page may have fewer, or
            none, and more may come: one whose runs no index finds ends after MAX_LOOKED_AT.
        page_token: of an earlier page of the same filter; None: the first page.

    Raises:
        InvalidRequestError: the page token is not one of this filter, or the filter cannot be
            used: see `query_of`.
    """
    read = partial(readable, engine)
    return _list(
        engine.documents, wanted, limit=limit, page_token=page_token, read=read, most=WHOLE_RUNS
    )


def _list(
    documents: Queries,
    wanted: RunFilter,
    *,
    limit: int,
    page_token: str | None,
    read: Callable[[Snapshot], Listed | None],
    most: int,
) -> RunPage[Listed]:
    """Return a page, made of so many documents at once, at most, that none is kept any longer."""
    mark = _mark_of(wanted)
    after = None if page_token is None else place_of(page_token, mark)
    queries = ceil((limit + 1) / most)  # one more tells whether there is a next page
    at_once = ceil((limit + 1) / queries) if wanted == _indexed_part(wanted) else most
    page: list[Listed] = []
    last: Place | None = None
    left = limit
    query = replace(query_of(wanted), limit=at_once, after=after)
    for looked_at, found in enumerate(scan(documents, query), start=1):
        if is_wanted(wanted, found.document):
            if not left:
                return RunPage(page, None if last is None else token_of(last, mark))
            left, last = left - 1, place_behind(found, _ORDER)
            if (run := read(found)) is not None:
                page.append(run)
        if looked_at >= max(MAX_LOOKED_AT, limit + 1):
            return RunPage(page, token_of(place_behind(found, _ORDER), mark))
    return RunPage(page, None)


class _Heads:
    """Reads of each run what its summary needs; see `head_paths`.

    Steps that the catalog does not have, if there is one, are known once a plan has named them.
    """

    def __init__(self, engine: Engine) -> None:
        self._documents = engine.documents
        self._steps = {step.step_type for step in engine.catalog.steps}

    def query(self, query: Query) -> Sequence[Snapshot]:
        """Return what the store finds, as its `query` does."""
        while True:
            paths = head_paths(sorted(self._steps))
            page = self._documents.query(replace(query, fields=paths))
            new = {step for found in page for step in _steps_of(found.document)} - self._steps
            if not new:
                return page
            self._steps |= new


def _steps_of(run: Document) -> Iterator[str]:
    """Yield the steps of a run; others than a step can be called are left to its reader."""
    plan = run.get("plan")
    for step in plan if isinstance(plan, list) else ():
        if isinstance(step, str) and is_step_type(step):
            yield step


def matching_runs(engine: Engine, wanted: RunFilter) -> Iterator[Manifest]:
    """Yield all runs that fit, newest first, read page by page."""
    for found in scan(engine.documents, replace(query_of(wanted), limit=WHOLE_RUNS)):
        fits = is_wanted(wanted, found.document)
        if fits and (run := readable(engine, found)) is not None:
            yield run


def query_of(wanted: RunFilter) -> Query:
    """Return what a store is asked for; `is_wanted` looks at the rest of the filter.

    More indexes would find more at once, and cost each run that is ever started.

    Raises:
        InvalidRequestError: no time is between its times, or no run can have such labels.
    """
    for label in wanted.labels:
        if label and ":" not in label:
            raise InvalidRequestError(field="label", value=label, allowed="key:value")
    if wanted.since is not None and wanted.until is not None and wanted.since >= wanted.until:
        value, allowed = wanted.until.isoformat(), f"a time after {wanted.since.isoformat()}"
        raise InvalidRequestError(field="until", value=value, allowed=allowed)
    if len(wanted.labels) > MAX_LABELS:
        allowed = f"at most {MAX_LABELS} labels"
        raise InvalidRequestError(field="label", value=len(wanted.labels), allowed=allowed)
    equal: dict[str, Any] = {
        "status": wanted.status,
        "pipeline": wanted.pipeline,
        "deadLettered": wanted.dead_lettered,
    }
    has_range = wanted.since is not None or wanted.until is not None
    return Query(
        "runs",
        order_by=_ORDER,
        equal={name: value for name, value in equal.items() if value is not None},
        contains=("labels", wanted.labels[0]) if wanted.labels else None,
        range=Range(_ORDER, wanted.since, wanted.until) if has_range else None,
        descending=True,
    )


def _indexed_part(wanted: RunFilter) -> RunFilter:
    """Return the part of a filter that the query of a store tells."""
    return replace(wanted, label=wanted.labels[:1], paused=None, cancelled=None, step=None)


def is_wanted(wanted: RunFilter, run: Document) -> bool:
    """Return whether a run that the query of a filter found is one that is wanted."""
    if run.get("purgedAt") is not None:
        return False
    cancelled = bool(run.get("cancelled"))
    if wanted.status is not None and cancelled and not wanted.cancelled:
        return False
    looked_at = (
        (wanted.paused, bool(run.get("paused"))),
        (wanted.cancelled, cancelled),
        (wanted.step, run.get("currentStep")),
    )
    has_labels = all(label in run["labels"] for label in wanted.labels[1:])
    return has_labels and all(value is None or value == found for value, found in looked_at)


def readable(engine: Engine, found: Snapshot) -> Manifest | None:
    """Return the run, or None for one that would hide all the others of its page."""
    return _read(engine, manifest_of, found)


def _read(
    engine: Engine, read: Callable[[str, Document], Listed], found: Snapshot
) -> Listed | None:
    try:
        return read(found.ref.id, found.document)
    except UnreadableRunError as error:
        engine.listeners.log(str(error))
        return None


def _mark_of(wanted: RunFilter) -> str:
    """Return what tells the tokens of one query from those of another.

    Times bound the same list, and one that was given as an age is another one each time. Labels
    are the same in any order.
    """
    labels = tuple(sorted(wanted.labels))
    return digest(repr(replace(wanted, label=labels, since=None, until=None)))[:8]


def read_timeline(engine: Engine, run_id: str) -> list[TraceEvent]:
    """Return all that happened to a run, oldest first, for readers."""
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
        engine.listeners.log(
            f"the event {found.ref} cannot be read: {error.error_count()} problems"
        )
        return None
