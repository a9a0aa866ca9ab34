"""The file a SQLite store lies in: how it is opened, and when it is refused."""

import contextlib
import multiprocessing
import shutil
import sqlite3
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.sqlite import SqliteDocuments, schema
from leasehold.adapters.sqlite import documents as documents_of_sqlite
from leasehold.domain.stored import Document, Ref, Write
from leasehold.errors import StoreUnavailableError, StoreVersionError
from leasehold.ports.documents import Query
from tests.unit.adapters.processes import close_while_others_write, put
from tests.worlds.waiting import until

REF = Ref("runs", "r-1")


def open_files(path: Path) -> int:
    """Return how many files of the store this process has open."""
    return sum(
        str(link.readlink()).startswith(str(path))
        for link in Path("/proc/self/fd").iterdir()
        if link.is_symlink()
    )


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="open files are seen in /proc alone"
)


def test_a_store_is_made_with_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "runs.db"

    SqliteDocuments(path, SystemClock()).close()

    assert path.is_file()


def test_a_store_is_there_again_when_it_is_opened_again(path: Path) -> None:
    first = SqliteDocuments(path, SystemClock())
    first.transact(REF, put({"count": 1}))
    first.close()

    second = SqliteDocuments(path, SystemClock())
    found = second.get(REF)
    second.close()

    assert found is not None
    assert found.document == {"count": 1}


def test_a_commit_is_synced_to_a_log_ahead(documents: SqliteDocuments, path: Path) -> None:
    """WAL, and synchronous=FULL on each connection: that one is not kept in the file."""
    documents.get(REF)
    writer = documents._commits._connection  # noqa: SLF001 - a connection of ours shows ours alone
    connections = [writer, *documents._idle]  # noqa: SLF001 - as above

    found = [
        (
            connection.execute("PRAGMA journal_mode").fetchone()[0],
            connection.execute("PRAGMA synchronous").fetchone()[0],
        )
        for connection in connections
    ]

    assert found == [("wal", 2), ("wal", 2)]
    assert path.with_name("runs.db-wal").exists()


def test_a_file_of_a_newer_version_is_refused_and_not_touched(path: Path) -> None:
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA journal_mode = WAL")
    newer.execute("CREATE TABLE runs (of_a_later_shape)")
    newer.execute("PRAGMA user_version = 1000")
    newer.close()
    before = path.read_bytes()

    with pytest.raises(StoreVersionError) as raised:
        SqliteDocuments(path, SystemClock())

    assert raised.value.details["found"] == 1000
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["runs.db"]


def test_a_file_from_before_the_first_release_is_refused_and_not_touched(path: Path) -> None:
    SqliteDocuments(path, SystemClock()).close()
    older = sqlite3.connect(path)
    older.execute("PRAGMA user_version = 2")
    older.close()
    before = path.read_bytes()

    with pytest.raises(
        StoreVersionError, match=r"is older than 0\.1\.0: delete the file, or choose"
    ):
        SqliteDocuments(path, SystemClock())

    assert path.read_bytes() == before


def test_a_file_gets_the_table_that_an_earlier_release_did_not_make(path: Path) -> None:
    """It needs no version of its own: the earlier release goes on with the file."""
    SqliteDocuments(path, SystemClock()).close()
    file = sqlite3.connect(path)
    file.execute("DROP TABLE overrides")
    file.close()

    documents = SqliteDocuments(path, SystemClock())
    found = documents.query(Query("overrides"))
    documents.close()

    assert found == []


