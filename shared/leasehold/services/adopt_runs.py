"""A queue in memory keeps nothing: at a start it is filled from the manifests, and kept whole.

Runs that another process left are taken over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition
from leasehold.domain.effect import owed_tasks, question_task, waiting_tasks, wake_task
from leasehold.domain.lifecycle.start import SHARDS
from leasehold.domain.manifest import Manifest, manifest_of, read_as
from leasehold.domain.manifest_parts import Lease
from leasehold.domain.printable import counted
from leasehold.domain.status import RunStatus
from leasehold.domain.stored import Document, Stored
from leasehold.errors import LeaseholdError, UnreadableRunError
from leasehold.ports.documents import Queries, Query, Range, Snapshot
from leasehold.services import slots
from leasehold.services.catalog_fit import Unknown, unknown_here
from leasehold.services.engine import Engine, change_run, publish
from leasehold.services.paging import SCAN_PAGE, WHOLE_RUNS, is_among, scan
from leasehold.services.read_runs import get_run

_ANY_ALARM: Final = Range("alarmAt", at_least=datetime(1970, 1, 1, tzinfo=UTC))

#: What tells whether a run moves.
_STATE: Final = ("status", "cancelled", "deadLettered", "alarmAt")


class _Held(Stored):
    lease: Lease


class _Leased(Stored):
    """The fields that are read of a run with a worker."""

    position: _Held


#: A dispatch has the time at which it was decided; it can be read a little later.
_COMMITTED_WITHIN: Final = timedelta(seconds=2)
_A_MOMENT: Final = timedelta(microseconds=1)


def adopt_run(engine: Engine, run_id: str, *, is_gone: Callable[[str], bool]) -> Manifest:
    """Take up a run where another process left it; return it as it was.

    A remote step whose time to be claimed was over before a server came waits anew: there was
    no server that its workers could have asked. Times of a clock that was set since, ahead or back,
    become times of the clock as it is now.

    Args:
        engine: the parts.
        run_id: the run.
        is_gone: whether the holder of a lease is known to work no more; its lease is ended at
            once. Any other lease is waited for.

    Raises:
        UnknownRunError: there is no such run.
    """
    manifest = _by_the_clock(engine, run_id)
    lease = manifest.position.lease
    if manifest.look_at is not None:
        _look_at(engine, run_id)
    elif lease is None:
        if manifest.is_resting and not (manifest.paused or manifest.is_terminal):
            publish(engine, [question_task(manifest)])
        publish(engine, waiting_tasks(manifest))  # whatever was seen in the queue that is gone
        _let_wait_on(engine, manifest)
    elif is_gone(lease.holder):
        _expire(engine, run_id, lease)
    else:
        publish(engine, [wake_task(manifest, lease)])
    return manifest


def _by_the_clock(engine: Engine, run_id: str) -> Manifest:
    """Return the run; one that has times of a clock that was set since is written anew."""
    manifest, now = get_run(engine, run_id), engine.clock.now()
    step = engine.process.clock_step()
    rules = engine.dispatch_rules()
    follow: Transition
    if step is not None and manifest.position.lease is not None:
        follow = partial(lifecycle.follow_clock, rules=rules, step=step)
    elif lifecycle.time_in_future(manifest, now):
        generation = manifest.position.dispatch.generation
        follow = partial(lifecycle.on_audit, rules=rules, generation=generation, in_queue=None)
    else:
        return manifest
    return change_run(engine, run_id, follow).manifest


def _let_wait_on(engine: Engine, manifest: Manifest) -> None:
    claim_by = manifest.position.dispatch.claim_by
    if manifest.claimable is None or claim_by is None or engine.clock.now() < claim_by:
        return
    generation = manifest.position.dispatch.generation
    wait_on = partial(lifecycle.extend_wait, rules=engine.dispatch_rules(), generation=generation)
    change_run(engine, manifest.run_id, wait_on)


def expire_if_gone(engine: Engine, run_id: str, *, is_gone: Callable[[str], bool]) -> bool:
    """End the lease of a run at once where its holder is known to work no more.

    Returns:
        Whether this call ended it; False: there is no lease, or its holder may work.

    Raises:
        UnknownRunError: there is no such run.
    """
    lease = get_run(engine, run_id).position.lease
    if lease is None or not is_gone(lease.holder):
        return False
    return _expire(engine, run_id, lease).changed


def adopt_all(engine: Engine, *, is_gone: Callable[[str], bool]) -> set[str]:
    """Take up every live run of the store, as after a restart; return their ids.

    Those that are blocked until the code is put right are looked at. One that cannot be taken up
    is logged, and left to the sweep; a step or pipeline that the catalog does not know is logged.
    """
    adopted = set()
    lacking: dict[Unknown, set[str]] = {}
    for run_id in live_runs(engine.documents):
        try:
            run = adopt_run(engine, run_id, is_gone=is_gone)
        except Exception as error:  # noqa: BLE001 - one odd run must stop no start
            known = isinstance(error, LeaseholdError)
            problem = str(error) if known else f"{type(error).__name__}: {error}"
            engine.listeners.log(f"run {run_id} is not taken up: {problem}")
        else:
            adopted.add(run_id)
            if unknown := unknown_here(engine.catalog, run):
                lacking.setdefault(unknown, set()).add(run_id)
    for unknown, run_ids in lacking.items():
        others = ", …" if len(run_ids) > 1 else ""
        engine.listeners.log(
            f"the catalog knows no {unknown.what}, at which {counted(len(run_ids), 'live run')} "
            f"({min(run_ids)}{others}) will block, unless another server knows it; known: "
            f"{unknown.known}. `leasehold check --live-runs` lists all."
        )
    look_at_blocked(engine)
    return adopted


def look_at_blocked(engine: Engine) -> None:
    """Look at once at all runs that are blocked until the code is put right.

    For a process that begins: its code, or the packages that it finds, may be what they wait for.
    And a version before this one may have taken the alarm of a run whose wait has an end: it knows
    of none.
    """
    for found in _with_status(engine, RunStatus.BLOCKED):
        if _is_over(found.document):
            continue
        try:
            run = get_run(engine, found.ref.id)
            if run.look_at is not None:
                _look_at(engine, run.run_id)
            elif run.alarm_at is None and not run.is_idle:
                generation = run.position.dispatch.generation
                repair = partial(lifecycle.on_audit, generation=generation, in_queue=None)
                change_run(engine, run.run_id, partial(repair, rules=engine.dispatch_rules()))
        except LeaseholdError as error:
            engine.listeners.log(f"run {found.ref.id} is not looked at: {error}")


def _look_at(engine: Engine, run_id: str) -> None:
    look = partial(lifecycle.look_again, rules=engine.dispatch_rules(), at_once=True)
    change_run(engine, run_id, look)


def take_over_gone(engine: Engine, *, is_gone: Callable[[str], bool]) -> None:
    """End the leases of workers that are gone, before they run out by themselves.

    There are as many leases as there are workers, so this is cheap with any number of runs.

    Args:
        engine: the parts.
        is_gone: whether the holder of a lease is known to work no more.
    """
    status = RunStatus.IN_PROGRESS.value
    for found in _by_alarm(engine.documents, _ANY_ALARM, fields=("position.lease",), status=status):
        with contextlib.suppress(UnreadableRunError):  # the sweep logs it
            lease = read_as(_Leased, found.ref.id, found.document).position.lease
            if is_gone(lease.holder):
                _expire(engine, found.ref.id, lease)


def live_runs(documents: Queries) -> Iterator[str]:
    """Yield the ids of all runs that time moves; one may come twice."""
    found_runs = _by_alarm(documents, _ANY_ALARM, fields=_STATE)
    return (found.ref.id for found in found_runs if not _rests(found.document))


def any_waits(documents: Queries) -> bool:
    """Return whether a run waits for a process to move it, or for corrected code."""
    found_runs = (found.document for found in _by_alarm(documents, _ANY_ALARM, fields=_STATE))
    ended = RunStatus.COMPLETED.value
    return any(run.get("status") != ended and not _is_over(run) for run in found_runs)


def _rests(run: Document) -> bool:
    """Return whether a run is blocked, or has its alarm only for what it left behind."""
    rests = run.get("status") in (RunStatus.COMPLETED.value, RunStatus.BLOCKED.value)
    return rests or _is_over(run)


def _is_over(run: Document) -> bool:
    """Return whether a run was cancelled or given up."""
    return bool(run.get("cancelled") or run.get("deadLettered"))


def alarmed(documents: Queries) -> Iterator[Snapshot]:
    """Yield all runs that have an alarm, whole, shard by shard; one may come twice."""
    return _by_alarm(documents, _ANY_ALARM)


def _by_alarm(
    documents: Queries, range_: Range, *, fields: tuple[str, ...] = (), **equal: Any
) -> Iterator[Snapshot]:
    for shard in range(SHARDS):
        query = Query(
            "runs",
            order_by="alarmAt",
            equal={"shard": shard, **equal},
            range=range_,
            limit=SCAN_PAGE if fields else WHOLE_RUNS,
            fields=fields,
        )
        yield from scan(documents, query)


def take_up_dispatched(
    engine: Engine, *, among: Container[str] | None = None, since: datetime
) -> datetime:
    """Create the tasks of runs whose next attempt is due since then, if they are in no queue.

    A command that resumes, approves or retries a run on the store of a running engine has no queue.
    And the process with the task of a retry may be gone. The dispatch is taken up as it is, it is
    neither late nor lost.

    Args:
        engine: the parts; its queue drops a task that it has.
        among: only runs of these ids, and their children; None: all.
        since: what this returned before, or when the engine began.

    Returns:
        The time from which on to look the next time.
    """
    now = engine.clock.now()
    grace = engine.rules.grace
    dispatched = Range("alarmAt", at_least=since + grace, below=now + grace + _A_MOMENT)
    for found in _by_alarm(engine.documents, dispatched):
        if not is_among(found, among):
            continue
        with contextlib.suppress(UnreadableRunError):  # the sweep logs it
            publish(engine, owed_tasks(manifest_of(found.ref.id, found.document)))
    return now - _COMMITTED_WITHIN


def parked_runs(engine: Engine) -> Iterator[str]:
    """Yield the ids of all runs that a person holds, or that are blocked."""
    for status in (RunStatus.PENDING, RunStatus.ERROR, RunStatus.BLOCKED):
        for found in _with_status(engine, status):
            run = found.document
            moves = run.get("alarmAt") and status is not RunStatus.BLOCKED
            if not (moves or _is_over(run)):
                yield found.ref.id


def _with_status(engine: Engine, status: RunStatus) -> Iterator[Snapshot]:
    query = Query(
        "runs",
        order_by="createdAt",
        equal={"status": status.value},
        descending=True,
        limit=SCAN_PAGE,
        fields=_STATE,
    )
    yield from scan(engine.documents, query)


def _expire(engine: Engine, run_id: str, lease: Lease) -> Change:
    rules = engine.dispatch_rules()
    end = partial(lifecycle.expire, rules=rules, lease_id=lease.lease_id, holder_gone=True)
    change = change_run(engine, run_id, end)
    entry = engine.catalog.steps.get(change.manifest.step_type)
    if change.changed and entry is not None and entry.limits:
        slots.pass_on_of(engine, change.manifest)
    return change
