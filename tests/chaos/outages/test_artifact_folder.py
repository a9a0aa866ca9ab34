"""A folder of artifacts that is not mounted, or is another one, is an outage and no new store."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from bench.lease_meter import MeteredSqlite
from leasehold.adapters.clock import SystemClock
from leasehold.adapters.folder import FolderArtifacts
from leasehold.adapters.folder_identity import IDENTITY
from leasehold.adapters.in_process_tasks import InProcessTasks
from leasehold.bootstrap import Bundle, Purpose, boot, load_catalog
from leasehold.domain.manifest import run_ref
from leasehold.domain.stored import Write
from leasehold.errors import ArtifactNameError, StoreUnavailableError
from tests.worlds.processes import spawned

NAME = "runs/r-1/values/input.json"


def settings(folder: Path, artifacts: str = "artifacts", store: str = "runs.db") -> dict[str, str]:
    return {
        "LEASEHOLD_CATALOG": "tests.worlds.catalogs.sample",
        "LEASEHOLD_STORE": f"sqlite:///{folder / store}",
        "LEASEHOLD_ARTIFACTS": f"file://{folder / artifacts}",
    }


class Starts:
    """Opens stores as other processes would."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.opened: list[Bundle] = []

    def __call__(
        self, artifacts: str = "artifacts", store: str = "runs.db", purpose: Purpose = Purpose.RUN
    ) -> Bundle:
        environ = settings(self._folder, artifacts, store)
        catalog, tasks = load_catalog("tests.worlds.catalogs.sample"), InProcessTasks(SystemClock())
        self.opened.append(boot(environ, catalog=catalog, tasks=tasks, purpose=purpose))
        return self.opened[-1]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starts]:
    starts = Starts(tmp_path)
    yield starts
    for bundle in starts.opened:
        bundle.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


def begin_store(pipe: Connection, folder: Path, number: int) -> None:
    """Begin a store as a server does, once the other end of the pipe says so, and store a file."""
    catalog, tasks = load_catalog("tests.worlds.catalogs.sample"), InProcessTasks(SystemClock())
    pipe.send("loaded")
    pipe.recv()
    bundle = boot(settings(folder), catalog=catalog, tasks=tasks)
    bundle.engine.artifacts.put(f"runs/r-{number}/values/input.json", b"kept")
    bundle.close()


def know_file(bundle: Bundle, name: str = NAME) -> None:
    """Have a run know a file, as of any version."""
    document = {"createdAt": "2026-01-01T00:00:00Z", "inputRef": name}
    bundle.engine.documents.transact(run_ref("r-1"), lambda _, __: Write(None, document))


def keep(bundle: Bundle) -> None:
    """Have a run with a file."""
    bundle.engine.artifacts.put(NAME, b"kept")
    know_file(bundle)


def unmount(folder: Path) -> Path:
    """Leave an empty folder in its place, as a mount point is."""
    mounted = folder.rename(folder.with_name("mounted"))
    folder.mkdir()
    return mounted


def mount(mounted: Path, folder: Path) -> None:
    folder.rmdir()
    mounted.rename(folder)


def obey(error: StoreUnavailableError) -> None:
    """Type what the error says."""
    command = str(error.details["problem"]).split("`")[1]
    subprocess.run(command, shell=True, check=True)  # noqa: S602 - as a person types it


def marks(folder: Path) -> list[str]:
    return [path.name for path in folder.glob(".store-*")]