def test_a_file_gets_the_columns_that_an_earlier_release_did_not_make(path: Path) -> None:
    """The entries that are there are found by them; the earlier release goes on with the file."""
    entry = {"endedAt": "2026-01-01T12:00:00Z", "stepTypes": ["draft", "send"]}
    documents = SqliteDocuments(path, SystemClock())
    documents.transact(Ref("ledger", "r-1"), lambda *_: Write(None, entry))
    documents.transact(Ref("ledger", "r-2"), lambda *_: Write(None, {"endedAt": "soon"}))
    documents.close()
    file = sqlite3.connect(path)
    file.execute("DROP INDEX ledger_endedAt")
    for column in ("endedAt", "stepTypes"):
        file.execute(f"ALTER TABLE ledger DROP COLUMN {column}")
    file.execute("INSERT INTO ledger (parent, id, version, body) VALUES ('', 'r-3', 1, '{}')")
    file.commit()
    file.close()

    documents = SqliteDocuments(path, SystemClock())
    query = Query("ledger", contains=("stepTypes", "send"), order_by="endedAt", descending=True)
    found = documents.query(query)
    documents.close()

    assert [one.ref.id for one in found] == ["r-1"]


@needs_proc
def test_a_file_that_is_refused_is_closed(path: Path) -> None:
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 1000")
    newer.close()

    with pytest.raises(StoreVersionError) as raised:
        SqliteDocuments(path, SystemClock())

    assert raised.value.__traceback__ is not None  # it still holds what was opened
    assert open_files(path) == 0


FOREIGN = {
    "tables": ["CREATE TABLE walks (km)", "INSERT INTO walks VALUES (7)"],
    "tables that look like ours": ["CREATE TABLE runs (id)", "PRAGMA user_version = 1"],
    "a version": ["PRAGMA user_version = 1"],
    "an application id": ["PRAGMA application_id = 7"],
}


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
@pytest.mark.parametrize("content", FOREIGN)
def test_a_database_of_another_program_is_refused_and_not_touched(
    path: Path, content: str, journal: str
) -> None:
    foreign = sqlite3.connect(path)
    for statement in (f"PRAGMA journal_mode = {journal}", *FOREIGN[content]):
        foreign.execute(statement)
    foreign.commit()
    foreign.close()
    before = path.read_bytes()

    with pytest.raises(StoreUnavailableError, match="it is another program's database"):
        SqliteDocuments(path, SystemClock())

    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["runs.db"]


def test_the_log_of_another_program_is_not_moved_into_its_database(path: Path) -> None:
    """The last process to close a file with a log would do that."""
    foreign = sqlite3.connect(path.with_name("theirs.db"))
    foreign.execute("PRAGMA journal_mode = WAL")
    foreign.execute("CREATE TABLE walks (km)")
    shutil.copy(path.with_name("theirs.db"), path)
    shutil.copy(path.with_name("theirs.db-wal"), path.with_name("runs.db-wal"))
    foreign.close()
    before = path.read_bytes(), path.with_name("runs.db-wal").read_bytes()

    with pytest.raises(StoreUnavailableError, match="it is another program's database"):
        SqliteDocuments(path, SystemClock())

    assert (path.read_bytes(), path.with_name("runs.db-wal").read_bytes()) == before


def test_a_store_that_was_never_closed_opens_with_its_log(
    documents: SqliteDocuments, path: Path
) -> None:
    """After a crash all of it, its mark too, may be in the log alone."""
    documents.transact(REF, put({"count": 1}))
    crashed = path.with_name("crashed.db")
    shutil.copy(path, crashed)
    shutil.copy(path.with_name("runs.db-wal"), crashed.with_name("crashed.db-wal"))

    again = SqliteDocuments(crashed, SystemClock())
    found = again.get(REF)
    again.close()

    assert found is not None
    assert found.document == {"count": 1}


def test_a_store_is_marked_as_ours(documents: SqliteDocuments, path: Path) -> None:
    reader = sqlite3.connect(path)

    (mark,) = reader.execute("PRAGMA application_id").fetchone()

    reader.close()
    assert mark.to_bytes(4, "big") == b"LHLD"


