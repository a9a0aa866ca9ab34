"""The sweep: whose alarm is due, and what is done about it. Two at once do no harm."""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Callable, Container, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import chain, islice
from typing import Any, Final, NamedTuple, TypedDict

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.effect import Archive, Effect, Task, dispatch_task
from leasehold.domain.lifecycle.start import SHARDS
from leasehold.domain.manifest import Manifest, manifest_of
from leasehold.domain.slots import SlotWait
from leasehold.domain.status import Outcome, RunStatus
from leasehold.errors import LeaseholdError, StoreUnavailableError, VersionConflictError
from leasehold.ports.documents import KnownRun, Query, Range, Snapshot
from leasehold.registry.function_table import FUNCTIONS
from leasehold.services import slots
from leasehold.services.due_deliveries import DueDeliveries
from leasehold.services.engine import Engine, announce, archive, publish
from leasehold.services.idle_limits import forget_idle_limits
from leasehold.services.paging import WHOLE_RUNS, is_among, pages
from leasehold.services.pauses import continue_resumes, let_go_if_resumed
from leasehold.services.purge import forget_old_runs, tidy_up
from leasehold.services.schedules import attend_schedules
from leasehold.services.worker_notes import steps_known_elsewhere

# How long a sweep and each part of it may take, and how many runs it attends to at once.


def sweep_time(function: str) -> timedelta:
    """Return how long one sweep within this function begins to attend to runs.

    The runs that it has begun, and a queue or a store that takes all of its patience, fit into the
    other half of the function's time.
    """
    return FUNCTIONS[function].timeout / 2


SWEEP_TIME: Final = sweep_time("sweep_dead_letters")

#: How many runs are attended at once, and for how long each may be tried: one that cannot be
#: written takes one of these places for that long, and delays no other run.
ATTENDED_AT_ONCE: Final = 8
ATTEND_WITHIN_S: Final = 3.0

#: How often a sweep looks for leases that are over while it attends to everything else: the next
#: one does not begin before this one is done.
LEASE_LOOK_EVERY_S: Final = 20.0


# What a sweep did: counts for its caller, and a line of the log.


#: The `event` of the line.
SWEEP_FINISHED: Final = "SWEEP_FINISHED"
#: How much of an error's text is logged: an entry may have 256 KiB.
_MAX_DETAIL_CHARS: Final = 2000


class RunEnd(NamedTuple):
    """What became of one run; of one that was given up now, `reason` says why."""

    outcome: Outcome
    reason: str | None = None

    @classmethod
    def of(cls, change: Change) -> RunEnd:
        """Return what a change comes to."""
        reason = change.manifest.dead_letter_reason
        return cls(change.outcome, str(reason) if change.changed and reason else None)


@dataclass(slots=True)
class SweepResult:
    """What a sweep did.

    Args:
        job_id: how traces and logs name the sweep.
        recovered: runs whose lease had run out: the step is dispatched again.
        redispatched: runs whose task was lost: the step has a new one.
        still_queued: runs that wait for a worker: their task is in its queue, or may be.
        dead_lettered: runs that were given up; `by_reason` says why.
        unattended: runs and deliveries that could not be attended, and are left to the next sweep.
        reannounced: deliveries that were due, and whose message was published again.
        archived: ended runs whose archive was finished: the process that ended them could not.
        purged: ended runs that were deleted, because LEASEHOLD_RETENTION_DAYS are over.
        scheduled: runs that schedules started.
        documents_read: how many documents the store gave for runs that are due.
        more: whether further runs may be due: the time of the sweep was over.
        oldest_pending_s: how many seconds the run that waits longest in a queue waits by now, of
            those that this sweep looked at; see `note_pending`. 0: none waits.
        failure: why the store, a queue or the event bus could not be asked, if so.
    """

    job_id: str
    recovered: int = 0
    redispatched: int = 0
    still_queued: int = 0
    dead_lettered: int = 0
    unattended: int = 0
    reannounced: int = 0
    archived: int = 0
    purged: int = 0
    scheduled: int = 0
    documents_read: int = 0
    more: bool = False
    oldest_pending_s: int = 0
    failure: str | None = None
    by_reason: Counter[str] = field(default_factory=Counter)

    def count(self, end: RunEnd) -> None:
        """Count what became of one run."""
        self.recovered += end.outcome is Outcome.EXPIRED
        self.redispatched += end.outcome is Outcome.REDISPATCHED
        self.still_queued += end.outcome in (Outcome.STILL_QUEUED, Outcome.ALARM_SET)
        if end.outcome is Outcome.DEAD_LETTERED and end.reason is not None:
            self.dead_lettered += 1
            self.by_reason[end.reason] += 1

    def note_pending(self, waits_s: float) -> None:
        """Note a run that waits for a worker, and for how long it does.

        Its task was found in its queue, or the queue does not answer. It waits since the time its
        attempt was to begin: a wait that was planned, as before a retry, does not count.
        """
        self.oldest_pending_s = max(self.oldest_pending_s, int(waits_s))

    def counts(self) -> dict[str, Any]:
        """Return what callers are answered; it is logged too."""
        return {
            "deadLettered": self.dead_lettered,
            "byReason": dict(self.by_reason),
            "recovered": self.recovered,
            "redispatched": self.redispatched,
            "stillQueued": self.still_queued,
            "unattended": self.unattended,
            "reannounced": self.reannounced,
            "archived": self.archived,
            "purged": self.purged,
            "scheduled": self.scheduled,
            "documentsRead": self.documents_read,
            "more": self.more,
        }


