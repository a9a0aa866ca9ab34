"""The sweep: whose alarm is due, and what is done about it. Two at once do no harm."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from leasehold.domain import lifecycle
from leasehold.domain.change import Transition, on_run
from leasehold.domain.lifecycle.start import SHARDS
from leasehold.domain.manifest import Manifest, manifest_of, run_ref
from leasehold.domain.status import Outcome
from leasehold.domain.task import dispatch_task
from leasehold.errors import StoreUnavailableError, UnreadableRunError
from leasehold.ports.documents import Query, Range, Snapshot
from leasehold.services.engine import Engine, follow_up

#: How many runs one sweep looks at; it says when more are due.
PAGE: Final = 100


@dataclass(slots=True)
class Swept:
    """What a sweep did.

    Args:
        recovered: runs whose lease had run out: the step is dispatched again.
        redispatched: runs whose task was lost: the step has a new one.
        dead_lettered: runs that were given up.
        documents_read: how many documents the store gave.
        more: whether further runs are due.
    """

    recovered: int = 0
    redispatched: int = 0
    dead_lettered: int = 0
    documents_read: int = 0
    more: bool = False

    def count(self, outcome: Outcome) -> None:
        """Count what became of one run."""
        self.recovered += outcome is Outcome.EXPIRED
        self.redispatched += outcome is Outcome.REDISPATCHED
        self.dead_lettered += outcome is Outcome.DEAD_LETTERED


def sweep(engine: Engine, *, among: Container[str] | None = None) -> Swept:
    """Look at each run whose alarm is due, a page of them.

    Args:
        engine: the parts.
        among: only runs of these ids; None: all.

    Raises:
        StoreUnavailableError: a run could not be attended; all the others were.
    """
    swept = Swept()
    failures: list[StoreUnavailableError] = []
    attended = 0
    for found in _due(engine, swept):
        if among is not None and found.ref.id not in among:
            continue
        if attended == PAGE:
            swept.more = True
            break
        try:
            swept.count(attend(engine, manifest_of(found.ref.id, found.document)))
            attended += 1
        except UnreadableRunError as error:
            engine.log(str(error))
        except StoreUnavailableError as error:  # of this run's queue, perhaps: the others go on
            engine.log(f"run {found.ref.id} waits for the next sweep: {error}")
            failures.append(error)
    if failures:
        raise failures[0]
    return swept


def attend(engine: Engine, manifest: Manifest) -> Outcome:
    """Do what the alarm of one run calls for."""
    transition: Transition
    if manifest.lease is not None:
        lease_id = manifest.lease.lease_id
        transition = partial(lifecycle.expire, rules=engine.rules, lease_id=lease_id)
    else:
        transition = partial(
            lifecycle.redispatch,
            rules=engine.rules,
            generation=manifest.dispatch.generation,
            in_queue=engine.tasks.exists(dispatch_task(manifest)),
        )
    decide = on_run(manifest.run_id, transition)
    change = engine.documents.transact(run_ref(manifest.run_id), decide).answer
    return follow_up(engine, change).outcome


def _due(engine: Engine, swept: Swept) -> Iterator[Snapshot]:
    """Tell the runs whose alarm is due, shard by shard, oldest first."""
    now = engine.clock.now()
    for shard in range(SHARDS):
        found = engine.documents.query(
            Query(
                "runs",
                order_by="alarmAt",
                equal={"shard": shard},
                range=Range("alarmAt", below=now),
                limit=PAGE + 1,
            )
        )
        swept.documents_read += len(found)
        yield from found