@pytest.mark.parametrize("name", ["file:runs.db", "file:x?mode=memory", "a b%20c.db"])
def test_a_name_is_never_taken_for_a_uri(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)

    SqliteDocuments(Path(name), SystemClock()).close()
    documents = SqliteDocuments(Path(name), SystemClock())
    documents.close()

    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_relative_path_stays_where_it_was_when_the_program_changes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers connect later than the writer did."""
    monkeypatch.chdir(tmp_path)
    documents = SqliteDocuments(Path("runs.db"), SystemClock())
    documents.transact(REF, put({"count": 1}))
    (tmp_path / "elsewhere").mkdir()

    monkeypatch.chdir(tmp_path / "elsewhere")
    found = documents.get(REF)
    documents.close()

    assert found is not None
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_that_cannot_be_made_leaves_no_folder_behind(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError):
        SqliteDocuments(tmp_path / "a" / "b" / ("n" * 300), SystemClock())

    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_a_database_is_refused_and_not_touched(path: Path) -> None:
    path.write_bytes(b"# Notes\n" * 1000)

    with pytest.raises(StoreUnavailableError) as raised:
        SqliteDocuments(path, SystemClock())

    assert raised.value.details["store"] == str(path)
    assert path.read_bytes() == b"# Notes\n" * 1000


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()

    documents = SqliteDocuments(path, SystemClock())
    documents.transact(REF, put({}))
    documents.close()

    assert path.stat().st_size > 0


@pytest.mark.parametrize(
    "place", [lambda path: path / "runs.db", lambda path: path / "a" / "b" / "runs.db"]
)
def test_a_place_below_a_regular_file_is_refused(path: Path, place: Callable[[Path], Path]) -> None:
    path.touch()

    with pytest.raises(StoreUnavailableError):
        SqliteDocuments(place(path), SystemClock())


def test_a_folder_in_place_of_the_file_is_refused(path: Path) -> None:
    path.mkdir()

    with pytest.raises(StoreUnavailableError):
        SqliteDocuments(path, SystemClock())


def test_what_sqlite_refuses_later_is_the_ports_error(
    documents: SqliteDocuments, path: Path
) -> None:
    """A table was dropped: neither a read nor a write reports it in SQLite's words."""
    vandal = sqlite3.connect(path)
    vandal.execute("DROP TABLE runs")
    vandal.close()

    with pytest.raises(StoreUnavailableError):
        documents.get(REF)
    with pytest.raises(StoreUnavailableError):
        documents.query(Query("runs"))
    with pytest.raises(StoreUnavailableError):
        documents.transact(REF, put({}))
    with pytest.raises(StoreUnavailableError):
        documents.delete(REF)


def test_a_collection_that_is_not_kept_is_a_mistake(documents: SqliteDocuments) -> None:
    """Not an error of the store: asking again would not help."""
    with pytest.raises(KeyError):
        documents.get(Ref("walks", "r-1"))
    with pytest.raises(KeyError):
        documents.transact(Ref("walks", "r-1"), put({}))


def test_a_query_that_no_index_serves_is_a_mistake(documents: SqliteDocuments) -> None:
    with pytest.raises(ValueError, match="cannot be asked"):
        documents.query(Query("runs", order_by="updatedAt"))


@needs_proc
def test_threads_that_ended_leave_no_file_open(documents: SqliteDocuments, path: Path) -> None:
    """A server may use a new thread for each request."""
    documents.get(REF)
    before = open_files(path)

    for _ in range(20):
        thread = threading.Thread(target=documents.get, args=(REF,))
        thread.start()
        thread.join()

    assert open_files(path) == before


@needs_proc
def test_close_leaves_no_file_open(documents: SqliteDocuments, path: Path) -> None:
    documents.transact(REF, put({}))
    documents.get(REF)

    documents.close()

    assert open_files(path) == 0
    assert [file.name for file in path.parent.iterdir()] == ["runs.db"]


