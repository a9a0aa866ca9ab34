"""After a restart: take up runs from their manifests, which are all that is left of the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, on_run, owed_tasks
from leasehold.domain.lifecycle.start import SHARDS
from leasehold.domain.manifest import Lease, run_ref
from leasehold.domain.task import wake_task
from leasehold.errors import LeaseholdError
from leasehold.ports.documents import Query, Range, Snapshot
from leasehold.services.engine import Engine, follow_up
from leasehold.services.read_runs import get_run

_PAGE: Final = 200
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def adopt_run(engine: Engine, run_id: str, *, is_gone: Callable[[str], bool]) -> None:
    """Take up a run where another process left it.

    Args:
        engine: the parts.
        run_id: the run.
        is_gone: whether the holder of a lease is known to work no more; its lease is ended at
            once. Any other lease is waited for.

    Raises:
        UnknownRunError: there is no such run.
    """
    manifest = get_run(engine, run_id)
    lease = manifest.lease
    if lease is None:
        for task in owed_tasks(manifest):
            engine.tasks.create(task)
    elif is_gone(lease.holder):
        _expire(engine, run_id, lease)
    else:
        engine.tasks.create(wake_task(manifest, lease))


def expire_if_gone(engine: Engine, run_id: str, *, is_gone: Callable[[str], bool]) -> bool:
    """End the lease of a run at once where its holder is known to work no more.

    Returns:
        Whether this call ended it; False: there is no lease, or its holder may work.

    Raises:
        UnknownRunError: there is no such run.
    """
    lease = get_run(engine, run_id).lease
    if lease is None or not is_gone(lease.holder):
        return False
    return _expire(engine, run_id, lease).changed


def adopt_all(engine: Engine, *, is_gone: Callable[[str], bool]) -> set[str]:
    """Take up every live run of the store, as after a restart; return their ids.

    One that cannot be taken up is told of, and left to the sweep.
    """
    adopted = set()
    for run_id in live_runs(engine):
        try:
            adopt_run(engine, run_id, is_gone=is_gone)
        except LeaseholdError as error:
            engine.log(f"run {run_id} is not taken up: {error}")
        else:
            adopted.add(run_id)
    return adopted


def live_runs(engine: Engine) -> Iterator[str]:
    """Tell the ids of all runs that have an alarm; one may come twice."""
    return (found.ref.id for found in alarmed(engine))


def alarmed(engine: Engine) -> Iterator[Snapshot]:
    """Tell all runs that have an alarm, shard by shard; one may come twice."""
    for shard in range(SHARDS):
        after: tuple[Any, str] | None = None
        while True:
            page = engine.documents.query(
                Query(
                    "runs",
                    order_by="alarmAt",
                    equal={"shard": shard},
                    range=Range("alarmAt", at_least=_EPOCH),
                    limit=_PAGE,
                    after=after,
                )
            )
            yield from page
            if len(page) < _PAGE:
                break
            last = page[-1]
            after = (last.document["alarmAt"], last.ref.id)


def _expire(engine: Engine, run_id: str, lease: Lease) -> Change:
    end = partial(lifecycle.expire, rules=engine.rules, lease_id=lease.lease_id, holder_gone=True)
    committed = engine.documents.transact(run_ref(run_id), on_run(run_id, end))
    return follow_up(engine, committed.answer)