def test_a_folder_that_is_not_mounted_when_a_process_begins_is_an_outage_until_it_is_back(
    start: Starts, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It had become a new store: outputs were gone, and others were begun in their place."""
    keep(start())
    mounted = unmount(folder)

    artifacts = start().engine.artifacts

    calls: list[Callable[[], object]] = [
        lambda: artifacts.put(NAME, b"new"),
        lambda: artifacts.get(NAME),
        lambda: artifacts.exists(NAME),
        lambda: artifacts.list("runs"),
        lambda: artifacts.delete("runs/r-1"),
        lambda: artifacts.compress("runs/r-1"),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailableError, match="it is not mounted, or it is lost"):
            call()
    assert list(folder.iterdir()) == []
    assert len([line for line in caplog.messages if "it is not mounted" in line]) == 1
    mount(mounted, folder)
    assert artifacts.get(NAME) == b"kept"
    artifacts.put(NAME, b"new")


def test_a_folder_that_goes_under_a_process_and_comes_back_is_found_at_once(
    start: Starts, folder: Path
) -> None:
    bundle = start()
    keep(bundle)
    artifacts = bundle.engine.artifacts
    for _ in range(2):
        mounted = unmount(folder)
        (folder / ".unfinished").mkdir()  # as another version of before made it there
        with pytest.raises(StoreUnavailableError):
            artifacts.put(NAME, b"new")
        (folder / ".unfinished").rmdir()
        mount(mounted, folder)
        assert artifacts.get(NAME) == b"kept"


def test_no_step_pays_for_it(tmp_path: Path) -> None:
    """Neither the first file of a process or of a store, nor any other one."""
    for _ in range(2):
        documents = MeteredSqlite(tmp_path / "runs.db")
        environ, tasks = settings(tmp_path), InProcessTasks(SystemClock())
        catalog = load_catalog("tests.worlds.catalogs.sample")
        bundle = boot(environ, catalog=catalog, documents=documents, tasks=tasks)
        documents.taken()

        for name in (NAME, NAME, "runs/r-2/values/input.json"):
            bundle.engine.artifacts.put(name, b"kept")
            assert bundle.engine.artifacts.get(name) == b"kept"

        assert documents.taken() == {}
        bundle.close()


def test_a_command_that_only_looks_or_stores_no_file_writes_nothing(
    start: Starts, folder: Path
) -> None:
    reading = start(purpose=Purpose.READ).engine
    changing = start(purpose=Purpose.CHANGE).engine
    know_file(start(purpose=Purpose.CHANGE))

    assert [reading.artifacts.exists(NAME), changing.artifacts.exists(NAME)] == [False, False]
    assert [*reading.artifacts.list("runs"), *changing.artifacts.list("runs")] == []
    changing.artifacts.delete("runs/r-1")

    assert (folder.exists(), reading.documents.get(IDENTITY)) == (False, None)


def test_a_command_that_stores_the_first_file_begins_the_store(start: Starts, folder: Path) -> None:
    changing = start(purpose=Purpose.CHANGE)
    keep(changing)
    unmount(folder)

    with pytest.raises(StoreUnavailableError, match="it is not mounted, or it is lost"):
        start().engine.artifacts.get(NAME)


def test_the_mark_is_not_listed_among_the_artifacts(start: Starts, folder: Path) -> None:
    """Not in a list, by its name or in a purge; and a file of such a name cannot be stored."""
    bundle = start()
    keep(bundle)
    artifacts, (mark,) = bundle.engine.artifacts, marks(folder)
    calls: list[Callable[[], object]] = [
        lambda: artifacts.get(mark),
        lambda: artifacts.exists(mark),
        lambda: artifacts.delete(mark),
        lambda: artifacts.delete_file(mark),
        lambda: artifacts.put(f".store-{'0' * 16}", b"mine"),
        lambda: artifacts.put(f".store-{'0' * 16}/files/a", b"mine"),
    ]

    assert artifacts.list("") == [NAME]
    for call in calls:
        with pytest.raises(ArtifactNameError):
            call()
    artifacts.compress("runs")
    artifacts.delete("runs")

    assert (artifacts.list(""), marks(folder)) == ([], [mark])


def test_a_command_that_meets_it_says_so_in_one_line(
    start: Starts, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It prints the error, as any other; a log line would be the same once more."""
    keep(start())
    unmount(folder)

    for purpose in (Purpose.READ, Purpose.CHANGE):
        with pytest.raises(StoreUnavailableError):
            start(purpose=purpose).engine.artifacts.get(NAME)

    assert caplog.messages == []


def test_the_folder_of_another_store_is_refused_until_a_person_says_that_it_is_the_one(
    start: Starts, tmp_path: Path
) -> None:
    keep(start("a", "a.db"))
    keep(start("b", "b.db"))

    artifacts = start("b", "a.db").engine.artifacts

    with pytest.raises(StoreUnavailableError, match="folder of another store") as refused:
        artifacts.get(NAME)
    assert len(marks(tmp_path / "b")) == 1
    obey(refused.value)
    assert artifacts.get(NAME) == b"kept"
    assert start("b", "b.db").engine.artifacts.get(NAME) == b"kept"


def test_a_folder_that_is_lost_is_begun_anew_by_the_command_that_the_error_names(
    start: Starts, folder: Path
) -> None:
    keep(start())
    shutil.rmtree(folder)
    artifacts = start().engine.artifacts

    with pytest.raises(StoreUnavailableError) as refused:
        artifacts.put(NAME, b"new")
    assert not folder.exists()
    obey(refused.value)

    artifacts.put(NAME, b"new")
    assert start().engine.artifacts.get(NAME) == b"new"


def test_a_folder_of_a_store_without_runs_is_made_again(start: Starts, folder: Path) -> None:
    """Nothing can be lost: a disk is mounted there before the first run."""
    start()
    shutil.rmtree(folder)

    start().engine.artifacts.put(NAME, b"new")

    assert len(marks(folder)) == 1


def test_a_folder_that_is_moved_copied_or_restored_is_the_store(
    start: Starts, tmp_path: Path
) -> None:
    keep(start())
    shutil.copytree(tmp_path / "artifacts", tmp_path / "backup")
    (tmp_path / "artifacts").rename(tmp_path / "moved")

    for place in ("backup", "moved"):
        assert start(place).engine.artifacts.get(NAME) == b"kept"


def test_a_backup_without_the_mark_is_taken_once_a_person_says_so(
    start: Starts, tmp_path: Path
) -> None:
    """By a program that leaves out names with a dot: it may be any folder."""
    keep(start())
    shutil.copytree(tmp_path / "artifacts" / "runs", tmp_path / "backup" / "runs")
    artifacts = start("backup").engine.artifacts

    with pytest.raises(StoreUnavailableError) as refused:
        artifacts.get(NAME)
    obey(refused.value)

    assert artifacts.get(NAME) == b"kept"
    assert marks(tmp_path / "backup") == marks(tmp_path / "artifacts")


def test_documents_that_are_lost_and_begun_anew_know_the_folder_by_its_mark(
    start: Starts, tmp_path: Path
) -> None:
    keep(start())
    (known,) = marks(tmp_path / "artifacts")

    assert start(store="new.db").engine.artifacts.get(NAME) == b"kept"

    assert marks(tmp_path / "artifacts") == [known]


def test_processes_that_begin_a_store_at_once_agree(tmp_path: Path, folder: Path) -> None:
    pipes = [Pipe() for _ in range(4)]
    processes = [
        spawned(begin_store, there, tmp_path, number) for number, (_, there) in enumerate(pipes)
    ]
    for here, _ in pipes:
        assert here.recv() == "loaded"
    for here, _ in pipes:
        here.send("begin")
    for process in processes:
        process.join(60)

    assert [process.exitcode for process in processes] == [0] * 4
    assert len(marks(folder)) == 1
    assert len(FolderArtifacts(folder, SystemClock()).list("runs")) == 4
