"""Who works here, on each store: what processes note of themselves, and what is read of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold.bootstrap import boot
from leasehold.domain.stored import Document, Write
from leasehold.domain.worker_note import KEPT_FOR, LIVES_FOR, WorkerKind, remote_ref, worker_ref
from leasehold.errors import NothingToClaimError, StoreUnavailableError, UnknownKeyError
from leasehold.ports.documents import Documents, Query
from leasehold.remote_workers.claim_step import acquire_run, claim_step
from leasehold.services.audit import audit
from leasehold.services.engine import Engine
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import sweep
from leasehold.services.worker_notes import (
    FORGOTTEN_AT_ONCE,
    Presence,
    live_workers,
    other_projects,
    steps_known_elsewhere,
)
from leasehold.worker.stopping.holder import holder_name, host_name
from tests.conformance.changed_code import catalog_without
from tests.worlds import swept
from tests.worlds.catalogs import remote_step, sample
from tests.worlds.engines import OpenEngine
from tests.worlds.swept import Clock, Queue
from tests.worlds.waiting import until

pytestmark = pytest.mark.one_store

SOON = 10.0  # seconds that the tests wait for a note which else nobody waits for


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(open_engine: OpenEngine, clock: Clock) -> Engine:
    return open_engine(sample, clock=clock, tasks=Queue())


@pytest.fixture(autouse=True)
def forget(documents: Documents) -> Iterator[None]:
    yield
    for found in documents.query(Query("workers", limit=1000)):
        documents.delete(found.ref)


def noted(documents: Documents) -> dict[str, Any]:
    return {one.ref.id: one.document for one in documents.query(Query("workers", limit=1000))}


def put(engine: Engine, process: str, *, ago: timedelta, **fields: Any) -> None:
    """Write the note of another process, as it was so long ago."""
    at = (
        engine.documents.transact(worker_ref("nobody", "1"), lambda _, now: Write(now)).answer - ago
    )
    given: Document = {
        "process": process,
        "kind": "serve",
        "startedAt": at,
        "seenAt": at,
        **fields,
    }
    engine.documents.transact(worker_ref(process, "1"), lambda _, __: Write(None, given))


@pytest.mark.each_store
def test_a_process_that_notes_that_it_lives_is_found_with_what_it_knows(engine: Engine) -> None:
    Presence(WorkerKind.SERVE).note(engine, patience_s=SOON)

    (found,) = live_workers(engine)

    assert (found.process, found.kind) == (engine.process.holder, "serve")
    assert "add" in found.steps
    assert "three" in found.pipelines
    assert found.started_at == found.seen_at


def test_it_writes_once_a_minute_at_most(engine: Engine, clock: Clock) -> None:
    presence = Presence(WorkerKind.SERVE)
    seen = []

    for clock.seconds in range(0, 130, 10):
        presence.note(engine, patience_s=SOON)
        seen.append(live_workers(engine)[0].seen_at)

    assert len(set(seen)) == 3  # at 0, 60 and 120 s
    assert live_workers(engine)[0].started_at == seen[0]


def test_what_ends_in_order_works_here_no_more_and_is_known_to_have_done(engine: Engine) -> None:
    presence = Presence(WorkerKind.SERVE)
    presence.note(engine, patience_s=SOON)

    presence.end(engine)

    assert live_workers(engine) == []
    (note,) = noted(engine.documents).values()
    assert note["endedAt"]


def test_an_engine_within_a_program_leaves_nothing(engine: Engine) -> None:
    presence = Presence(WorkerKind.IN_PROCESS)
    presence.note(engine, patience_s=SOON)

    presence.end(engine)

    assert noted(engine.documents) == {}


def test_two_engines_of_a_process_are_two(engine: Engine) -> None:
    one, other = Presence(WorkerKind.SERVE), Presence(WorkerKind.IN_PROCESS)
    one.note(engine, patience_s=SOON)
    other.note(engine, patience_s=SOON)

    other.end(engine)

    assert [note.kind for note in live_workers(engine)] == ["serve"]


def test_what_never_noted_that_it_lives_ends_without_a_word(engine: Engine) -> None:
    Presence(WorkerKind.SERVE).end(engine)

    assert noted(engine.documents) == {}


def test_what_was_killed_is_taken_to_live_for_some_minutes(engine: Engine) -> None:
    put(engine, "vm-1/1@1", ago=LIVES_FOR - timedelta(minutes=1))
    put(engine, "vm-2/1@1", ago=LIVES_FOR)
    put(engine, "vm-3/1@1", ago=-LIVES_FOR - timedelta(minutes=1))  # its clock was wrong

    assert [one.process for one in live_workers(engine)] == ["vm-1/1@1"]


def test_a_remote_step_that_only_others_know_is_no_mistake_of_who_claims_it(
    engine: Engine,
) -> None:
    """During a deploy a proxy passes a claim on to the version that does not have it, too."""
    put(engine, "vm-1/1@1", ago=timedelta(0), steps=["crop"], pipelines=["photos"])

    with pytest.raises(NothingToClaimError, match="others that live do"):
        claim_step(engine, "crop", "gpu-1")
    with pytest.raises(UnknownKeyError):
        claim_step(engine, "cropp", "gpu-1")


def sweep_it(engine: Engine, run_id: str) -> None:
    sweep(engine, among={run_id})


def repair_it(engine: Engine, _run_id: str) -> None:
    list(audit(engine, repair=True))


@pytest.mark.parametrize("attend", [sweep_it, repair_it])
def test_a_run_whose_step_others_know_is_theirs_and_blocks_once_none_does(
    engine: Engine, open_engine: OpenEngine, unique: str, attend: Callable[[Engine, str], None]
) -> None:
    """Else a server of another version blocks the runs of this one, or they wait without end."""
    swept.put(engine, swept.waiting(engine, unique, timedelta(hours=1)))
    lacking = open_engine(catalog_without("add"), tasks=Queue())
    put(engine, "vm-1/1@1", ago=timedelta(0), steps=["add"])

    attend(lacking, unique)
    left = get_run(engine, unique).status
    engine.documents.delete(worker_ref("vm-1/1@1", "1"))
    attend(lacking, unique)

    assert (left, get_run(engine, unique).status) == ("PENDING", "BLOCKED")


@pytest.mark.parametrize("is_for_one_run", [False, True])
def test_a_remote_worker_that_asks_for_a_step_is_noted(
    open_engine: OpenEngine, documents: Documents, is_for_one_run: bool
) -> None:
    engine = open_engine(remote_step)
    run_id = start_run(engine, StartRequest("away", {})).manifest.run_id
    if is_for_one_run:
        acquire_run(engine, run_id, "gpu-1")
    else:
        claim_step(engine, "away", "gpu-1")
    until(lambda: noted(documents), SOON)

    (note,) = noted(documents).values()
    assert (note["process"], note["kind"], note["steps"]) == ("gpu-1", "remote", ["away"])


def test_a_process_of_this_machine_that_was_killed_is_counted_no_more(engine: Engine) -> None:
    """Neither for what it knows, nor as another project: its note need not get old."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    put(
        engine,
        holder_name(host_name(), process.pid),
        ago=timedelta(0),
        steps=["crop"],
        pipelines=["photos"],
    )
    lives = (steps_known_elsewhere(engine), len([*other_projects(engine)]))

    process.kill()
    process.communicate()

    assert lives == ({"crop"}, 1)
    assert steps_known_elsewhere(engine) == set()
    assert [*other_projects(engine)] == []


