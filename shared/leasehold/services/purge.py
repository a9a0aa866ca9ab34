"""Purging: ended runs that are old go, with their trace, their values and their files.

First a run is marked, in one commit that holds only if the run was not changed since it was
looked at: from then on it is invisible. Then its deliveries are deleted, its artifacts, its trace,
and the marked document at last; its entry in the ledger stays. A purge that is cut off in between
leaves a mark, and the next purge marks the run anew and deletes the rest.

Once a run is gone its key may begin another life of its id, while a purge that was slower is still
at work. So all that a purge deletes has the mark of the life that it began to purge
(`domain/artifact_name.py`), and the document is deleted only as that purge marked it.

A run goes after those that were recreated from it: they may use its values. That holds for a
marked one too: a version that knows of no marks may have recreated it since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from leasehold.domain import lifecycle
from leasehold.domain.announcing import GIVEN_UP_AFTER
from leasehold.domain.artifact_name import folder_of_life
from leasehold.domain.children import items_of
from leasehold.domain.collections import DELIVERIES
from leasehold.domain.delivery import DeliveryState, delivery_of
from leasehold.domain.lifecycle.purge import goes_with
from leasehold.domain.manifest import Manifest, run_ref
from leasehold.domain.recorded_calls import may_have_left_calls, prefix_of_life
from leasehold.domain.trace import mark_in
from leasehold.errors import (
    InvalidRequestError,
    LeaseholdError,
    PurgeCutOffError,
    UnreadableDeliveryError,
    VersionConflictError,
)
from leasehold.ports.documents import KnownRun, Query, Range, Snapshot
from leasehold.services.archive_run import delete_calls
from leasehold.services.engine import Engine
from leasehold.services.paging import SCAN_PAGE, WHOLE_RUNS, pages, place_behind, scan
from leasehold.services.read_runs import RunFilter, is_wanted, query_of, readable

#: How many runs are deleted at once.
PURGES_AT_ONCE: Final = 4

#: Why a run is kept that is old enough: one that was recreated from it is there.
NEEDED: Final = "needed"

#: Why a run is marked and not deleted: an announcement of it is due, as a person has just asked.
ANNOUNCING: Final = "announcing"

Found = Iterator[Snapshot]


@dataclass(slots=True)
class PurgeResult:
    """The result of a purge.

    Args:
        matched: how many runs fit that ended before the time.
        purged: how many runs were deleted; in a dry run, none.
        kept: run and code of each that fits and stays.
    """

    matched: int
    purged: int
    kept: list[tuple[str, str]]


def purge(
    engine: Engine, wanted: RunFilter, *, ended_before: datetime, dry_run: bool = False
) -> PurgeResult:
    """Delete the runs that fit and ended before then, newest first.

    Args:
        engine: the parts.
        wanted: which runs.
        ended_before: only runs that ended before this time.
        dry_run: delete nothing.

    Raises:
        InvalidRequestError: no run can have begun since the filter's time and ended before.
        PurgeCutOffError: a store did not answer; what was deleted is gone. Give it again.
    """
    work = Purge(engine, wanted, ended_before)
    found = scan(engine.documents, work.query)
    if dry_run:
        work.preview(found)
    else:
        work.delete(found)
    return work.result()


class Purge:
    """One purge: which runs it looks for, and what it came to so far.

    Args:
        engine: the parts.
        wanted: which runs.
        ended_before: only runs that ended before this time.
        marked_before: leave what was marked later to the purge that did it; None: leave none.
    """

    def __init__(
        self,
        engine: Engine,
        wanted: RunFilter,
        ended_before: datetime,
        *,
        marked_before: datetime | None = None,
    ) -> None:
        if wanted.since is not None and wanted.since >= ended_before:
            value, allowed = wanted.since.isoformat(), f"a time before {ended_before.isoformat()}"
            raise InvalidRequestError(field="since", value=value, allowed=allowed)
        for field, given in (("idPrefix", wanted.id_prefix), ("trouble", wanted.trouble)):
            if given is not None:  # their lists are not the newest first
                raise InvalidRequestError(field=field, value=given, allowed="none for a purge")
        before = ended_before if wanted.until is None else min(wanted.until, ended_before)
        self._engine = engine
        self._wanted = wanted
        self._ended_before = ended_before
        self._marked_before = marked_before
        self._deleted: list[str] = []  # by several threads, which only append
        self._parents: list[str] = []  # runs that others were recreated from, the newest first
        self.query: Query = replace(query_of(replace(wanted, until=before)), limit=WHOLE_RUNS)
        self._matched = 0
        self._kept: list[tuple[str, str]] = []
        self._owing: frozenset[str] | None = None  # runs with an announcement that is still due

    def result(self) -> PurgeResult:
        """Return what it came to so far."""
        return PurgeResult(self._matched, len(self._deleted), self._kept)

    def preview(self, found: Found) -> None:
        """Find out what would be deleted, and what would stay."""
        gone: set[str] = set()
        for known in self._fitting(found):
            run = known.manifest
            if all(child in gone or self._is_gone(child) for child in run.recreated_as):
                gone.add(run.run_id)
            else:
                self._kept.append((run.run_id, NEEDED))

    def delete(self, found: Found) -> None:
        """Delete what fits: side by side, but for runs that others were recreated from."""
        calls = self._calls(found)
        try:
            self._engine.threads.side_by_side(lambda: next(calls, None), PURGES_AT_ONCE)
            for run_id in self._parents:
                self._delete_parent(run_id)
            if self._deleted:
                self._engine.documents.give_back_space()
        except LeaseholdError as error:
            if not error.retryable:
                raise
            purged = len(self._deleted)
            raise PurgeCutOffError(purged=purged, problem=error.message) from error

    def _calls(self, found: Found) -> Iterator[Callable[[], None]]:
        for known in self._fitting(found):
            if known.manifest.recreated_as:
                self._parents.append(known.manifest.run_id)
            else:
                yield partial(self._delete, known)

    def _fitting(self, found: Found) -> Iterator[KnownRun]:
        """Yield the runs that are to go, and those that a purge before did not get to delete."""
        for one in found:
            is_marked = one.document.get("purgedAt") is not None
            if not is_marked and not is_wanted(self._wanted, one.document):
                continue
            run = readable(self._engine, one)
            if run is None or not self._is_to_go(run, one.read_at):
                continue
            self._matched += 1
            yield KnownRun(run, one)

    def _is_to_go(self, run: Manifest, now: datetime) -> bool:
        if run.purged_at is None:
            is_over = lifecycle.is_purgeable(run, self._ended_before)
            return is_over and not self._owes_announcements(run, now)
        return self._marked_before is None or run.purged_at < self._marked_before

    def _owes_announcements(self, run: Manifest, now: datetime) -> bool:
        if run.announcement is None:
            return False
        if is_still_to_be_owed(self._engine, run, now):
            return True
        if self._owing is None:
            self._owing = runs_that_owe(self._engine, now)
        return run.run_id in self._owing

    def _delete_parent(self, run_id: str) -> None:
        found = self._engine.documents.get(run_ref(run_id))
        run = None if found is None else readable(self._engine, found)
        if found is None or run is None:
            return  # another purge was faster
        if all(map(self._is_gone, run.recreated_as)):
            self._delete(KnownRun(run, found))
        else:
            self._kept.append((run_id, NEEDED))

    def _is_gone(self, run_id: str) -> bool:
        found = self._engine.documents.get(run_ref(run_id))
        return found is None or found.document.get("purgedAt") is not None

    def _delete(self, known: KnownRun) -> None:
        """Delete one run; one that cannot be keeps no other from it."""
        run_id = known.manifest.run_id
        try:
            is_gone = delete_run(self._engine, known, self._ended_before)
        except VersionConflictError as error:  # recreated meanwhile, or another purge has it
            self._kept.append((run_id, error.code))
        except LeaseholdError as error:
            if error.retryable:
                raise
            self._engine.listeners.log(f"run {run_id} is not purged: {error}")
            self._kept.append((run_id, error.code))
        else:
            if is_gone:
                self._deleted.append(run_id)
            else:
                self._kept.append((run_id, ANNOUNCING))


def delete_run(engine: Engine, known: KnownRun, ended_before: datetime) -> bool:
    """Mark the run, anew where it is, and delete all there is of it.

    Returns:
        Whether it is gone; if not, an announcement of it was requested meanwhile, and the
        rest is deleted by the first purge after that is sent.

    Raises:
        VersionConflictError: it has changed since; nothing was deleted, or another purge
            marked it anew and deletes the rest.
        ArtifactNameError, StoreUnavailableError: it is marked, and not all of it is deleted.
    """
    run_id = known.manifest.run_id
    mark = partial(lifecycle.purge, ended_before=ended_before)
    marked = engine.commit(run_id, mark, known=known)
    run = marked.answer.manifest
    if not delete_deliveries(engine, run):
        return False
    if any(place.has_children for place in (run.places or {}).values()):
        _delete_children(engine, run)
    engine.artifacts.delete(folder_of_life(run))
    _delete_trace(engine, run)
    if may_have_left_calls(run):
        delete_calls(engine.documents, run_id, prefix_of_life(run.life))
    engine.documents.delete(run_ref(run_id), if_version=marked.snapshot)
    return True


def _delete_children(engine: Engine, run: Manifest) -> None:
    """Delete the lanes of a run, whose end came before its own, and its items.

    A run of another pipeline that it waited for is listed, and goes by itself.
    """
    query = Query("runs", equal={"parentId": run.run_id}, limit=WHOLE_RUNS)
    for found in list(scan(engine.documents, query)):
        child = readable(engine, found)
        if child is None or child.is_listed or child.parent is None:
            continue
        if child.parent.life == run.life:
            delete_run(engine, KnownRun(child, found), _ANY_TIME)
    of_life = Query(items_of(run.run_id), id_prefix=f"{run.life}-", limit=SCAN_PAGE, fields=("at",))
    for page in pages(engine.documents, of_life):
        engine.documents.delete_all([one.ref for one in page])


#: All runs that ended did so before then.
_ANY_TIME: Final = datetime.max.replace(tzinfo=UTC)


def _delete_trace(engine: Engine, run: Manifest) -> None:
    query = Query(f"{run_ref(run.run_id)}/trace", limit=SCAN_PAGE)
    for page in pages(engine.documents, query):
        named = ((mark_in(one.ref.id), one) for one in page)
        own = [one.ref for mark, one in named if goes_with(run, mark, one.document.get("at"))]
        engine.documents.delete_all(own)


# The deliveries of runs that are to go: one that is still owed keeps its run, all others go.


_OWED: Final = (DeliveryState.DUE, DeliveryState.CLAIMED)


def runs_that_owe(engine: Engine, now: datetime) -> frozenset[str]:
    """Return the runs with an announcement that is still due.

    An announcement is given up after a day, or what PIPELINE_DELIVERY_GIVE_UP_S says. One that is
    older keeps no run: where nothing sends announcements, runs would be kept forever.
    """
    since = Range("createdAt", at_least=now - _given_up_after(engine))
    return frozenset(
        str(found.document.get("runId"))
        for state in _OWED
        for found in scan(
            engine.documents,
            Query(
                DELIVERIES.name,
                order_by="createdAt",
                equal={"state": state.value},
                range=since,
                descending=True,
                limit=SCAN_PAGE,
            ),
        )
    )


def is_still_to_be_owed(engine: Engine, run: Manifest, now: datetime) -> bool:
    """Return whether the process that ended a run left its announcement to one with a catalog."""
    told = run.announcement
    return told is not None and told.pending and now - told.at < _given_up_after(engine)


def delete_deliveries(engine: Engine, run: Manifest) -> bool:
    """Delete the deliveries of a run that is marked, and return whether all are gone.

    One that was requested meanwhile stays until it is sent. Those of the next life of the
    run's id stay too: this purge is late then, and another one was faster.
    """
    query = Query(
        DELIVERIES.name,
        order_by="createdAt",
        equal={"runId": run.run_id},
        descending=True,
        limit=SCAN_PAGE,
    )
    mine = (found for found in scan(engine.documents, query) if _goes_with(run, found))
    left = [found.ref for found in mine if not _delete(engine, found)]
    return not left


def _goes_with(run: Manifest, found: Snapshot) -> bool:
    return goes_with(run, found.document.get("mark"), found.document.get("createdAt"))


def _delete(engine: Engine, found: Snapshot) -> bool:
    """Delete a delivery unless it is to be sent, or has changed since."""
    if _is_owed(engine, found):
        return False
    try:
        engine.documents.delete(found.ref, if_version=found)
    except VersionConflictError:
        return False
    return True


def _is_owed(engine: Engine, found: Snapshot) -> bool:
    try:
        delivery = delivery_of(found.ref, found.document)
    except UnreadableDeliveryError:  # it cannot be sent
        return False
    is_young = found.read_at - delivery.due_since < _given_up_after(engine)
    return delivery.state in _OWED and is_young


def _given_up_after(engine: Engine) -> timedelta:
    return max(engine.rules.delivery.give_up_after, GIVEN_UP_AFTER)


# Retention: the old runs that a sweep deletes.
#
# Ended runs are purged some days after their end, a few at each sweep.


#: How many old runs one sweep looks at. Most of them go; some stay, such as those that are live.
RUNS_PER_SWEEP: Final = 100

#: A run that was marked less long ago is being deleted, by another process's sweep for example.
MARKED: Final = timedelta(minutes=10)

#: How long until the next look: where there are more, and where all were looked at.
NEXT_LOOK_S: Final = 5.0
LATER_LOOK_S: Final = 60.0


#: So often what interrupted writes left is looked for: it is not deleted before it is an hour old.
TIDY_EVERY_S: Final = 3600.0


def tidy_up(engine: Engine) -> None:
    """Have the artifacts delete what interrupted writes left, each hour; what fails is for later.

    A process that stores nothing would keep it for as long as it runs.
    """
    retention, now = engine.retention, engine.clock.monotonic()
    if now - retention.tidied_at < TIDY_EVERY_S:
        return
    retention.tidied_at = now
    try:
        engine.threads.errand(engine.artifacts.tidy_up)
    except LeaseholdError as error:
        engine.listeners.log(f"what interrupted writes left is deleted later: {error}")


def forget_old_runs(engine: Engine, over_at: float) -> int:
    """Purge some of the runs that are older than LEASEHOLD_RETENTION_DAYS; return how many.

    It goes on where the last look of this process stopped, and begins again when it came to the
    oldest run: so runs that stay keep none behind them from going. Runs that cannot be purged now
    are logged, and left to a later sweep.

    Args:
        engine: the parts.
        over_at: by the monotonic time, when no further run is begun: one may have many files.
    """
    retention, now = engine.retention, engine.clock.monotonic()
    if retention.after is None or now < retention.not_before:
        return 0
    until = engine.clock.now() - retention.after
    query = query_of(RunFilter(until=until))
    work = Purge(engine, RunFilter(), until)
    begun: list[Snapshot] = []
    try:
        found = engine.documents.query(replace(query, limit=RUNS_PER_SWEEP, after=retention.place))
        if found:  # by the store's time, because this machine's may be wrong
            read_at = found[0].read_at
            until = min(until, read_at - retention.after)
            work = Purge(engine, RunFilter(), until, marked_before=read_at - MARKED)
        work.delete(_in_time(engine, found, over_at, begun))
    except LeaseholdError as error:
        engine.listeners.log(f"old runs wait for the next sweep: {error}")
    else:
        is_all = len(begun) == len(found) < RUNS_PER_SWEEP
        if is_all:
            retention.place = None
        elif begun:
            retention.place = place_behind(begun[-1], query.order_by)
        retention.not_before = now + (LATER_LOOK_S if is_all else NEXT_LOOK_S)
    return work.result().purged


def _in_time(
    engine: Engine, found: Iterable[Snapshot], over_at: float, begun: list[Snapshot]
) -> Iterator[Snapshot]:
    """Yield runs until the time is over, and note each."""
    for run in found:
        if engine.clock.monotonic() >= over_at:
            return
        begun.append(run)
        yield run
