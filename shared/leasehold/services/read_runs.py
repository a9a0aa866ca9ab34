"""Reading runs: one, a page, all that match, and the timeline of one; nothing here writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from math import ceil
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from leasehold.domain.json_text import digest
from leasehold.domain.manifest import Manifest, is_run_id, manifest_of
from leasehold.domain.redaction import masked_event, masked_run
from leasehold.domain.status import RunStatus
from leasehold.domain.stored import Document
from leasehold.domain.summary import Summary, head_of, head_paths, summary_of
from leasehold.domain.timeline import timeline
from leasehold.domain.trace import TraceEvent, is_of_run
from leasehold.domain.trouble import TROUBLE_PATHS, Trouble
from leasehold.errors import InvalidRequestError, UnknownRunError, UnreadableRunError
from leasehold.frozen import dataclass
from leasehold.ports.documents import Queries, Query, Range, Snapshot
from leasehold.registry.dispatch import is_step_type
from leasehold.services.engine import Engine, find_run
from leasehold.services.paging import (
    SCAN_PAGE,
    WHOLE_RUNS,
    Place,
    place_behind,
    place_of,
    scan,
    token_of,
)
from leasehold.services.request_bounds import DEFAULT_PAGE_ITEMS, MAX_LABELS, MAX_NAME_CHARS
from leasehold.services.troubled_runs import (
    Found,
    has_trouble,
    moment_of,
    overdue,
    unannounced_runs,
)

#: Lists are newest first.
_ORDER: Final = "createdAt"

#: What no index finds is looked for in so many runs at most, so that no page takes long.
MAX_RUNS_SEARCHED: Final = 2000

#: The look at a run by its deliveries is a read of it and a query of them, a call each.
READS_A_DELIVERY: Final = 10

#: How many runs are read at once to be summaries.
SUMMARIES_PER_READ: Final = 100


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
        reason: runs that were given up for this reason.
        id_prefix: runs whose id begins so; they are listed in the order of their ids.
        trouble: runs that are in this trouble. Silent and overdue ones are listed by their alarm,
            the oldest first, and those that owe an announcement by that, the latest first.
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
    reason: str | None = None
    id_prefix: str | None = None
    trouble: Trouble | None = None

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
    limit: int = DEFAULT_PAGE_ITEMS,
    page_token: str | None = None,
) -> RunPage[Summary]:
    """Return the runs that fit in a line each, newest first; otherwise as `list_runs`.

    Nothing else of them is read. A run is left out, and logged, where that much is unreadable.
    """

    def read(found: Snapshot) -> Summary | None:
        head = _read(engine, head_of, found)
        return None if head is None else summary_of(head)

    heads = _Heads(engine, () if wanted.trouble is None else TROUBLE_PATHS)
    runs = _Runs(engine, heads, wanted)
    return _list(runs, limit=limit, page_token=page_token, read=read, most=SUMMARIES_PER_READ)


def list_runs(
    engine: Engine,
    wanted: RunFilter,
    *,
    limit: int = DEFAULT_PAGE_ITEMS,
    page_token: str | None = None,
) -> RunPage[Manifest]:
    """Return the runs that fit, with all that is in them, newest first.

    Args:
        engine: the parts.
        wanted: which runs.
        limit: how many at most; a caller's own is at most MAX_PAGE_ITEMS. A page may have fewer, or
            none, and more may come: one whose runs no index finds ends after MAX_RUNS_SEARCHED.
        page_token: of an earlier page of the same filter; None: the first page.

    Raises:
        InvalidRequestError: the page token is not one of this filter, or the filter cannot be
            used: see `query_of`.
    """
    read, runs = partial(readable, engine), _Runs(engine, engine.documents, wanted)
    return _list(runs, limit=limit, page_token=page_token, read=read, most=WHOLE_RUNS)


def _list(
    runs: _Runs,
    *,
    limit: int,
    page_token: str | None,
    read: Callable[[Snapshot], Listed | None],
    most: int,
) -> RunPage[Listed]:
    """Return a page, made of so many documents at once, at most, that none is kept any longer."""
    mark = _mark_of(runs.wanted)
    after = None if page_token is None else place_of(page_token, mark)
    queries = ceil((limit + 1) / most)  # one more tells whether there is a next page
    at_once = ceil((limit + 1) / queries) if runs.are_all_found else most
    page: list[Listed] = []
    last: Place | None = None
    left = limit
    for looked_at, (place, found) in enumerate(runs.looked_at(after, at_once), start=1):
        if found is not None and runs.fits(found):
            if not left:
                return RunPage(page, None if last is None else token_of(last, mark))
            left, last = left - 1, place
            if (run := read(found)) is not None:
                page.append(run)
        if looked_at >= max(runs.most_looked_at, limit + 1):
            return RunPage(page, token_of(place, mark))
    return RunPage(page, None)


class _Runs:
    """The runs of a filter: where they are looked for, and which of them fit.

    Args:
        engine: the parts.
        documents: reads as much of each run as is needed.
        wanted: the filter.
    """

    def __init__(self, engine: Engine, documents: Queries, wanted: RunFilter) -> None:
        self.wanted = wanted
        self._engine = engine
        self._documents = documents
        self._query = query_of(wanted)

    @property
    def are_all_found(self) -> bool:
        """Whether a store finds those that fit and no others."""
        wanted = self.wanted
        labels, reason = wanted.labels[:1], None if wanted.labels else wanted.reason
        return wanted == RunFilter(
            status=wanted.status,
            pipeline=wanted.pipeline,
            dead_lettered=wanted.dead_lettered,
            label=labels,
            since=wanted.since,
            until=wanted.until,
            reason=reason,
        )

    @property
    def most_looked_at(self) -> int:
        """How many are looked at for one page, at most."""
        is_by_delivery = self.wanted.trouble is Trouble.ANNOUNCEMENT
        return MAX_RUNS_SEARCHED // READS_A_DELIVERY if is_by_delivery else MAX_RUNS_SEARCHED

    def looked_at(self, after: Place | None, at_once: int) -> Iterator[Found]:
        """Yield each run that may fit, with its place, from the indexes that have the fewest."""
        trouble = None if self.wanted.id_prefix is not None else self.wanted.trouble
        if trouble in (Trouble.SILENT, Trouble.OVERDUE):
            return overdue(self._engine, self._documents, trouble, after, at_once)
        if trouble is Trouble.ANNOUNCEMENT:
            return unannounced_runs(self._engine, after, at_once)
        query = replace(self._query, limit=at_once, after=after)
        found_runs = scan(self._documents, query)
        return ((place_behind(found, query.order_by), found) for found in found_runs)

    def fits(self, found: Snapshot) -> bool:
        """Return whether a run that was looked at is wanted."""
        if not is_wanted(self.wanted, found.document):
            return False
        trouble = self.wanted.trouble
        return trouble is None or has_trouble(self._engine, trouble, found)


class _Heads:
    """Reads of each run what its summary needs; see `head_paths`.

    Steps that the catalog does not have, if there is one, are known once a plan has named them.
    """

    def __init__(self, engine: Engine, further: tuple[str, ...] = ()) -> None:
        self._documents = engine.documents
        self._further = further
        self._steps = set(engine.catalog.place_names)

    def query(self, query: Query) -> Sequence[Snapshot]:
        """Return what the store finds, as its `query` does."""
        while True:
            paths = (*head_paths(sorted(self._steps)), *self._further)
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


# Whether a run or a page of runs has changed: for who looks every other second.


#: What is another one after each write of a run, and what tells that it is gone.
_MARKS: Final = ("updatedAt", "traced", "position.dispatch.generation", "purgedAt")

#: What tells that a run waits for small runs, which change while it does not.
_CHILDREN: Final = ("position.children.since", "position.children.over")

#: What `is_wanted` looks at.
_FILTERED: Final = (
    "runId",
    "status",
    "pipeline",
    "labels",
    "paused",
    "cancelled",
    "deadLettered",
    "deadLetterReason",
    "currentStep",
    "createdAt",
)


def run_mark(engine: Engine, run_id: str) -> str:
    """Return a text that is another one after each write of a run, from one read of a few fields.

    The passing of time, such as the end of its lease, does not change it. That of a run that waits
    for small runs changes with each of those, which a second query reads.

    Raises:
        UnknownRunError: there is no such run.
        StoreUnavailableError: the store did not answer. Retryable.
    """
    found: Sequence[Snapshot] = ()
    if is_run_id(run_id):
        query = Query("runs", id_prefix=run_id, limit=1, fields=(*_MARKS, *_CHILDREN))
        found = engine.documents.query(query)
    for one in found:  # of all ids that begin so, the shortest comes first
        if one.ref.id == run_id and one.document.get("purgedAt") is None:
            return _digest_of([_mark_of_run(one), *_marks_of_children(engine, one)])
    raise UnknownRunError(run_id=run_id[:MAX_NAME_CHARS])


def _marks_of_children(engine: Engine, run: Snapshot) -> Iterator[str]:
    position = run.document.get("position")
    children = position.get("children") if isinstance(position, Mapping) else None
    if isinstance(children, Mapping) and not children.get("over"):
        query = Query("runs", equal={"parentId": run.ref.id}, limit=WHOLE_RUNS, fields=_MARKS)
        yield from map(_mark_of_run, scan(engine.documents, query))


def page_mark(
    engine: Engine,
    wanted: RunFilter,
    limit: int = DEFAULT_PAGE_ITEMS,
    page_token: str | None = None,
) -> str:
    """Return a text that is another one where a page of `list_runs` is, from its query.

    A few fields of each run are read; otherwise as `run_mark`, and as `list_runs`.
    """
    paths = dict.fromkeys((*_MARKS, *_FILTERED, *(TROUBLE_PATHS if wanted.trouble else ())))
    runs = _Runs(engine, _Fields(engine.documents, tuple(paths)), wanted)
    page = _list(runs, limit=limit, page_token=page_token, read=_mark_of_run, most=WHOLE_RUNS)
    return _digest_of([*page.runs, page.next_page_token or ""])


def _mark_of_run(found: Snapshot) -> str:
    position = found.document.get("position")
    dispatch = position.get("dispatch") if isinstance(position, Mapping) else None
    generation = dispatch.get("generation") if isinstance(dispatch, Mapping) else None
    written = found.document.get("updatedAt"), found.document.get("traced"), generation
    return f"{found.ref.id} {written}"


def _digest_of(marks: Sequence[str]) -> str:
    return digest("\n".join(marks))[:16]


class _Fields(NamedTuple):
    """Reads some fields of documents alone."""

    documents: Queries
    paths: tuple[str, ...]

    def query(self, query: Query) -> Sequence[Snapshot]:
        """Return what the store finds, as its `query` does."""
        return self.documents.query(replace(query, fields=self.paths))


def matching_runs(engine: Engine, wanted: RunFilter) -> Iterator[Manifest]:
    """Yield all runs that fit, in the order of a list, read page by page."""
    runs = _Runs(engine, engine.documents, wanted)
    for _, found in runs.looked_at(None, WHOLE_RUNS):
        if found is None or not runs.fits(found):
            continue
        if (run := readable(engine, found)) is not None:
            yield run


def query_of(wanted: RunFilter) -> Query:
    """Return what a store is asked for; `is_wanted` looks at the rest of the filter.

    More indexes would find more at once, and cost each run that is ever started.

    Raises:
        InvalidRequestError: no time is between its times, or no run can have such labels, or an id
            that begins so.
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
    if wanted.id_prefix is not None:
        if not is_run_id(wanted.id_prefix):
            allowed = "the beginning of the id of a run"
            value = wanted.id_prefix[:MAX_NAME_CHARS]
            raise InvalidRequestError(field="idPrefix", value=value, allowed=allowed)
        return Query("runs", id_prefix=wanted.id_prefix)
    equal: dict[str, Any] = {
        "status": wanted.status,
        "pipeline": wanted.pipeline,
        "deadLettered": wanted.dead_lettered,
    }
    if wanted.trouble is Trouble.RETRYING:
        equal |= {"status": RunStatus.ERROR.value, "deadLettered": False}
    if equal["status"] is not None and not wanted.labels:  # cancelled ones stay there
        equal["cancelled"] = bool(wanted.cancelled)
    if wanted.reason is not None:  # labels have no index together with the reasons
        is_over = wanted.dead_lettered is not False
        equal |= {"deadLettered": is_over} if wanted.labels else {"deadLetterReason": wanted.reason}
    has_range = wanted.since is not None or wanted.until is not None
    return Query(
        "runs",
        order_by=_ORDER,
        equal={name: value for name, value in equal.items() if value is not None},
        contains=("labels", wanted.labels[0]) if wanted.labels else None,
        range=Range(_ORDER, wanted.since, wanted.until) if has_range else None,
        descending=True,
    )