def test_a_read_that_outlives_the_store_closes_its_own_connection(path: Path) -> None:
    """To close one in use ends the process, and a handler that hung may come back at any time."""
    documents = SqliteDocuments(path, SystemClock())

    with documents._reading() as connection:  # noqa: SLF001 - between two lines of a query
        documents.close()
        assert connection.execute("SELECT 1").fetchone() == (1,)

    assert open_files(path) == 0
    with pytest.raises(StoreUnavailableError, match="it was closed"):
        documents.get(REF)


def test_close_waits_for_the_change_of_another_thread(path: Path) -> None:
    """Such as a renewal that is on its way: to close a connection in use ends the process."""
    documents = SqliteDocuments(path, SystemClock())
    inside, may_continue = threading.Event(), threading.Event()

    def decide(_: Document | None, __: datetime) -> Write[None]:
        inside.set()
        may_continue.wait(60)
        return Write(None, {"count": 1})

    writing = threading.Thread(target=documents.transact, args=(REF, decide))
    writing.start()
    assert inside.wait(60)
    closing = threading.Thread(target=documents.close)
    closing.start()
    closing.join(0.1)
    closed_too_soon = not closing.is_alive()
    may_continue.set()
    writing.join(60)
    closing.join(60)

    again = SqliteDocuments(path, SystemClock())
    found = again.get(REF)
    again.close()
    assert not closed_too_soon
    assert found is not None
    assert found.document == {"count": 1}


