"""What an idle run owes, on both stores: the sweep finds it by its alarm and publishes it."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from leasehold.domain import effect, lifecycle
from leasehold.domain.change import Draft, on_run
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.effect import Task
from leasehold.domain.lease import Fence
from leasehold.domain.lifecycle import NewRun
from leasehold.domain.manifest import Manifest, manifest_of, run_ref, to_document
from leasehold.domain.status import Outcome
from leasehold.domain.stored import Write, replace
from leasehold.services.engine import Engine
from leasehold.services.sweep import sweep
from tests.worlds.catalogs import sample
from tests.worlds.engines import OpenEngine
from tests.worlds.queues import CreatedTasks

EARLIER = timedelta(minutes=10)


class Queue(CreatedTasks):
    """It finds nothing."""

    def exists(self, _: Task) -> bool:
        return False


def owed_announcements(manifest: Manifest) -> tuple[Task, ...]:
    """A run that ended owes a message to a queue, until a label says that it was sent."""
    if not manifest.is_terminal or "announced" in manifest.labels:
        return ()
    at, deadline = manifest.updated_at, timedelta(minutes=1)
    return (Task("announcement", "announcements", manifest.run_id, 1, at, deadline),)


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def engine(open_engine: OpenEngine, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine of a later version, whose runs owe announcements."""
    monkeypatch.setattr(effect, "OWED", (*effect.OWED, owed_announcements))
    return open_engine(sample, tasks=queue)


def completed(engine: Engine, run_id: str) -> Manifest:
    """Return a run of one step that was completed a while ago."""
    at, rules = engine.clock.now() - EARLIER, engine.rules
    value = KeptValue(text='{"n": 1}')
    new = NewRun(run_id, "one", ("add",), value, "digest", "nonce")
    run = lifecycle.start(None, at, rules=rules, new=new).manifest
    run = lifecycle.arrive(
        run, at, rules=rules, generation=1, lease_id="lease-1", holder="a"
    ).manifest
    fence = Fence("lease-1", run.fencing_token)
    run = lifecycle.complete(run, at, rules=rules, fence=fence, output=value).manifest
    return lifecycle.note_archive(
        run, at, rules=rules, life=run.life, failed={}, is_over=True
    ).manifest


def stored(engine: Engine, run_id: str) -> Manifest:
    found = engine.documents.get(run_ref(run_id))
    assert found is not None
    return manifest_of(run_id, found.document)


def test_what_a_run_that_ended_owes_is_published_again_and_the_run_stays_as_it_is(
    engine: Engine, queue: Queue, unique: str
) -> None:
    run = completed(engine, unique)
    ref = run_ref(unique)
    engine.documents.transact(ref, lambda _, __: Write(None, to_document(run)))

    swept = sweep(engine, among={unique})

    assert [(task.name, task.run_id) for task in queue.created] == [("announcement", unique)]
    assert (swept.recovered, swept.redispatched, swept.dead_lettered) == (0, 0, 0)
    after = stored(engine, unique)
    assert after.alarm_at == after.updated_at + engine.rules.grace
    assert replace(after, alarm_at=run.alarm_at, updated_at=run.updated_at) == run

    sweep(engine, among={unique})
    assert len(queue.created) == 1, "its alarm lies ahead"


def test_once_it_is_carried_out_no_sweep_sees_the_run_again(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """The process that carries it out notes that in the manifest, which removes the alarm."""

    def announced(manifest: Manifest, now: datetime) -> object:
        draft = Draft(manifest, now, engine.rules)
        draft.run = replace(draft.run, labels=("announced",))
        return draft.commit(Outcome.REPAIRED)

    run = completed(engine, unique)
    ref = run_ref(unique)
    engine.documents.transact(ref, lambda _, __: Write(None, to_document(run)))

    engine.documents.transact(ref, on_run(unique, announced))

    assert stored(engine, unique).alarm_at is None
    sweep(engine, among={unique})
    assert queue.created == []