def is_wanted(wanted: RunFilter, run: Document) -> bool:
    """Return whether a run that was looked at is one that is wanted, but for its trouble."""
    if run.get("purgedAt") is not None:
        return False
    cancelled = bool(run.get("cancelled"))
    if wanted.status is not None and cancelled and not wanted.cancelled:
        return False
    looked_at = (
        (wanted.paused, bool(run.get("paused"))),
        (wanted.cancelled, cancelled),
        (wanted.step, run.get("currentStep")),
        (wanted.reason, run.get("deadLetterReason")),
    )
    if not all(value is None or value == found for value, found in looked_at):
        return False
    if wanted.id_prefix is None and wanted.trouble is None:  # its query has found the rest
        return all(label in run["labels"] for label in wanted.labels[1:])
    return _has_indexed_part(wanted, run)


def _has_indexed_part(wanted: RunFilter, run: Document) -> bool:
    """Return whether a run fits that was not found by its time, and what else has an index so."""
    compared = (
        (wanted.status, run.get("status")),
        (wanted.pipeline, run.get("pipeline")),
        (wanted.dead_lettered, bool(run.get("deadLettered"))),
    )
    if run.get("createdAt") is None:  # a lane, which is in no list
        return False
    began = moment_of(run["createdAt"])
    return (
        all(value is None or value == found for value, found in compared)
        and all(label in run.get("labels", ()) for label in wanted.labels)
        and (wanted.since is None or (began is not None and wanted.since <= began))
        and (wanted.until is None or (began is not None and began < wanted.until))
        and (wanted.id_prefix is None or str(run.get("runId")).startswith(wanted.id_prefix))
    )


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
