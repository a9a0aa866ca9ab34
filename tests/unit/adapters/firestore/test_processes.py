"""Several processes on one Firestore."""

import multiprocessing
import time

from leasehold.adapters.firestore import FirestoreDocuments
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.domain.stored import Ref
from leasehold.services.execute_step import Hint, arrive
from tests.unit.adapters.firestore.racing import (
    acquire,
    engine_on,
    fork_and_count,
    hang_before_the_commit,
    start,
)
from tests.unit.adapters.firestore.wire import Place

SPAWN = multiprocessing.get_context("spawn")


def test_of_three_that_race_to_acquire_a_step_one_gets_the_lease(
    documents: FirestoreDocuments, place: Place, ref: Ref
) -> None:
    start(documents, ref.id)
    barrier = SPAWN.Barrier(3)
    pipes = [SPAWN.Pipe(duplex=False) for _ in range(3)]
    racers = [
        SPAWN.Process(target=acquire, args=(place, ref.id, f"worker-{number}", barrier, child_end))
        for number, (_, child_end) in enumerate(pipes)
    ]
    for racer in racers:
        racer.start()

    outcomes = [heard.recv() for heard, _ in pipes]

    for racer in racers:
        racer.join()
    assert sorted(outcomes) == ["acquired", "lease_held", "lease_held"]
    found = documents.get(ref)
    assert found is not None
    run = Manifest.model_validate(found.document)
    assert run.position.lease is not None
    assert run.position.lease.holder == f"worker-{outcomes.index('acquired')}"
    assert run.fencing_token == 1


def test_a_worker_that_is_killed_while_it_takes_a_lease_locks_no_run(
    documents: FirestoreDocuments, place: Place, ref: Ref
) -> None:
    """It had read the run and was about to commit: a lock of that read would last a minute."""
    start(documents, ref.id)
    heard, child_end = SPAWN.Pipe(duplex=False)
    worker = SPAWN.Process(target=hang_before_the_commit, args=(place, ref.id, child_end))
    worker.start()
    assert heard.recv() == "now"
    worker.kill()
    worker.join()
    began = time.monotonic()

    acquired = arrive(engine_on(documents, "next"), Hint(ref.id, 1)).answer

    assert acquired.outcome is Outcome.ACQUIRED
    assert acquired.manifest.fencing_token == 1
    assert time.monotonic() - began < 10


def test_workers_can_use_a_store_that_was_made_before_the_fork(
    documents: FirestoreDocuments, place: Place, ref: Ref
) -> None:
    process = SPAWN.Process(target=fork_and_count, args=(place, ref))
    process.start()
    process.join()

    found = documents.get(ref)
    assert process.exitcode == 0
    assert found is not None
    assert found.document == {"count": 4}
