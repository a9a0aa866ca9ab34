"""The sweep: whose alarm is due, and what is done about it. Two at once do no harm."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from leasehold.domain import lifecycle
from leasehold.domain.change import Transition, on_run
from leasehold.domain.lifecycle.start import SHARDS
from leasehold.domain.manifest import Manifest, run_ref
from leasehold.domain.status import Outcome
from leasehold.domain.task import dispatch_task
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
        documents_read: what the store read.
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
        StoreUnavailableError: the store or the queue does not answer; what was done, is done.
    """
    swept = Swept()
    due = (found for found in _due(engine) if among is None or found.ref.id in among)
    for number, snapshot in enumerate(due):
        if number == PAGE:
            swept.more = True
            break
        swept.documents_read += 1
        manifest = Manifest.model_validate(snapshot.document)
        swept.count(attend(engine, manifest))
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


def _due(engine: Engine) -> Iterator[Snapshot]:
    """Tell the runs whose alarm is due, shard by shard, oldest first."""
    now = engine.clock.now()
    for shard in range(SHARDS):
        yield from engine.documents.query(
            Query(
                "runs",
                order_by="alarmAt",
                equal={"shard": shard},
                range=Range("alarmAt", below=now),
                limit=PAGE + 1,
            )
        )
