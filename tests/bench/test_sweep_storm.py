"""One call of the deployed sweep where all four queues are full; `make bench` has thousands."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from itertools import count
from multiprocessing.synchronize import Semaphore

import pytest

from bench.sweep_storm import firestore, measure, storm
from leasehold.bootstrap import Hooks, boot
from leasehold.services.sweep import ATTENDED_AT_ONCE, sweep
from tests.worlds.emulators import firestore_host, need_firestore

#: The double of Cloud Tasks is in this process too: each connection to it has such a thread.
OF_THE_DOUBLE = "(process_request_thread)"


@pytest.mark.parametrize("of", ["SQLite", "Firestore"])
def test_one_call_attends_to_all_that_waits_in_four_queues(of: str) -> None:
    """And to the dead worker's run before them, and says how long they wait."""
    if of == "Firestore":
        need_firestore()

    rows = measure(of, 24, **(firestore(firestore_host()) if of == "Firestore" else {}))

    assert [row for row in rows if not row.holds] == []
    assert [row.value for row in rows if row.unit == "runs"] == [25]


def test_a_sweep_that_has_answered_leaves_no_thread_at_work() -> None:
    """An instance has no CPU once it has answered: what is left would stand still."""
    with storm(16) as place:
        place.post()  # the first call opens the stores, and watches for signals from then on
        before = set(threading.enumerate())
        place.make_due()

        answer = place.post()

        assert answer["stillQueued"] == 16
        left = {thread.name for thread in set(threading.enumerate()) - before}
        assert {name for name in left if not name.endswith(OF_THE_DOUBLE)} == set()


def _sweep_until_25(committed: Semaphore) -> None:
    """Sweep; the threads stop one after the other once 25 changes are committed."""
    numbers = count(1)

    def observe(_: object) -> None:
        committed.release()
        if next(numbers) >= 25:
            threading.Event().wait()

    sweep(boot(hooks=Hooks(observe=observe)).engine)


def test_what_a_killed_sweep_did_not_come_to_the_next_one_attends_to() -> None:
    """Nothing of it is done twice: what it had committed is not due any more."""
    with storm(40) as place:
        spawned = multiprocessing.get_context("spawn")
        committed = spawned.Semaphore(0)
        child = spawned.Process(target=_sweep_until_25, args=(committed,))
        child.start()
        is_half_done = all(committed.acquire(timeout=60) for _ in range(25))
        child.kill()
        child.join()
        answer, again = place.post(), place.post()
        dead = place.dead_run()

    assert is_half_done
    assert child.exitcode == -signal.SIGKILL
    assert 41 - 25 - ATTENDED_AT_ONCE <= answer["stillQueued"] <= 41 - 25
    assert (answer["more"], again["documentsRead"]) == (False, 0)
    assert dead.position.dispatch.generation == 2
