"""Changes that come at the same time share a commit, and nothing else."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from leasehold.adapters.sqlite.group_commit import GroupCommit
from leasehold.errors import StoreUnavailableError

Work = Callable[[sqlite3.Connection], Any]


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE kept (value PRIMARY KEY)")
    yield connection
    connection.close()


@pytest.fixture
def commits(connection: sqlite3.Connection) -> GroupCommit:
    return GroupCommit(connection, "the store")


def insert(value: Any) -> Work:
    return lambda connection: connection.execute("INSERT INTO kept VALUES (?)", (value,)).close()


def insert_and_raise(value: Any, error: BaseException) -> Work:
    def work(connection: sqlite3.Connection) -> None:
        insert(value)(connection)
        raise error

    return work


def refuse(_: sqlite3.Connection) -> None:
    raise ValueError


def kept(path: Path) -> list[Any]:
    """Return what its own connection finds: what is durable."""
    reader = sqlite3.connect(path)
    values = [value for (value,) in reader.execute("SELECT value FROM kept ORDER BY value")]
    reader.close()
    return values


def together(commits: GroupCommit, *works: Work) -> list[Future[Any]]:
    """Run the works in one batch, in this order: the writer is held until all wait for it."""
    held, free = Event(), Event()
    futures: list[Future[Any]] = []

    def hold(_: sqlite3.Connection) -> None:
        held.set()
        free.wait(10)

    with ThreadPoolExecutor(len(works) + 1) as threads:
        first = threads.submit(commits.run, hold)
        assert held.wait(60)
        deadline = time.monotonic() + 10
        for work in works:
            futures.append(threads.submit(commits.run, work))
            while len(commits._waiting) < len(futures):  # noqa: SLF001 - nothing else shows it
                assert time.monotonic() < deadline
        free.set()
    first.result()
    return futures


def errors_of(futures: Sequence[Future[Any]]) -> list[type[BaseException] | None]:
    return [type(error) if (error := future.exception()) else None for future in futures]


def test_changes_that_wait_share_one_commit(
    commits: GroupCommit, connection: sqlite3.Connection, path: Path
) -> None:
    """One commit for the change that held the writer, one for the 32 that waited."""
    statements: list[str] = []
    connection.set_trace_callback(statements.append)

    together(commits, *(insert(number) for number in range(32)))

    assert statements.count("COMMIT") == 2
    assert kept(path) == list(range(32))


def test_a_change_that_is_alone_needs_three_statements(
    commits: GroupCommit, connection: sqlite3.Connection
) -> None:
    statements: list[str] = []
    connection.set_trace_callback(statements.append)

    commits.run(insert(1))

    assert statements == ["BEGIN IMMEDIATE", "INSERT INTO kept VALUES (1)", "COMMIT"]


def test_one_statement_that_is_alone_is_a_transaction_by_itself(
    commits: GroupCommit, connection: sqlite3.Connection, path: Path
) -> None:
    statements: list[str] = []
    connection.set_trace_callback(statements.append)

    commits.run(insert(1), is_atomic=True)

    assert statements == ["INSERT INTO kept VALUES (1)"]
    assert kept(path) == [1]


def test_a_batch_needs_a_statement_for_each_change_and_two_for_all(
    commits: GroupCommit, connection: sqlite3.Connection
) -> None:
    """A savepoint for each would be two more for each."""
    statements: list[str] = []
    connection.set_trace_callback(statements.append)

    together(commits, *(insert(number) for number in range(8)))

    assert len(statements) == 2 + 2 + 8


def test_each_change_gets_its_own_result(commits: GroupCommit) -> None:
    futures = together(commits, *((lambda _, number=number: number) for number in range(8)))

    assert [future.result() for future in futures] == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_change_sees_those_of_its_batch_that_came_before(commits: GroupCommit) -> None:
    """Two that count up in one batch count twice."""

    def count_up(connection: sqlite3.Connection) -> int:
        (count,) = connection.execute("SELECT count(*) FROM kept").fetchone()
        insert(count)(connection)
        return int(count)

    futures = together(commits, *[count_up] * 5)

    assert [future.result() for future in futures] == [0, 1, 2, 3, 4]


def test_a_change_that_raises_is_undone_and_its_neighbours_are_not(
    commits: GroupCommit, path: Path
) -> None:
    refused = ValueError("no")

    before, bad, after = together(
        commits, insert("before"), insert_and_raise("bad", refused), insert("after")
    )

    assert errors_of([before, after]) == [None, None]
    assert bad.exception() is refused
    assert kept(path) == ["after", "before"]


def test_a_change_that_raises_before_it_writes_leaves_its_neighbours_their_commit(
    commits: GroupCommit, connection: sqlite3.Connection, path: Path
) -> None:
    """Such as one that comes too late: there is nothing to undo."""
    statements: list[str] = []
    connection.set_trace_callback(statements.append)

    futures = together(commits, insert("before"), refuse, insert("after"))

    assert errors_of(futures) == [None, ValueError, None]
    assert kept(path) == ["after", "before"]
    assert "ROLLBACK" not in statements


def test_a_change_that_raises_alone_is_undone(commits: GroupCommit, path: Path) -> None:
    with pytest.raises(ValueError, match="no"):
        commits.run(insert_and_raise("bad", ValueError("no")))

    commits.run(insert("next"))

    assert kept(path) == ["next"]


def test_changes_that_all_raise_leave_nothing(commits: GroupCommit, path: Path) -> None:
    futures = together(
        commits, insert_and_raise("a", ValueError()), insert_and_raise("b", LookupError())
    )

    assert errors_of(futures) == [ValueError, LookupError]
    assert kept(path) == []


def test_a_commit_that_fails_is_told_to_each_change_of_its_batch(
    commits: GroupCommit, connection: sqlite3.Connection, path: Path
) -> None:
    """SQLite keeps the transaction open then: it has to be rolled back before the next."""
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("CREATE TABLE child (value REFERENCES kept DEFERRABLE INITIALLY DEFERRED)")

    def orphan(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO child VALUES ('nobody')")

    futures = together(commits, insert("before"), orphan, insert("after"))

    assert errors_of(futures) == [StoreUnavailableError] * 3
    assert kept(path) == []
    commits.run(insert("next"))
    assert kept(path) == ["next"]


def test_a_change_that_failed_by_itself_is_told_its_own_error(
    commits: GroupCommit, connection: sqlite3.Connection
) -> None:
    """Even where the batch is lost as a whole."""

    def roll_back(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT OR ROLLBACK INTO kept VALUES (1)")
        connection.execute("INSERT OR ROLLBACK INTO kept VALUES (1)")

    futures = together(commits, refuse, roll_back)

    assert errors_of(futures) == [ValueError, StoreUnavailableError]


def test_a_transaction_that_sqlite_gives_up_is_told_to_the_whole_batch(
    commits: GroupCommit, path: Path
) -> None:
    """What came before is gone with it; what comes after must not run outside a transaction."""

    def roll_back(connection: sqlite3.Connection) -> None:
        for _ in range(2):
            connection.execute("INSERT OR ROLLBACK INTO kept VALUES ('twice')")

    futures = together(commits, insert("before"), roll_back, insert("after"))

    assert errors_of(futures) == [StoreUnavailableError] * 3
    assert kept(path) == []


def test_a_full_disk_is_told_to_the_whole_batch_and_can_be_got_over(
    commits: GroupCommit, connection: sqlite3.Connection, path: Path
) -> None:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")

    futures = together(commits, insert("before"), insert("x" * 100_000), insert("after"))

    assert errors_of(futures) == [StoreUnavailableError] * 3
    for future in futures:
        assert "full" in future.exception().details["problem"]  # type: ignore[union-attr] # it is
    assert kept(path) == []
    commits.run(insert("small"))
    assert kept(path) == ["small"]


def test_an_interrupt_ends_the_thread_it_came_to_and_tells_the_others(
    commits: GroupCommit, path: Path
) -> None:
    """Ctrl-C in the thread that commits for all: the change must not count as durable."""
    futures = together(
        commits, insert("a"), insert_and_raise("b", KeyboardInterrupt()), insert("c")
    )

    raised = errors_of(futures)
    assert sorted(error.__name__ for error in raised if error) == [
        "KeyboardInterrupt",
        "StoreUnavailableError",
        "StoreUnavailableError",
    ]
    assert kept(path) == []
    commits.run(insert("next"))
    assert kept(path) == ["next"]


def test_an_interrupt_between_the_changes_of_a_batch_that_was_undone_acknowledges_none_behind_it(
    commits: GroupCommit, path: Path
) -> None:
    """Each of them gets its own transaction then; the last one never had it."""
    futures = together(
        commits, insert_and_raise("a", ValueError()), insert_and_raise("b", KeyboardInterrupt()),
        insert("c"),
    )  # fmt: skip

    assert errors_of(futures)[2] in {StoreUnavailableError, KeyboardInterrupt}
    assert kept(path) == []


def test_an_error_of_a_time_that_was_undone_is_not_told(commits: GroupCommit, path: Path) -> None:
    tries = iter([refuse, insert("second")])

    def refuse_once(connection: sqlite3.Connection) -> None:
        next(tries)(connection)

    first, bad = together(commits, refuse_once, insert_and_raise("bad", ValueError()))

    assert errors_of([first, bad]) == [None, ValueError]
    assert kept(path) == ["second"]


def test_a_connection_that_is_closed_acknowledges_nothing(
    commits: GroupCommit, connection: sqlite3.Connection
) -> None:
    connection.close()

    with pytest.raises(StoreUnavailableError):
        commits.run(insert(1))


def test_a_connection_that_is_closed_meanwhile_acknowledges_nothing(
    commits: GroupCommit, connection: sqlite3.Connection, path: Path
) -> None:
    futures = together(commits, insert("a"), lambda _: connection.close(), insert("b"))

    assert errors_of(futures) == [StoreUnavailableError] * 3
    assert kept(path) == []
