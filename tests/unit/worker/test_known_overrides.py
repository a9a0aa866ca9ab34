"""What a process knows of the overrides: how old it may be, and what it costs to know it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.domain.budget import budget_ref
from leasehold.domain.override import override_ref
from leasehold.domain.stored import Write
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Query, Snapshot
from leasehold.testing import FrozenClock
from leasehold.worker.known_overrides import KnownOverrides
from tests.worlds.waiting import until


class AskedStore(SqliteDocuments):
    """A store that counts its queries, and can be away, or answer late."""

    asked = 0
    is_away = False
    answers = threading.Event()

    def query(self, query: Query) -> Sequence[Snapshot]:
        self.asked += 1
        self.answers.wait()
        if self.is_away:
            raise StoreUnavailableError(store="here", problem="it is away")
        return super().query(query)

    def write(self, step_type: str, **fields: Any) -> None:
        self.transact(override_ref(step_type), lambda _, __: Write(None, fields))


@pytest.fixture
def store(tmp_path: Path, clock: FrozenClock) -> Iterator[AskedStore]:
    store = AskedStore(tmp_path / "runs.db", clock)
    store.answers.set()
    yield store
    store.close()


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def known(store: AskedStore, clock: FrozenClock, lines: list[str]) -> KnownOverrides:
    return KnownOverrides(store, clock, lines.append)


def test_nothing_is_read_before_a_dispatch(store: AskedStore, known: KnownOverrides) -> None:
    store.write("extraction", timeoutS=60, until="2026-01-02")

    assert (known.find("extraction"), store.asked) == (None, 0)


def test_they_are_read_once_in_ten_seconds_however_many_steps_are_dispatched(
    store: AskedStore, clock: FrozenClock, known: KnownOverrides
) -> None:
    for _ in range(100):
        clock.advance(0.1)
        known.refresh()
    first = store.asked
    store.write("extraction", timeoutS=60, until="2026-01-02")
    clock.advance(10)
    known.refresh()

    assert (first, store.asked) == (1, 2)
    assert known.find("extraction") is not None


def test_of_many_threads_one_reads_and_the_others_get_what_it_read(
    store: AskedStore, known: KnownOverrides
) -> None:
    store.write("extraction", timeoutS=60, until="2026-01-02")
    store.answers.clear()
    found: list[object] = []

    def dispatch() -> None:
        known.refresh()
        found.append(known.find("extraction"))

    threads = [threading.Thread(target=dispatch) for _ in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: store.asked)
    store.answers.set()
    for thread in threads:
        thread.join()

    assert store.asked == 1
    assert None not in found
    assert len(found) == 8


def test_one_is_over_at_its_end_without_another_read(
    store: AskedStore, clock: FrozenClock, known: KnownOverrides
) -> None:
    clock.advance(60)  # since the process began
    store.write("extraction", timeoutS=60, until=clock.now() + timedelta(seconds=5))
    known.refresh()

    clock.advance(4.9)
    before = known.find("extraction")
    clock.advance(0.1)
    after = known.find("extraction")

    assert before is not None
    assert after is not None
    assert (before.is_over, after.is_over, store.asked) == (False, True, 1)


def test_an_outage_leaves_what_is_known_in_force_and_is_logged_once(
    store: AskedStore, clock: FrozenClock, known: KnownOverrides, lines: list[str]
) -> None:
    store.write("extraction", timeoutS=60, until=clock.now() + timedelta(seconds=25))
    known.refresh()
    store.is_away = True
    states = []
    for _ in range(3):
        clock.advance(10)
        known.refresh()
        known.refresh()
        found = known.find("extraction")
        states.append(found is not None and found.is_over)
    store.is_away = False
    clock.advance(10)
    known.refresh()
    store.is_away = True
    clock.advance(10)
    known.refresh()

    assert states == [False, False, True]  # its end comes without the store
    assert store.asked == 6  # each ten seconds, and not at each dispatch
    assert len(lines) == 2
    assert lines[0] == (
        "the overrides of step limits cannot be read; those that were read last (extraction) "
        "stay in force: The store here does not answer: it is away."
    )


def test_where_the_first_read_fails_there_are_none(
    store: AskedStore, known: KnownOverrides, lines: list[str]
) -> None:
    store.is_away = True

    known.refresh()

    assert known.find("extraction") is None
    assert "(none) stay in force" in lines[0]


def test_a_request_for_all_returns_the_current_ones(
    store: AskedStore, known: KnownOverrides
) -> None:
    known.refresh()
    store.write("b", timeoutS=60, until="2026-01-02")
    store.write("a", colour="red")

    assert [(one.step_type, one.refused == "") for one in known.read()] == [
        ("a", False),
        ("b", True),
    ]
    assert known.find("b") is not None
    store.is_away = True
    with pytest.raises(StoreUnavailableError):
        known.read()


def test_a_derived_limit_that_cannot_be_used_is_logged_once_and_the_last_one_holds(
    store: AskedStore, clock: FrozenClock, lines: list[str]
) -> None:
    known = KnownOverrides(store, clock, lines.append, reads_budgets=True)
    limits = {"totalS": 60, "executionS": 30, "timeoutS": 40}

    def refresh(**applied: Any) -> float | None:
        for step, fields in ({"extraction": applied} | {"never": {"applied": "soon"}}).items():
            store.transact(budget_ref(step), lambda *_, f=fields: Write(None, f))
        clock.advance(10)
        known.refresh()
        limit = known.budget("extraction")
        return None if limit is None else limit.total_s

    first, damaged, again, mended = (
        refresh(applied=limits),
        refresh(applied="x"),
        refresh(),
        refresh(applied=limits | {"totalS": 70}),
    )

    assert (first, damaged, again, mended) == (60, 60, 60, 70)
    assert lines == [
        "budgets/never has no limit that can be used; the entry's limit holds",
        "budgets/extraction has no limit that can be used; the last one holds",
    ]