class Report(StrEnum):
    """Whether a sweep is written as one line of the log."""

    NEVER = "never"
    IF_DUE = "if due"  # where anything was due, or something failed
    ALWAYS = "always"  # a metric of it comes back to zero, and where it is missing no sweep ran

    def wants(self, result: SweepResult) -> bool:
        """Return whether this sweep is to be written."""
        was_due = result.documents_read or result.purged or result.scheduled or result.failure
        return self is Report.ALWAYS or (self is Report.IF_DUE and bool(was_due))


def line_of(result: SweepResult) -> Mapping[str, Any]:
    """Return a sweep as a structured line of the log: Cloud Scheduler drops its answer."""
    reasons = ", ".join(f"{count} {reason}" for reason, count in result.by_reason.items())
    given_up = f"{result.dead_lettered} ({reasons})" if reasons else str(result.dead_lettered)
    waits, detail = result.oldest_pending_s, result.failure and result.failure[:_MAX_DETAIL_CHARS]
    further = [
        f"{result.reannounced} reannounced" if result.reannounced else "",
        f"{result.archived} archived" if result.archived else "",
        f"{result.purged} purged" if result.purged else "",
        f"{result.scheduled} scheduled" if result.scheduled else "",
        f"the oldest pending waits for {waits} s" if waits else "",
        detail or "",
    ]
    is_left = result.unattended or result.more or detail
    return {
        "severity": "WARNING" if is_left else "INFO",
        "message": f"sweep: {result.recovered} recovered, {result.redispatched} redispatched, "
        f"{result.still_queued} still queued, {given_up} given up, "
        + ", ".join([f"{result.unattended} unattended", *filter(None, further)]),
        "event": SWEEP_FINISHED,
        "sweepJobId": result.job_id,
        **result.counts(),
        "oldestPendingS": waits,
        "detail": detail,
    }


# The runs whose alarm is due: those with leases by themselves, and fair between the shards.


#: A lease is fresh that was over no longer ago than two sweeps of a minute's Scheduler.
FRESH: Final = timedelta(minutes=2)

#: Stores keep times to the microsecond: what is due now is below the next one.
_A_MOMENT: Final = timedelta(microseconds=1)