def test_a_process_outlives_that_it_closes_a_store_others_write_to(path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(
        target=close_while_others_write, args=(path,)
    )
    process.start()
    process.join(30)

    assert process.exitcode == 0


def test_a_change_waits_for_the_one_of_another_process(
    documents: SqliteDocuments, path: Path
) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    thread = threading.Thread(target=documents.transact, args=(REF, put({"count": 1})))
    thread.start()
    assert documents.get(REF) is None

    other.execute("COMMIT")
    thread.join(60)

    assert documents.get(REF) is not None
    other.close()


def test_a_forked_process_is_refused(documents: SqliteDocuments) -> None:
    """SQLite's locks do not follow into it: what it wrote could destroy the file."""
    documents.transact(REF, put({"count": 1}))

    def use() -> None:
        with pytest.raises(StoreUnavailableError, match="must open its own"):
            documents.get(REF)
        with pytest.raises(StoreUnavailableError, match="must open its own"):
            documents.transact(REF, put({"count": 2}))

    child = multiprocessing.get_context("fork").Process(target=use)
    child.start()
    child.join()

    assert child.exitcode == 0
    assert documents.get(REF) is not None


def mode_of(path: Path) -> str:
    return oct(path.stat().st_mode & 0o777)


def test_a_store_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Inputs and outputs of runs lie in it; so do its log and the index of that."""
    path = tmp_path / "a" / "b" / "runs.db"

    documents = SqliteDocuments(path, SystemClock())
    documents.transact(REF, put({"count": 1}))

    files = [path.with_name(f"runs.db{end}") for end in ("", "-wal", "-shm")]
    assert [mode_of(file) for file in files] == ["0o600"] * 3
    assert [mode_of(folder) for folder in path.parents[:2]] == ["0o700"] * 2
    documents.close()


def test_who_may_read_a_store_that_is_there_is_its_owners_business(path: Path) -> None:
    """A group may share it: permissions set with chmod stay."""
    SqliteDocuments(path, SystemClock()).close()
    path.chmod(0o640)
    path.parent.chmod(0o750)

    documents = SqliteDocuments(path, SystemClock())
    documents.transact(REF, put({"count": 1}))

    assert [mode_of(it) for it in (path, path.with_name("runs.db-wal"))] == ["0o640"] * 2
    assert mode_of(path.parent) == "0o750"
    documents.close()


def journal_of(path: Path) -> str:
    with contextlib.closing(sqlite3.connect(path)) as other:
        return str(other.execute("PRAGMA journal_mode").fetchone()[0])


def test_a_copy_in_another_journal_mode_is_put_back_into_wal(path: Path) -> None:
    """VACUUM INTO, the way to back a store up, writes a copy without WAL."""
    documents = SqliteDocuments(path.with_name("first.db"), SystemClock())
    documents.transact(REF, put({"count": 1}))
    documents.close()
    with contextlib.closing(sqlite3.connect(path.with_name("first.db"))) as other:
        other.execute("VACUUM INTO ?", (str(path),))
    assert journal_of(path) == "delete"

    copy = SqliteDocuments(path, SystemClock())
    found = copy.get(REF)
    copy.close()

    assert found is not None
    assert found.document == {"count": 1}
    assert journal_of(path) == "wal"


def test_a_file_that_cannot_be_put_into_wal_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader has it open meanwhile; without WAL, readers and the writer wait for each other."""
    monkeypatch.setattr(schema, "_WAL_TRIES", 2)
    monkeypatch.setattr(documents_of_sqlite, "BUSY_TIMEOUT_S", 0.2)
    SqliteDocuments(path, SystemClock()).close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("PRAGMA journal_mode = DELETE")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM runs").fetchall()

        with pytest.raises(StoreUnavailableError, match=r"journal mode 'delete'.*another program"):
            SqliteDocuments(path, SystemClock())

        reader.execute("ROLLBACK")
        SqliteDocuments(path, SystemClock()).close()

    assert journal_of(path) == "wal"


def refusal_of_write(documents: SqliteDocuments) -> str:
    """Return the words with which a write is refused; the writer has the file, wherever it lies."""

    def refused() -> str:
        try:
            documents.transact(REF, put({"count": 5}))
        except StoreUnavailableError as error:
            return error.message
        return ""

    return until(refused)


def test_a_file_that_is_moved_away_is_an_outage_and_is_not_made_again(
    documents: SqliteDocuments, path: Path, tmp_path: Path
) -> None:
    """A new file would be read in its place forever, and SQLite would delete the log beside it."""
    documents.transact(REF, put({"count": 1}))
    path.rename(tmp_path / "away")

    with pytest.raises(StoreUnavailableError):
        documents.get(REF)  # the first read: it needs a connection
    assert "its file was moved, deleted or replaced" in refusal_of_write(documents)
    assert not path.exists()
    (tmp_path / "away").rename(path)
    documents.transact(REF, put({"count": 2}))
    found = documents.get(REF)
    with contextlib.closing(SqliteDocuments(path, SystemClock())) as another:
        found_by_another = another.get(REF)

    assert found is not None
    assert found_by_another is not None
    assert found.document == found_by_another.document == {"count": 2}


@pytest.mark.parametrize("put_another", [False, True], ids=["deleted", "replaced"])
def test_nothing_is_written_into_a_file_that_no_other_process_finds(
    documents: SqliteDocuments, path: Path, put_another: bool
) -> None:
    """A server took runs for hours, said that it was ready, and its end took the runs with it."""
    documents.transact(REF, put({"count": 1}))
    documents.get(REF)
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    if put_another:
        SqliteDocuments(path, SystemClock()).close()

    assert "put that file back, or restart this process" in refusal_of_write(documents)
    with pytest.raises(StoreUnavailableError):
        documents.delete(REF)


def test_a_log_whose_file_is_gone_is_refused_and_kept(
    documents: SqliteDocuments, path: Path, tmp_path: Path
) -> None:
    """Another process would begin a new file, and what is in the log alone would be lost."""
    documents.transact(REF, put({"count": 1}))
    log = path.with_name(f"{path.name}-wal")
    size = log.stat().st_size
    path.rename(tmp_path / "away")

    with pytest.raises(StoreUnavailableError, match="its log is not"):
        SqliteDocuments(path, SystemClock())

    assert not path.exists()
    assert log.stat().st_size == size