def test_a_kind_of_a_later_version_is_read_as_it_is(engine: Engine) -> None:
    put(engine, "vm-1/1@1", ago=timedelta(0), kind="satellite", orbit={"height": 400})

    assert [one.kind for one in live_workers(engine)] == ["satellite"]


def test_a_damaged_note_hides_no_other(engine: Engine) -> None:
    put(engine, "vm-1/1@1", ago=timedelta(0), startedAt="long ago", steps=7)
    put(engine, "vm-2/1@1", ago=timedelta(0))

    assert [one.process for one in live_workers(engine)] == ["vm-2/1@1"]


@pytest.mark.each_store
def test_old_notes_go_when_a_process_begins_to_note(engine: Engine) -> None:
    """So instances that come and go leave no collection that grows."""
    long_ago = KEPT_FOR + timedelta(minutes=1)
    for number in range(FORGOTTEN_AT_ONCE + 5):
        put(engine, f"vm-{number}/1@1", ago=long_ago, kind="function")
    put(engine, "vm-x/1@1", ago=KEPT_FOR - timedelta(minutes=1))
    asked = {"process": "gpu", "kind": "remote", "steps": ["away"]}
    old = noted(engine.documents)["vm-0:1@1:1"] | asked
    engine.documents.transact(remote_ref("away"), lambda _, __: Write(None, old))

    Presence(WorkerKind.SERVE).note(engine, patience_s=SOON)
    Presence(WorkerKind.SERVE).note(engine, patience_s=SOON)

    assert len(live_workers(engine)) == 2
    left = {note["process"] for note in noted(engine.documents).values()}
    assert left == {engine.process.holder, "vm-x/1@1", "gpu"}


class Away:
    """A store that does not answer."""

    def __init__(self) -> None:
        self.asked = 0

    def transact(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        raise StoreUnavailableError(store="the test", problem="it is away")

    def query(self, _: Query) -> Any:
        raise StoreUnavailableError(store="the test", problem="it is away")


def test_an_outage_fails_nothing_and_is_asked_no_more_often(
    engine: Engine, clock: Clock, tmp_path: Path
) -> None:
    away = Away()
    lost = boot(
        {"LEASEHOLD_ARTIFACTS": f"file://{tmp_path}/artifacts"},
        catalog=engine.catalog,
        documents=away,  # type: ignore[arg-type] # of what a store does, only this is asked
        clock=clock,
        tasks=Queue(),
    ).engine
    presence = Presence(WorkerKind.SERVE)

    presence.note(lost, patience_s=SOON)
    presence.note(lost, patience_s=SOON)

    assert away.asked == 1
    clock.seconds = 60.0
    presence.note(engine, patience_s=SOON)
    assert len(live_workers(engine)) == 1