@dataclass(slots=True)
class DueRuns:
    """Reads the runs whose alarm is due, as they are asked for.

    Args:
        engine: the parts.
        first: the shard to begin with. Each sweep has another one: a sweep whose time is over
            would otherwise never come to those behind a long backlog.

    Attributes:
        documents_read: how many documents the store gave so far.
        failure: why the store could not be asked for all of them, if so.
    """

    engine: Engine
    first: int
    documents_read: int = 0
    failure: StoreUnavailableError | None = None
    _seen: set[str] = field(default_factory=set)

    def leased(self, is_held_up: Callable[[], bool] = lambda: False) -> Iterator[Snapshot]:
        """Yield each run that has a lease, as far as the store answers.

        Where it does not, `failure` says so.

        Args:
            is_held_up: whether one could not be written. Those whose lease was over long ago are
                what earlier sweeps could not write either: the fresh ones come before the rest.
        """
        yield from self._unseen(self._leases(is_held_up))

    def leased_lately(self) -> Iterator[Snapshot]:
        """Yield each run whose lease is over since, as `leased` does."""
        yield from self._unseen(self._fresh_leases())

    def others(self) -> Iterator[Snapshot]:
        """Yield each run that was not yielded yet, as far as the store answers."""
        yield from self._unseen(self._pages())

    def _unseen(self, found_runs: Iterator[Snapshot]) -> Iterator[Snapshot]:
        try:
            for found in found_runs:
                if found.ref.id not in self._seen:
                    self._seen.add(found.ref.id)
                    yield found
        except StoreUnavailableError as error:  # what was begun still gets its tasks
            self.failure = error  # after a deploy the index of leases may still be built

    def _leases(self, is_held_up: Callable[[], bool]) -> Iterator[Snapshot]:
        oldest_first = self._pages(status=RunStatus.IN_PROGRESS.value)
        for found in oldest_first:
            yield found
            if is_held_up():
                yield from self._fresh_leases()
                break
        yield from oldest_first

    def _fresh_leases(self) -> Iterator[Snapshot]:
        since = self.engine.clock.now() - FRESH
        return self._pages(since=since, status=RunStatus.IN_PROGRESS.value)

    def _pages(self, *, since: datetime | None = None, **equal: Any) -> Iterator[Snapshot]:
        """Yield the runs that fit, a page of each shard in turn, the oldest alarm of it first."""
        below = self.engine.clock.now() + _A_MOMENT
        shards = deque(
            pages(
                self.engine.documents,
                Query(
                    "runs",
                    order_by="alarmAt",
                    equal={"shard": (self.first + place) % SHARDS, **equal},
                    range=Range("alarmAt", at_least=since, below=below),
                    limit=WHOLE_RUNS,
                ),
            )
            for place in range(SHARDS)
        )
        while shards:
            shard = shards.popleft()
            for page in islice(shard, 1):
                self.documents_read += len(page)
                yield from page
                shards.append(shard)


# Whether the task that a run waits for is in its queue.


class TaskPresence(TypedDict):
    """What was found, as `lifecycle.on_alarm` takes it; `in_queue` is None: there is no telling."""

    generation: int
    in_queue: bool | None


def task_presence(engine: Engine, manifest: Manifest) -> TaskPresence:
    """Return whether the task of the run's dispatch is in its queue, and which dispatch it is.

    Raises:
        StoreUnavailableError: the queue did not answer.
    """
    in_queue = has_task(manifest) and engine.tasks.exists(dispatch_task(manifest))
    return {"generation": manifest.position.dispatch.generation, "in_queue": in_queue}


def has_task(manifest: Manifest) -> bool:
    """Return whether a queue should have a task of the run."""
    has_none = manifest.status in (RunStatus.IN_PROGRESS, RunStatus.BLOCKED)
    is_put_off = manifest.awaits_slot or manifest.is_resting
    waits = not (has_none or manifest.is_terminal or is_put_off)
    at = manifest.position.dispatch
    return waits and not at.remote and at.held is None


Call = Callable[[], None]


def sweep(
    engine: Engine,
    *,
    among: Container[str] | None = None,
    time: timedelta = SWEEP_TIME,
    width: int = ATTENDED_AT_ONCE,
    report: Report = Report.NEVER,
) -> SweepResult:
    """Attend to each run whose alarm is due, until none is or the time is over.

    Leases that are over come first: a step was cut short, while a run behind them may
    only wait in a long queue. They are looked for again from time to time, as further ones end
    while a sweep runs. Then come deliveries, for half of what time is left, and whatever else is
    due. Archives come last, as nothing waits for them; then, if there still is time, ended runs go
    that are too old to be kept: see `services.retention`.

    Args:
        engine: the parts.
        among: only runs of these ids, and their children; None: all.
        time: how long runs are begun to be attended.
        width: how many of them at once.
        report: whether to write what was done as one line of the log.

    Raises:
        StoreUnavailableError: the store could not be asked, or a queue or the event bus did not
            answer; whatever else was due was attended.
    """
    work = _Sweep(engine, among, time.total_seconds(), width)
    purged = scheduled = 0
    if among is None and len(engine.catalog.schedules):
        scheduled = len(attend_schedules(engine, lambda: work.is_over))
    try:
        engine.threads.side_by_side(work.take, width)
        if among is None and not work.is_over:
            continue_resumes(engine, work.over_at - engine.clock.monotonic())
            purged = forget_old_runs(engine, work.over_at)
            tidy_up(engine)
            forget_idle_limits(engine, work.over_at)
    finally:
        result = work.result()
        result.purged, result.scheduled = purged, scheduled
        if report.wants(result):
            engine.listeners.report(line_of(result))
    if failure := work.failure:
        raise failure
    return result


