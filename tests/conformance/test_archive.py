"""The archive of an ended run, on both stores: after the announcements, whatever their result."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from leasehold.attempt.attempt import Attempt
from leasehold.attempt.values import pack, put_packed
from leasehold.bounded_calls import BoundedCalls
from leasehold.domain import lifecycle
from leasehold.domain.artifact_name import checkpoints_folder, files_folder
from leasehold.domain.change import on_run
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.delivery import delivery_ref
from leasehold.domain.event_message import EventMessage
from leasehold.domain.lease import fence_of
from leasehold.domain.ledger import ledger_ref
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest, run_ref, to_document
from leasehold.domain.stored import Ref, Write, replace
from leasehold.errors import StoreUnavailableError, UnknownRunError
from leasehold.ports.artifacts import Artifacts
from leasehold.remote_workers.claim_step import acquire_run
from leasehold.remote_workers.manage_lease import (
    LeaseCredentials,
    complete_step,
    release_step,
    save_checkpoint,
)
from leasehold.services.engine import Engine, find_run
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.purge import delete_run
from leasehold.services.read_runs import timeline_of
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import sweep
from tests.worlds.builders import at_position

pytestmark = [pytest.mark.one_store, pytest.mark.catalog("tests.worlds.catalogs.remote_step")]

LARGE = '["' + "x" * 40_000 + '"]'
TEXT = b"A line that comes again and again.\n" * 2_000
AGO = timedelta(hours=3)

Meet = Callable[[str], object]


class Met:
    """The artifacts; before each call of a step of the archive, something is met."""

    def __init__(self, inner: Artifacts, meet: Meet) -> None:
        self._inner = inner
        self._meet = meet

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in ("compress", "delete"):
            return found

        def call(prefix: str, *texts: Any) -> None:
            self._meet(f"{name} {prefix}")
            found(prefix, *texts)

        return call


class Bus:
    """An event bus that takes down what is published."""

    def __init__(self, taken: list[str]) -> None:
        self.taken = taken

    def publish(self, messages: Sequence[EventMessage]) -> None:
        self.taken.extend(f"message to {message.delivery.channel}" for message in messages)


@pytest.fixture
def happened() -> list[str]:
    """The events outside the store, in order."""
    return []


@pytest.fixture
def engine(engine: Engine, happened: list[str]) -> Engine:
    """An engine whose runs are announced on one channel."""
    rules = replace(engine.rules, channels_for=lambda _pipeline, _event: ("team",))
    return replace(engine, rules=rules, events=Bus(happened))


def meeting(engine: Engine, meet: Meet) -> Engine:
    return replace(engine, artifacts=Met(engine.artifacts, meet))  # type: ignore[arg-type] # as the port


def leased(engine: Engine, unique: str) -> LeaseCredentials:
    """A worker whose run has a file, and a large checkpoint."""
    run_id = start_run(engine, StartRequest("away", {"n": 1}, unique)).manifest.run_id
    worker = LeaseCredentials(run_id, fence_of(acquire_run(engine, run_id, "vm-1").manifest))
    save_checkpoint(engine, worker, iteration_count=1, phase="", partial_results=LARGE)
    engine.artifacts.put(log_of(find_run(engine, run_id).manifest), TEXT)
    return worker


def log_of(run: Manifest) -> str:
    return f"{files_folder(run)}/log.txt"


def ledger(engine: Engine, run_id: str) -> Mapping[str, Any] | None:
    found = engine.documents.get(ledger_ref(run_id))
    return None if found is None else found.document


def announced(engine: Engine, run: Manifest) -> bool:
    assert run.announcement is not None
    ref = delivery_ref(run.run_id, run.announcement.occurrence, "team")
    return engine.documents.get(ref) is not None


def failures(engine: Engine, run_id: str) -> list[str]:
    return [str(one.reason) for one in timeline_of(engine, run_id) if one.type == "archive_failed"]


def made_due(engine: Engine, run_id: str) -> None:
    """Have it as if the run was last written hours ago."""
    run = find_run(engine, run_id).manifest
    assert run.archive is not None
    then = engine.clock.now() - AGO
    run = replace(
        run, alarm_at=then, updated_at=then, archive=replace(run.archive, not_before=then)
    )
    engine.documents.transact(run_ref(run_id), lambda _, __: Write(None, to_document(run)))


@pytest.mark.each_store
def test_people_are_told_first_then_it_is_archived(
    engine: Engine, unique: str, happened: list[str]
) -> None:
    worker = leased(engine, unique)

    complete_step(meeting(engine, happened.append), worker, "{}", "SUCCESS")

    run = find_run(engine, worker.run_id).manifest
    folder = f"runs/{run.run_id}/{run.life}"
    assert happened == [
        "message to team",
        f"compress {folder}/files",
        f"delete {folder}/checkpoints",
    ]
    assert (run.archive, run.owed, run.alarm_at) == (None, (), None)
    assert list(engine.artifacts.list(folder)) == [f"{folder}/files/log.txt"]
    assert engine.artifacts.get(f"{folder}/files/log.txt") == TEXT
    entry = ledger(engine, run.run_id)
    assert entry is not None
    assert (entry["outcome"], entry["lastStep"]) == ("completed", "away")
    assert sweep(engine, among={run.run_id}).archived == 0


def away(what: str) -> None:
    raise StoreUnavailableError(store="artifacts", problem=what)


def broken(what: str) -> None:
    raise RuntimeError(what)


@pytest.mark.parametrize("meet", [away, broken], ids=["away", "broken"])
def test_an_archive_that_raises_costs_no_announcement_and_no_ledger(
    engine: Engine, unique: str, happened: list[str], meet: Meet
) -> None:
    worker = leased(engine, unique)
    run_id = worker.run_id

    complete_step(meeting(engine, meet), worker, "{}", "SUCCESS")

    run = find_run(engine, run_id).manifest
    assert (run.status, happened, announced(engine, run)) == (
        "COMPLETED",
        ["message to team"],
        True,
    )
    assert run.archive is not None
    assert run.archive.failed == ("compress_artifacts", "delete_checkpoints")
    entry = ledger(engine, run_id)
    assert entry is not None

    made_due(engine, run_id)
    assert sweep(meeting(engine, meet), among={run_id}).archived == 0
    assert failures(engine, run_id) == ["compress_artifacts", "delete_checkpoints"]
    made_due(engine, run_id)
    assert sweep(engine, among={run_id}).archived == 1

    run = find_run(engine, run_id).manifest
    assert (run.archive, run.owed, run.alarm_at) == (None, (), None)
    assert failures(engine, run_id) == ["compress_artifacts", "delete_checkpoints"]
    assert ledger(engine, run_id) == entry
    assert list(engine.artifacts.list(f"runs/{run_id}")) == [log_of(run)]


def test_a_step_that_fails_keeps_no_other_from_being_done(engine: Engine, unique: str) -> None:
    worker = leased(engine, unique)

    def meet(what: str) -> None:
        if what.startswith("compress"):
            raise RuntimeError(what)

    complete_step(meeting(engine, meet), worker, "{}", "SUCCESS")

    assert failures(engine, worker.run_id) == ["compress_artifacts"]
    folder = checkpoints_folder(find_run(engine, worker.run_id).manifest)
    assert list(engine.artifacts.list(folder)) == []


def test_an_archive_that_hangs_delays_neither_the_run_nor_others(
    engine: Engine, unique: str, happened: list[str]
) -> None:
    hanging, other = leased(engine, f"{unique}-1"), leased(engine, f"{unique}-2")
    go_on = threading.Event()

    def meet(what: str) -> None:
        if hanging.run_id in what:
            go_on.wait(60)

    errand = BoundedCalls("errand", patience_s=0.2).run
    slow = replace(
        meeting(engine, meet), threads=replace(meeting(engine, meet).threads, bounded=errand)
    )
    try:
        complete_step(slow, hanging, "{}", "SUCCESS")
        complete_step(meeting(engine, broken), other, "{}", "SUCCESS")
        run = find_run(engine, hanging.run_id).manifest
        assert (run.status, announced(engine, run)) == ("COMPLETED", True)
        assert happened == ["message to team"] * 2
        assert run.archive is not None
        assert (run.archive.failed, failures(engine, run.run_id)) == ((), [])
        assert ledger(engine, run.run_id) is not None

        for each in (hanging, other):
            made_due(engine, each.run_id)
        swept = sweep(slow, among={hanging.run_id, other.run_id})

        assert swept.archived == 1
        assert find_run(engine, other.run_id).manifest.archive is None
    finally:
        go_on.set()
    made_due(engine, hanging.run_id)
    sweep(engine, among={hanging.run_id})
    assert find_run(engine, hanging.run_id).manifest.archive is None


@pytest.mark.each_store
def test_a_run_whose_worker_died_right_after_its_end_is_announced_and_archived_by_the_sweep(
    engine: Engine, unique: str, happened: list[str]
) -> None:
    worker = leased(engine, unique)
    complete = partial(
        lifecycle.complete, rules=engine.rules, fence=worker.fence, output=KeptValue(text="{}")
    )
    engine.documents.transact(run_ref(worker.run_id), on_run(worker.run_id, complete))
    assert happened == []
    assert ledger(engine, worker.run_id) is not None
    made_due(engine, worker.run_id)

    swept = sweep(engine, among={worker.run_id})

    run = find_run(engine, worker.run_id).manifest
    assert (swept.archived, happened) == (1, ["message to team"])
    assert (run.archive, run.owed, run.alarm_at) == (None, (), None)


@pytest.mark.each_store
def test_of_a_run_that_is_purged_meanwhile_nothing_is_written(engine: Engine, unique: str) -> None:
    rules = replace(engine.rules, channels_for=lambda _pipeline, _event: ())
    engine = replace(engine, rules=rules)
    worker = leased(engine, unique)
    run_id = worker.run_id

    def purged(what: str) -> None:
        if what.startswith("compress"):
            late = engine.clock.now() + timedelta(minutes=1)
            delete_run(engine, find_run(engine, run_id), late)

    complete_step(meeting(engine, purged), worker, "{}", "SUCCESS")

    with pytest.raises(UnknownRunError):
        find_run(engine, run_id)
    assert engine.documents.get(Ref("runs", run_id)) is None
    entry = ledger(engine, run_id)
    assert entry is not None, "its end wrote it"
    assert entry["outcome"] == "completed"
    assert list(engine.artifacts.list(f"runs/{run_id}")) == []


def test_a_run_that_is_recreated_meanwhile_is_archived_all_the_same(
    engine: Engine, unique: str
) -> None:
    worker = leased(engine, unique)

    def recreated(what: str) -> None:
        if what.startswith("compress"):
            operate(engine, worker.run_id, OperationRequest(Operation.RECREATE, actor="ada"))

    complete_step(meeting(engine, recreated), worker, "{}", "SUCCESS")

    run = find_run(engine, worker.run_id).manifest
    assert (run.archive, len(run.recreated_as)) == (None, 1)


def test_the_ledger_outlives_the_run(engine: Engine, unique: str) -> None:
    worker = leased(engine, unique)
    complete_step(engine, worker, "{}", "SUCCESS")
    entry = ledger(engine, worker.run_id)

    late = engine.clock.now() + timedelta(minutes=1)
    delete_run(engine, find_run(engine, worker.run_id), late)

    assert ledger(engine, worker.run_id) == entry
    assert entry is not None


# -- temporary files that no run knows of ----------------------------------------------------------


def claimed(engine: Engine, run_id: str) -> LeaseCredentials:
    return LeaseCredentials(run_id, fence_of(acquire_run(engine, run_id, "vm-1").manifest))


def begun(engine: Engine, unique: str, pipeline: str = "away") -> LeaseCredentials:
    """A worker whose run has kept nothing yet."""
    run_id = start_run(engine, StartRequest(pipeline, {"n": 1}, unique)).manifest.run_id
    return claimed(engine, run_id)


def attempt_of(engine: Engine, worker: LeaseCredentials) -> Attempt:
    return Attempt(engine, find_run(engine, worker.run_id), worker.fence)


def store_only(engine: Engine, attempt: Attempt) -> None:
    """Store the file of a large checkpoint; its process is killed before the commit."""
    put_packed(engine.artifacts, pack(attempt.manifest, engine.clock.new_id(), LARGE))
    assert temporary(engine, attempt.manifest) != []


def temporary(engine: Engine, run: Manifest) -> list[str]:
    return list(engine.artifacts.list(checkpoints_folder(run)))


def test_the_file_of_a_checkpoint_whose_commit_was_lost_goes_with_the_run(
    engine: Engine, unique: str
) -> None:
    worker = begun(engine, unique)
    store_only(engine, attempt_of(engine, worker))

    complete_step(engine, worker, "{}", "SUCCESS")

    run = find_run(engine, worker.run_id).manifest
    assert (run.archive, temporary(engine, run)) == (None, [])


def test_the_file_of_a_lost_commit_goes_with_the_run_whichever_remote_step_left_it(
    engine: Engine, unique: str
) -> None:
    """The step was handed off; a process that was frozen stored another file after that."""
    worker = begun(engine, unique, "far")
    attempt = attempt_of(engine, worker)
    store_only(engine, attempt)

    complete_step(engine, worker, "{}", "SUCCESS")
    handed_off = temporary(engine, attempt.manifest)
    store_only(engine, attempt)
    complete_step(engine, claimed(engine, worker.run_id), "{}", "SUCCESS")

    run = find_run(engine, worker.run_id).manifest
    assert handed_off == []
    assert (run.archive, temporary(engine, run)) == (None, [])


def test_what_is_stored_before_and_after_a_cancel_goes_once_its_worker_is_silent(
    engine: Engine, unique: str
) -> None:
    worker = begun(engine, unique)
    attempt = attempt_of(engine, worker)
    store_only(engine, attempt)
    operate(engine, worker.run_id, OperationRequest(Operation.CANCEL, actor="ada"))
    store_only(engine, attempt)

    silent = engine.clock.now() - AGO
    run = at_position(find_run(engine, worker.run_id).manifest, heartbeat_at=silent)
    engine.documents.transact(run_ref(run.run_id), lambda _, __: Write(None, to_document(run)))
    made_due(engine, run.run_id)
    swept = sweep(engine, among={run.run_id})

    run = find_run(engine, run.run_id).manifest
    assert (swept.archived, run.archive, temporary(engine, run)) == (1, None, [])


def test_what_a_handler_stores_after_its_release_goes_with_the_run(
    engine: Engine, unique: str
) -> None:
    """The next worker keeps nothing large, so no file of its has the folder deleted."""
    worker = begun(engine, unique)
    attempt = attempt_of(engine, worker)
    release_step(engine, worker)
    store_only(engine, attempt)

    complete_step(engine, claimed(engine, worker.run_id), "{}", "SUCCESS")

    run = find_run(engine, worker.run_id).manifest
    assert (run.archive, temporary(engine, run)) == (None, [])
