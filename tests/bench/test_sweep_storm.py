"""One call of the deployed sweep where all four queues are full; `make bench` has thousands."""

from __future__ import annotations

import threading

import pytest

from bench.sweep_storm import firestore, measure, storm
from tests.emulators import firestore_host, need_firestore


@pytest.mark.parametrize("of", ["SQLite", "Firestore"])
def test_one_call_attends_to_all_that_waits_in_four_queues(of: str) -> None:
    """And to the dead worker's run before them, and says how long they wait."""
    if of == "Firestore":
        need_firestore()

    rows = measure(of, 120, **(firestore(firestore_host()) if of == "Firestore" else {}))

    assert [row for row in rows if not row.holds] == []
    assert [row.value for row in rows if row.unit == "runs"] == [121]


def test_a_sweep_that_has_answered_leaves_no_thread_at_work() -> None:
    """An instance has no CPU once it has answered: what is left would stand still."""
    with storm(40) as place:
        place.post()  # the first call opens the stores, and watches for signals from then on
        before = set(threading.enumerate())
        place.make_due()

        answer = place.post()

        assert answer["stillQueued"] == 40
        assert {thread.name for thread in set(threading.enumerate()) - before} == set()
