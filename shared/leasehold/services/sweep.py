"""The sweep: whose alarm is due, and what is done about it. Two at once do no harm."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, on_run
from leasehold.domain.lifecycle.start import SHARDS
from leasehold.domain.manifest import Manifest, manifest_of
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.task import dispatch_task
from leasehold.errors import LeaseholdError, StoreUnavailableError, VersionConflictError
from leasehold.ports.documents import Query, Range, Snapshot
from leasehold.services.engine import Engine, follow_up

#: How many runs one sweep looks at; it says when more are due.
PAGE: Final = 100

#: Stores keep times to the microsecond: what is due now is below the next one.
_A_MOMENT: Final = timedelta(microseconds=1)


@dataclass(slots=True)
class Swept:
    """What a sweep did.

    Args:
        recovered: runs whose lease had run out: the step is dispatched again.
        redispatched: runs whose task was lost: the step has a new one.
        dead_lettered: runs that were given up; `by_reason` says why.
        documents_read: how many documents the store gave.
        more: whether further runs are due.
    """

    recovered: int = 0
    redispatched: int = 0
    dead_lettered: int = 0
    documents_read: int = 0
    more: bool = False
    by_reason: Counter[str] = field(default_factory=Counter)

    def count(self, change: Change) -> None:
        """Count what became of one run."""
        self.recovered += change.outcome is Outcome.EXPIRED
        self.redispatched += change.outcome is Outcome.REDISPATCHED
        reason = change.manifest.dead_letter_reason
        if change.changed and change.outcome is Outcome.DEAD_LETTERED and reason is not None:
            self.dead_lettered += 1
            self.by_reason[reason.value] += 1


def sweep(engine: Engine, *, among: Container[str] | None = None) -> Swept:
    """Look at each run whose alarm is due, a page of them.

    Args:
        engine: the parts.
        among: only runs of these ids; None: all.

    Raises:
        StoreUnavailableError: a run could not be attended; all the others were.
    """
    swept, job_id = Swept(), engine.clock.new_id()
    failures: dict[str, StoreUnavailableError] = {}  # by the queue that did not answer
    attended = 0
    for found in _due(engine, swept, first=zlib.crc32(job_id.encode())):
        if among is not None and found.ref.id not in among:
            continue
        if attended == PAGE:
            swept.more = True
            break
        if _queue_of(found) in failures:
            continue  # each try would take its time, and the others wait
        try:
            swept.count(attend(engine, found, sweep_job_id=job_id))
            attended += 1
        except VersionConflictError:
            continue  # somebody moved it on meanwhile
        except StoreUnavailableError as error:  # of this run's queue, perhaps: the others go on
            engine.log(f"run {found.ref.id} waits for the next sweep: {error}")
            failures[_queue_of(found)] = error
        except LeaseholdError as error:  # it cannot be read, for one
            engine.log(str(error))
        except Exception as error:  # noqa: BLE001 - what one document holds must stop no other run
            engine.log(f"run {found.ref.id} cannot be attended: {type(error).__name__}: {error}")
    if failures:
        raise next(iter(failures.values()))
    return swept


def _queue_of(found: Snapshot) -> str:
    dispatch = found.document.get("dispatch")
    return str(dispatch.get("queue")) if isinstance(dispatch, Mapping) else ""


def attend(engine: Engine, found: Snapshot, *, sweep_job_id: str) -> Change:
    """Do what the alarm of one run calls for, on what was found: it is not read again.

    Raises:
        VersionConflictError: it is not as it was found any more; nothing was changed.
        UnreadableRunError: it is none that this version can read.
        StoreUnavailableError: it could not be attended.
    """
    manifest = manifest_of(found.ref.id, found.document)
    transition = partial(
        lifecycle.attend,
        rules=engine.rules,
        sweep_job_id=sweep_job_id,
        **looked_for(engine, manifest),
    )
    decide = on_run(manifest.run_id, transition)
    committed = engine.documents.transact(found.ref, decide, if_version=found)
    return follow_up(engine, committed.answer)


def looked_for(engine: Engine, manifest: Manifest) -> dict[str, Any]:
    """Return whether the task of the run's dispatch is in its queue, and which dispatch it is."""
    dispatch = manifest.dispatch
    has_task = manifest.status is not RunStatus.IN_PROGRESS and not dispatch.remote
    in_queue = has_task and engine.tasks.exists(dispatch_task(manifest))
    return {"generation": dispatch.generation, "in_queue": in_queue}


def _due(engine: Engine, swept: Swept, *, first: int) -> Iterator[Snapshot]:
    """Tell the runs whose alarm is due, shard by shard, oldest first.

    Each sweep begins at another shard: a backlog that is due again and again would otherwise keep
    the sweeps from the shards behind it.
    """
    now = engine.clock.now()
    for place in range(SHARDS):
        shard = (first + place) % SHARDS
        after: tuple[Any, str] | None = None
        while True:
            page = engine.documents.query(
                Query(
                    "runs",
                    order_by="alarmAt",
                    equal={"shard": shard},
                    range=Range("alarmAt", below=now + _A_MOMENT),
                    limit=PAGE + 1,
                    after=after,
                )
            )
            swept.documents_read += len(page)
            yield from page
            if len(page) <= PAGE:
                break
            last = page[-1]  # whoever asks for more could not attend to those
            after = (last.document["alarmAt"], last.ref.id)
