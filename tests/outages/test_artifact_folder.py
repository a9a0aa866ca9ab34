"""A folder of artifacts that is not mounted, or is another one, is an outage and no new store."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.lease_meter import MeteredSqlite
from leasehold.adapters.clock import SystemClock
from leasehold.adapters.folder import FolderArtifacts
from leasehold.adapters.folder_identity import IDENTITY
from leasehold.adapters.in_process_tasks import InProcessTasks
from leasehold.bootstrap import Bundle, Purpose, boot, load_catalog
from leasehold.domain.document import Write
from leasehold.domain.manifest import run_ref
from leasehold.errors import StoreUnavailableError

NAME = "runs/r-1/values/input.json"

#: Begins a store as a server does, once its standard input ends, and stores a file.
BEGINS = """
import sys
from leasehold.bootstrap import boot, load_catalog
catalog = load_catalog("tests.in_process.sample")
print("loaded", flush=True)
sys.stdin.read()
boot(catalog=catalog).engine.artifacts.put(f"runs/r-{sys.argv[1]}/values/input.json", b"kept")
"""


def settings(folder: Path, artifacts: str = "artifacts", store: str = "runs.db") -> dict[str, str]:
    return {
        "LEASEHOLD_CATALOG": "tests.in_process.sample",
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
        catalog, tasks = load_catalog("tests.in_process.sample"), InProcessTasks(SystemClock())
        self.opened.append(boot(environ, catalog=catalog, tasks=tasks, purpose=purpose))
        return self.opened[-1]

    def of_before(self) -> None:
        """Make the store one of an earlier version, which marked and noted nothing."""
        bundle = self()
        bundle.engine.documents.delete(IDENTITY)
        for mark in (self._folder / "artifacts").glob(".store-*"):
            mark.unlink()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starts]:
    starts = Starts(tmp_path)
    yield starts
    for bundle in starts.opened:
        bundle.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


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
        catalog = load_catalog("tests.in_process.sample")
        bundle = boot(environ, catalog=catalog, documents=documents, tasks=tasks)
        documents.taken()

        for name in (NAME, NAME, "runs/r-2/values/input.json"):
            bundle.engine.artifacts.put(name, b"kept")
            assert bundle.engine.artifacts.get(name) == b"kept"

        assert documents.taken() == {}
        bundle.close()


def test_a_command_that_only_reads_writes_nothing(start: Starts, folder: Path) -> None:
    start.of_before()
    assert marks(folder) == []

    reading = start(purpose=Purpose.READ).engine
    changing = start(purpose=Purpose.CHANGE).engine
    assert [reading.artifacts.exists(NAME), changing.artifacts.exists(NAME)] == [False, False]

    assert (marks(folder), reading.documents.get(IDENTITY)) == ([], None)


def test_the_folder_of_another_store_is_refused_until_a_person_says_that_it_is_the_one(
    start: Starts, tmp_path: Path
) -> None:
    keep(start("a", "a.db"))
    keep(start("b", "b.db"))

    artifacts = start("b", "a.db").engine.artifacts

    with pytest.raises(StoreUnavailableError, match="folder of another store") as refused:
        artifacts.get(NAME)
    assert len(marks(tmp_path / "b")) == 1
    command = str(refused.value.details["problem"]).split("`")[1]
    subprocess.run(command, shell=True, check=True)  # noqa: S602 - as a person types it
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
    command = str(refused.value.details["problem"]).split("`")[1]
    subprocess.run(command, shell=True, check=True)  # noqa: S602 - as a person types it

    artifacts.put(NAME, b"new")
    assert start().engine.artifacts.get(NAME) == b"new"


def test_a_folder_of_a_store_without_runs_is_made_again(start: Starts, folder: Path) -> None:
    """Nothing can be lost: somebody mounts a disk there before the first run."""
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


def test_a_backup_without_the_mark_is_known_by_the_files_in_it(
    start: Starts, tmp_path: Path
) -> None:
    """It is of before the mark, or by a program that leaves out names with a dot."""
    keep(start())
    shutil.copytree(tmp_path / "artifacts" / "runs", tmp_path / "backup" / "runs")
    (tmp_path / "other" / "runs" / "r-9").mkdir(parents=True)

    assert start("backup").engine.artifacts.get(NAME) == b"kept"
    with pytest.raises(StoreUnavailableError, match="none of the files of the newest runs"):
        start("other").engine.artifacts.put(NAME, b"new")

    assert marks(tmp_path / "backup") == marks(tmp_path / "artifacts")
    assert marks(tmp_path / "other") == []


def test_a_store_of_an_earlier_version_is_adopted(start: Starts, folder: Path) -> None:
    keep(start())
    start.of_before()

    assert start().engine.artifacts.get(NAME) == b"kept"
    unmount(folder)
    with pytest.raises(StoreUnavailableError):
        start().engine.artifacts.put(NAME, b"new")


def test_a_store_of_an_earlier_version_whose_folder_is_not_mounted_is_no_new_one(
    start: Starts, folder: Path
) -> None:
    keep(start())
    start.of_before()
    mounted = unmount(folder)
    artifacts = start().engine.artifacts

    with pytest.raises(StoreUnavailableError, match="runs have files in it"):
        artifacts.put(NAME, b"new")

    assert list(folder.iterdir()) == []
    mount(mounted, folder)
    assert artifacts.get(NAME) == b"kept"


def test_documents_that_are_put_back_know_the_folder_by_its_mark(
    start: Starts, tmp_path: Path
) -> None:
    """A backup of the documents of before the mark, beside the folder of now."""
    keep(start())
    (known,) = marks(tmp_path / "artifacts")

    assert start(store="older.db").engine.artifacts.get(NAME) == b"kept"

    assert marks(tmp_path / "artifacts") == [known]


def test_processes_that_begin_a_store_at_once_agree(tmp_path: Path, folder: Path) -> None:
    waited_for, begin = os.pipe()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", BEGINS, str(number)],
            env=settings(tmp_path),
            cwd=Path(__file__).parents[2],
            stdin=waited_for,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    os.close(begin)
    said = [process.communicate()[1] for process in processes]
    os.close(waited_for)

    assert [process.returncode for process in processes] == [0] * 4, said
    assert len(marks(folder)) == 1
    assert len(FolderArtifacts(folder, SystemClock()).list("runs")) == 4