def _without_archives(change: Change) -> list[Effect]:
    return [effect for effect in change.owed if not isinstance(effect, Archive)]


class _Sweep:
    """One sweep: what is due, and what became of it.

    `take` is called by one thread at a time, and what it gives by several at once: these only
    append to what they share. The first call of a kind to a queue is made by `take` itself, beside
    no other, so a queue that fails is asked once.

    Attributes:
        over_at: by the monotonic time, when nothing more is begun.
    """

    def __init__(
        self, engine: Engine, among: Container[str] | None, seconds: float, width: int
    ) -> None:
        self._engine = engine
        self._among = among
        self.over_at = engine.clock.monotonic() + seconds
        self._result = SweepResult(engine.clock.new_id())
        self._due = DueRuns(engine, zlib.crc32(self._result.job_id.encode()))
        self._most_unwritten = seconds / 2 * width / ATTEND_WITHIN_S
        self._deliveries = DueDeliveries(engine, among, self.over_at)
        self._calls = chain(  # people forgive a late archive, and no missing message
            self._due_calls(self._due.leased(self._is_held_up)),
            self._with_new_leases(self._deliveries.calls(), self._due_calls(self._due.others())),
        )
        self._owing: deque[Change] = deque()
        self._archives: deque[tuple[Archive, KnownRun, Outcome]] = deque()
        self._lines: dict[str, SlotWait] = {}  # those that are to be looked at
        self._has_lines = False
        self._ended: deque[Manifest] = deque()  # whose attempts had limits
        self._archived: list[str] = []
        self._ends: list[RunEnd] = []
        self._unattended: list[str] = []
        self._unwritten_leases: list[str] = []
        self._waits: list[float] = []  # the seconds of each run that waits in a queue
        self._known_elsewhere: AbstractSet[str] | None = None  # None: not needed yet
        self._asked: set[tuple[str, str]] = set()
        self._failed: dict[str, StoreUnavailableError] = {}  # by queue

    def result(self) -> SweepResult:
        """Return what was done; no call of this sweep may run."""
        for end in self._ends:
            self._result.count(end)
        for waits_s in self._waits:
            self._result.note_pending(waits_s)
        told = self._deliveries
        self._result.archived = len(self._archived)
        self._result.unattended = len(self._unattended) + told.unattended
        self._result.documents_read = self._due.documents_read + told.documents_read
        self._result.reannounced = told.reannounced
        self._result.more = self._result.more or told.more
        self._result.failure = None if self.failure is None else str(self.failure)
        return self._result

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be begun."""
        return self._engine.clock.monotonic() >= self.over_at

    @property
    def failure(self) -> StoreUnavailableError | None:
        """Why some due runs were not attended: a queue, the bus or the store failed."""
        return (
            self._due.failure or self._deliveries.failure or next(iter(self._failed.values()), None)
        )

    def take(self) -> Call | None:
        """Give the next thing to do: create what a change owes, or attend to a run that is due.

        Or archive a run, once nothing else is to be done.
        """
        while self._owing:
            change = self._owing.popleft()
            has_task = any(isinstance(effect, Task) for effect in change.owed)
            if not has_task or not self._is_first(
                "create", change.manifest.position.dispatch.queue
            ):
                return partial(self._create, change)
            self._create(change)
        call = next(self._calls, None)
        if call is None and not self._has_lines:
            self._has_lines = True
            self._find_lines()
        if call is None and (self._ended or self._lines):
            call = self._next_call()
        return call or self._next_archive()

    def _next_archive(self) -> Call | None:
        if not self._archives:
            return None
        if not self.is_over:
            return partial(self._archive, *self._archives.popleft())
        self._archives.clear()  # each has an alarm again
        self._result.more = True
        return None

    def _due_calls(self, due: Iterator[Snapshot]) -> Iterator[Call]:
        """Yield what attends to each run that is due and can be attended."""
        for found in due:
            if not is_among(found, self._among):
                continue
            if self.is_over:
                self._result.more = True
                return
            try:
                manifest = manifest_of(found.ref.id, found.document)
            except LeaseholdError as error:
                self._leave(found.ref.id, error)
                continue
            if self._is_in_vain(manifest) or self._is_put_off_here(manifest):
                self._unattended.append(manifest.run_id)
                continue
            look = None
            if has_task(manifest) and self._is_first("look", manifest.position.dispatch.queue):
                look = self._look(manifest)
            known = KnownRun(manifest, found)
            if manifest.position.dispatch.queue in self._failed:
                self._note_wait(known, None)
                self._unattended.append(manifest.run_id)
            else:
                yield partial(self._on_alarm, known, look)

    def _is_held_up(self) -> bool:
        """Return whether a run that has a lease could not be written; others may not be either."""
        return bool(self._unwritten_leases)

    def _is_in_vain(self, run: Manifest) -> bool:
        """Return whether so many leases could not be written that it took half the time.

        Everything else that is due has the other half.
        """
        return (
            run.position.lease is not None and len(self._unwritten_leases) >= self._most_unwritten
        )

    def _is_put_off_here(self, run: Manifest) -> bool:
        """Return whether this process holds the lease, and asks the store to end it as it was.

        The store was away for longer than the lease: its holder knows that, and a sweep would take
        it for a worker that was killed.
        """
        if run.position.lease is None:
            return False
        held = self._engine.leases.held_attempts()
        return any(
            one.fence.lease_id == run.position.lease.lease_id and one.outage is not None
            for one in held
        )

    def _with_new_leases(self, *calls: Iterator[Call]) -> Iterator[Call]:
        """Yield these calls, and now and then those for leases that are over since."""
        clock = self._engine.clock
        looked_at = clock.monotonic()
        for call in chain(*calls):
            if clock.monotonic() - looked_at >= LEASE_LOOK_EVERY_S:
                yield from self._due_calls(self._due.leased_lately())
                looked_at = clock.monotonic()
            yield call

    def _is_first(self, kind: str, queue: str) -> bool:
        """Return whether this is the first call of its kind to a queue."""
        is_first = (kind, queue) not in self._asked
        self._asked.add((kind, queue))
        return is_first

    def _on_alarm(self, known: KnownRun, look: TaskPresence | None) -> None:
        """Do what the alarm of a run calls for, on what was found: it is not read again."""
        run_id = known.manifest.run_id
        look = look or self._look(known.manifest)
        self._note_wait(known, look)
        if look is None:
            self._unattended.append(run_id)
            return
        transition = partial(
            lifecycle.on_alarm,
            rules=self._engine.dispatch_rules(),
            sweep_job_id=self._result.job_id,
            known_elsewhere=self._is_known_elsewhere(known.manifest.step_type),
            **look,
        )
        try:
            committed = self._engine.commit(run_id, transition, known=known, within=ATTEND_WITHIN_S)
            change = committed.answer
            announce(self._engine, change)
            change = let_go_if_resumed(self._engine, change)
        except VersionConflictError:
            return  # it was moved on meanwhile
        except Exception as error:  # noqa: BLE001 - what one document holds must stop no other run
            is_outage = isinstance(error, StoreUnavailableError)  # which took all of its time
            if is_outage and known.manifest.position.lease is not None:
                self._unwritten_leases.append(run_id)
            self._leave(run_id, error)
            return
        self._ends.append(RunEnd.of(change))
        self._note_limits(change)
        archives = [effect for effect in change.owed if isinstance(effect, Archive)]
        if len(change.owed) > len(archives):
            self._owing.append(change)
        if committed.snapshot is not None:
            after = KnownRun(change.manifest, committed.snapshot)
            self._archives.extend((each, after, change.outcome) for each in archives)

    def _note_limits(self, change: Change) -> None:
        """Note limits that may have room: their worker is gone, or no run was called so far."""
        wait = change.manifest.position.slot_wait
        if change.outcome is Outcome.AWAITS_SLOT and wait is not None:
            self._lines[wait.name] = wait
        elif change.before is not None and change.before.position.lease is not None:
            entry = self._engine.catalog.steps.get(change.before.step_type)
            if entry is not None and entry.limits:
                self._ended.append(change.before)

    def _find_lines(self) -> None:
        try:
            for wait in slots.lines(self._engine, lambda: self.is_over):
                self._lines[wait.name] = wait
        except StoreUnavailableError as error:  # after a deploy their index may still be built
            self._engine.listeners.log(f"those that wait for a limit are looked for later: {error}")

    def _next_call(self) -> Call:
        if self._ended:
            return partial(self._attend_line, slots.pass_on_of, self._ended.popleft())
        _, wait = self._lines.popitem()
        return partial(self._attend_line, slots.fill, wait)

    def _attend_line(self, call: Callable[[Engine, Any], None], what: Any) -> None:
        try:
            call(self._engine, what)
        except LeaseholdError as error:
            self._engine.listeners.log(f"those that wait for a limit are called later: {error}")

    def _is_known_elsewhere(self, step: str) -> bool:
        """Return whether another process lives whose catalog has a step that this one has not."""
        if step in self._engine.catalog.steps:
            return False
        if self._known_elsewhere is None:
            self._known_elsewhere = steps_known_elsewhere(self._engine)
        return step in self._known_elsewhere

    def _look(self, manifest: Manifest) -> TaskPresence | None:
        """Look for the task of a run; None: its queue does not answer."""
        try:
            return task_presence(self._engine, manifest)
        except StoreUnavailableError as error:
            self._fail(manifest, error)
            return None

    def _note_wait(self, known: KnownRun, look: TaskPresence | None) -> None:
        """Note how long a run waits in a queue that has its task, or does not answer."""
        run = known.manifest
        is_queued = look is None or look["in_queue"] is not False
        if run.awaits_slot:
            return
        if is_queued and run.waits_for_worker and not run.position.dispatch.remote:
            waits = known.snapshot.read_at - run.position.dispatch.not_before
            self._waits.append(waits.total_seconds())

    def _create(self, change: Change) -> None:
        """Create what a change owes; what cannot be created is owed still, says the manifest."""
        if change.manifest.position.dispatch.queue not in self._failed:
            try:
                publish(self._engine, _without_archives(change))
            except StoreUnavailableError as error:
                self._fail(change.manifest, error)
            else:
                return
        self._unattended.append(change.manifest.run_id)
        self._take_back(change.manifest)

    def _archive(self, owed: Archive, known: KnownRun, due_by: Outcome) -> None:
        """Archive a run; what of it fails is traced, and tried again at its next alarm.

        One that this sweep gave up itself was not cut short: it is not counted.
        """
        try:
            if archive(self._engine, owed, known) and due_by is not Outcome.DEAD_LETTERED:
                self._archived.append(owed.run_id)
        except Exception as error:  # noqa: BLE001 - what one document holds must stop no other run
            self._leave(owed.run_id, error)

    def _take_back(self, manifest: Manifest) -> None:
        """Count no task as lost whose queue is away, so that no outage gives the run up."""
        run_id, dispatch = manifest.run_id, manifest.position.dispatch
        if not dispatch.redispatched:
            return
        take_back = partial(
            lifecycle.not_created,
            rules=self._engine.rules,
            generation=dispatch.generation,
            lost=dispatch.redispatched - 1,
        )
        try:
            self._engine.commit(run_id, take_back, within=ATTEND_WITHIN_S)
        except LeaseholdError as error:
            self._engine.listeners.log(
                f"run {run_id} counts a task as lost that had no queue: {error}"
            )

    def _fail(self, manifest: Manifest, error: StoreUnavailableError) -> None:
        """Ask a queue no more: each try would take its time, and it has other runs' too."""
        queue = manifest.position.dispatch.queue
        self._engine.listeners.log(f"the runs of queue {queue} wait for the next sweep: {error}")
        self._failed[queue] = error

    def _leave(self, run_id: str, error: Exception) -> None:
        """Leave a run to the next sweep; it keeps no other from being attended."""
        problem = error if isinstance(error, LeaseholdError) else f"{type(error).__name__}: {error}"
        self._engine.listeners.log(f"run {run_id} waits for the next sweep: {problem}")
        self._unattended.append(run_id)
