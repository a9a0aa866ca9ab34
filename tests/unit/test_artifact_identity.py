"""A folder of artifacts says whose it is: one that is not mounted is an outage, not a new store."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.in_process_tasks import InProcessTasks
from leasehold.bootstrap import Bundle, boot, load_catalog
from leasehold.domain.document import Write
from leasehold.domain.manifest import run_ref
from leasehold.errors import SettingError, StoreUnavailableError

NAME = "runs/r-1/values/input.json"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Bundle]]:
    """Starts an engine on the stores of the test, as another process would."""
    started: list[Bundle] = []

    def start(folder: str = "artifacts", store: str = "runs.db") -> Bundle:
        settings = {
            "LEASEHOLD_STORE": f"sqlite:///{tmp_path / store}",
            "LEASEHOLD_ARTIFACTS": f"file://{tmp_path / folder}",
        }
        catalog = load_catalog("tests.in_process.sample")
        started.append(boot(settings, catalog=catalog, tasks=InProcessTasks(SystemClock())))
        return started[-1]

    yield start
    for bundle in started:
        bundle.close()


def know_file(bundle: Bundle) -> None:
    """Have a run know a file, as of any version."""
    document = {"createdAt": "2026-01-01T00:00:00Z", "inputRef": NAME}
    bundle.engine.documents.transact(run_ref("r-1"), lambda _, __: Write(None, document))


def unmount(folder: Path) -> Path:
    """Leave an empty folder in its place, as a mount point is."""
    mounted = folder.rename(folder.with_name("mounted"))
    folder.mkdir()
    return mounted


def test_a_folder_that_is_not_mounted_at_a_start_is_an_outage_until_it_is_back(
    start: Callable[..., Bundle], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It had become a new store: outputs were gone, and others were begun in their place."""
    folder = tmp_path / "artifacts"
    start().engine.artifacts.put(NAME, b"kept")
    mounted = unmount(folder)

    artifacts = start().engine.artifacts

    for call in (lambda: artifacts.put(NAME, b"new"), lambda: artifacts.get(NAME)):
        with pytest.raises(StoreUnavailableError, match="the artifacts are not there: mount them"):
            call()
    assert list(folder.iterdir()) == []
    assert [line for line in caplog.messages if "is not mounted, or lost" in line]
    folder.rmdir()
    mounted.rename(folder)
    assert artifacts.get(NAME) == b"kept"
    artifacts.put(NAME, b"new")


def test_a_start_makes_nothing_and_the_first_file_makes_both(
    start: Callable[..., Bundle], tmp_path: Path
) -> None:
    first, other = start(), start()
    assert not (tmp_path / "artifacts").exists()

    first.engine.artifacts.put(NAME, b"kept")
    other.engine.artifacts.put(NAME, b"new")

    (mark,) = (tmp_path / "artifacts" / ".unfinished").iterdir()
    assert mark.is_dir()
    assert start().engine.artifacts.get(NAME) == b"new"


def test_the_folder_of_another_store_is_refused(
    start: Callable[..., Bundle], tmp_path: Path
) -> None:
    start("a", "a.db").engine.artifacts.put(NAME, b"a")
    start("b", "b.db").engine.artifacts.put(NAME, b"b")

    with pytest.raises(SettingError, match="this one is of another store"):
        start("b", "a.db")


def test_a_folder_of_an_earlier_version_is_adopted_where_the_files_of_runs_are_in_it(
    start: Callable[..., Bundle], tmp_path: Path
) -> None:
    folder = tmp_path / "artifacts"
    file = folder / NAME
    file.parent.mkdir(parents=True)
    file.write_bytes(b"kept")
    (folder / ".unfinished").mkdir()
    know_file(start("elsewhere"))

    start()
    mounted = unmount(folder)
    artifacts = start().engine.artifacts

    with pytest.raises(StoreUnavailableError):
        artifacts.put(NAME, b"new")
    assert [*(mounted / ".unfinished").iterdir()]


def test_an_empty_folder_is_no_new_store_where_runs_have_files(
    start: Callable[..., Bundle], tmp_path: Path
) -> None:
    """An earlier version stored them, and said nowhere whose they are."""
    folder = tmp_path / "artifacts"
    folder.mkdir()
    bundle = start()
    know_file(bundle)

    with pytest.raises(StoreUnavailableError, match="runs have files in it"):
        bundle.engine.artifacts.put(NAME, b"new")

    assert list(folder.iterdir()) == []

    (folder / ".unfinished").mkdir()  # as the error says, for one that is lost
    bundle.engine.artifacts.put(NAME, b"new")


def test_a_folder_put_back_without_its_mark_is_known_by_the_files_in_it(
    start: Callable[..., Bundle], tmp_path: Path
) -> None:
    """A backup of before the mark, or by a program that keeps no empty folders."""
    bundle = start()
    bundle.engine.artifacts.put(NAME, b"kept")
    know_file(bundle)
    shutil.rmtree(tmp_path / "artifacts" / ".unfinished")

    artifacts = start().engine.artifacts

    assert artifacts.get(NAME) == b"kept"
    artifacts.put(NAME, b"new")
    unmount(tmp_path / "artifacts")
    with pytest.raises(StoreUnavailableError, match="mount them"):
        start().engine.artifacts.put(NAME, b"newer")


def test_processes_that_begin_a_folder_at_once_agree_who_it_is(
    start: Callable[..., Bundle], tmp_path: Path
) -> None:
    stores = [start().engine.artifacts for _ in range(4)]
    together = threading.Barrier(len(stores))

    def put(number: int) -> str:
        together.wait(30)
        return stores[number].put(f"runs/r-{number}/values/input.json", b"kept")

    with ThreadPoolExecutor(len(stores)) as pool:
        assert len(set(pool.map(put, range(len(stores))))) == len(stores)

    unmounted = unmount(tmp_path / "artifacts")
    after = start().engine.artifacts
    with pytest.raises(StoreUnavailableError):
        after.put(NAME, b"new")
    (tmp_path / "artifacts").rmdir()
    unmounted.rename(tmp_path / "artifacts")
    after.put(NAME, b"new")
    assert len(after.list("runs")) == len(stores)
