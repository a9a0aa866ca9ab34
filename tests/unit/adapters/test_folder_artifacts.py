"""Artifacts in a folder: what writes that were cut leave behind, and what the system refuses."""

import multiprocessing
import os
import resource
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.folder import FolderArtifacts
from leasehold.adapters.in_process_tasks import InProcessTasks
from leasehold.attempt.values import keep, load
from leasehold.bootstrap import boot, load_catalog
from leasehold.errors import ArtifactNameError, ArtifactNotFoundError, StoreUnavailableError
from leasehold.services.sweep import sweep
from leasehold.testing import FrozenClock
from tests.unit.adapters.processes import stop_in_the_middle_of_put

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


@pytest.fixture
def artifacts(root: Path) -> FolderArtifacts:
    return FolderArtifacts(root, SystemClock())


def unfinished(root: Path) -> list[str]:
    return sorted(file.name for file in (root / ".unfinished").iterdir())


def leave(root: Path, name: str, age: timedelta) -> None:
    """Leave a half-written file that is this old for a frozen clock."""
    file = root / ".unfinished" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"half")
    at = (FrozenClock().now() - age).timestamp()
    os.utime(file, (at, at))


def test_what_cut_writes_left_an_hour_ago_is_swept_at_open(root: Path) -> None:
    leave(root, "old", timedelta(hours=1, seconds=1))
    leave(root, "older", timedelta(days=30))

    FolderArtifacts(root, FrozenClock())

    assert unfinished(root) == []


def test_what_is_being_written_is_not_swept(root: Path) -> None:
    """Another process may be in the middle of it."""
    leave(root, "just now", timedelta(seconds=0))
    leave(root, "a while ago", timedelta(minutes=59))

    FolderArtifacts(root, FrozenClock())

    assert unfinished(root) == ["a while ago", "just now"]


def test_what_a_kill_left_goes_where_nothing_is_stored_any_more(root: Path, tmp_path: Path) -> None:
    """An idle server looks each hour, in its sweep: what it found at its start was too young."""
    clock = FrozenClock()
    leave(root, "cut", timedelta(minutes=1))
    settings = {
        "LEASEHOLD_STORE": f"sqlite:///{tmp_path}/runs.db",
        "LEASEHOLD_ARTIFACTS": f"file://{root}",
    }
    catalog = load_catalog("tests.worlds.catalogs.sample")
    bundle = boot(settings, catalog=catalog, clock=clock, tasks=InProcessTasks(clock))

    sweep(bundle.engine)
    clock.advance(3601)
    left = unfinished(root)
    sweep(bundle.engine)

    assert (left, unfinished(root)) == (["cut"], [])
    bundle.close()


def test_what_a_cut_write_left_is_swept_while_the_store_is_in_use(
    root: Path, artifacts: FolderArtifacts
) -> None:
    """A server runs for weeks, and what was cut just before it started was too young then."""
    left = root / ".unfinished" / "tmp-cut"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    an_hour_ago = SystemClock().now().timestamp() - 3700
    os.utime(left, (an_hour_ago, an_hour_ago))

    artifacts.put("runs/r-1/files/report.md", b"whole")

    assert not left.exists()
    assert artifacts.get("runs/r-1/files/report.md") == b"whole"


def test_a_sweep_tells_how_many_it_found(root: Path) -> None:
    artifacts = FolderArtifacts(root, FrozenClock())
    leave(root, "a", timedelta(hours=2))
    leave(root, "b", timedelta(hours=3))
    leave(root, "c", timedelta(hours=0))

    assert artifacts.sweep(before=FrozenClock().now().timestamp() - 3600) == 2


def test_what_lies_behind_a_planted_link_is_not_swept(root: Path, tmp_path: Path) -> None:
    """A user who can write into the folder cannot delete its owner's files."""
    precious = tmp_path / "home" / "precious"
    precious.parent.mkdir()
    precious.write_text("of somebody else")
    os.utime(precious, (1, 1))
    root.mkdir()
    (root / ".unfinished").symlink_to(precious.parent)

    with pytest.raises(StoreUnavailableError, match="a link in place of a folder"):
        FolderArtifacts(root, FrozenClock())

    assert precious.exists()


def test_what_no_write_left_keeps_no_store_shut(root: Path) -> None:
    leave(root, "a folder/in it", timedelta(days=1))
    os.utime(root / ".unfinished" / "a folder", (1, 1))
    (root / ".unfinished" / "link").symlink_to("nowhere")
    os.mkfifo(root / ".unfinished" / "pipe")

    FolderArtifacts(root, FrozenClock()).put("runs/r-1/a", b"whole")


def test_what_is_put_leaves_nothing_unfinished(artifacts: FolderArtifacts, root: Path) -> None:
    artifacts.put("runs/r-1/a", b"whole")

    assert unfinished(root) == []
    assert (root / "runs" / "r-1" / "a").read_bytes() == b"whole"


def test_the_address_is_the_path_of_the_file(artifacts: FolderArtifacts, root: Path) -> None:
    assert artifacts.put("runs/r-1/a", b"") == str(root / "runs" / "r-1" / "a")


def test_unfinished_writes_are_not_listed(artifacts: FolderArtifacts, root: Path) -> None:
    leave(root, "half", timedelta(0))
    artifacts.put("runs/r-1/a", b"whole")

    assert list(artifacts.list("")) == ["runs/r-1/a"]


def test_kill_9_in_the_middle_of_put_leaves_what_was_there(
    artifacts: FolderArtifacts, root: Path
) -> None:
    """The data was written, but had no name yet; what is left of it is swept an hour later."""
    artifacts.put("runs/r-1/a", b"old")
    receiver, sender = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=stop_in_the_middle_of_put, args=(root, "runs/r-1/a", sender))
    process.start()
    assert receiver.recv() == "written"

    process.kill()
    process.join()

    assert artifacts.get("runs/r-1/a") == b"old"
    assert list(artifacts.list("")) == ["runs/r-1/a"]
    assert len(unfinished(root)) == 1
    FolderArtifacts(root, FrozenClock(SystemClock().now() + timedelta(hours=2)))
    assert unfinished(root) == []
    assert artifacts.get("runs/r-1/a") == b"old"


def test_a_full_disk_leaves_what_was_there(artifacts: FolderArtifacts, root: Path) -> None:
    """A write that fails is reported, and leaves no half."""
    artifacts.put("runs/r-1/a", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        with pytest.raises(StoreUnavailableError) as raised:
            artifacts.put("runs/r-1/a", b"x" * 2_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert raised.value.retryable
    assert artifacts.get("runs/r-1/a") == b"old"
    assert unfinished(root) == []


def test_a_place_below_a_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreUnavailableError):
        FolderArtifacts(tmp_path / "file", SystemClock())
    with pytest.raises(StoreUnavailableError):
        FolderArtifacts(tmp_path / "file" / "a" / "b", SystemClock())


def test_a_name_that_is_a_folder_here_is_told(artifacts: FolderArtifacts, root: Path) -> None:
    """Where a file is there can be no folder, and the other way round; nothing is lost by it.

    It is no outage: to try again would never help.
    """
    artifacts.put("runs/r-1/a", b"kept")

    with pytest.raises(ArtifactNameError):
        artifacts.put("runs/r-1", b"in place of a folder")
    with pytest.raises(ArtifactNameError):
        artifacts.put("runs/r-1/a/b", b"below a file")

    assert artifacts.get("runs/r-1/a") == b"kept"
    assert unfinished(root) == []


CALLS: dict[str, tuple[Any, ...]] = {
    "put": ("runs/r-1/b", b"new"),
    "get": ("runs/r-1/a",),
    "exists": ("runs/r-1/a",),
    "list": ("runs/r-1",),
}


def move_away(root: Path) -> None:
    root.rename(root.with_name("away"))


def unmount(root: Path) -> None:
    """Leave what is left of a folder that something was mounted on: itself, and nothing in it."""
    move_away(root)
    root.mkdir()


def put_a_file_there(root: Path) -> None:
    move_away(root)
    root.touch()


def test_two_first_files_at_once_are_no_outage(
    artifacts: FolderArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder that one writer has found empty holds the file of the other by then."""
    scan = os.scandir

    def look_before_the_other_writes(path: Path) -> Any:
        monkeypatch.undo()
        try:
            return scan(path)  # raises: nobody has made it yet
        finally:
            artifacts.put("runs/r-1/other.txt", b"")

    monkeypatch.setattr(os, "scandir", look_before_the_other_writes)
    artifacts.put("runs/r-1/one.txt", b"")

    assert artifacts.list("runs/r-1") == ["runs/r-1/one.txt", "runs/r-1/other.txt"]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("happens", [move_away, unmount, put_a_file_there])
def test_a_folder_that_is_gone_is_an_outage_and_is_not_made_again(
    root: Path, happens: Callable[[Path], None], call: str
) -> None:
    """A new folder in its place would take values that are lost when the old one comes back."""
    artifacts = FolderArtifacts(root, SystemClock())
    artifacts.put("runs/r-1/a", b"old")
    happens(root)

    with pytest.raises(StoreUnavailableError):
        getattr(artifacts, call)(*CALLS[call])

    shutil.rmtree(root) if root.is_dir() else root.unlink(missing_ok=True)
    root.with_name("away").rename(root)
    assert artifacts.get("runs/r-1/a") == b"old"
    assert list(artifacts.list("")) == ["runs/r-1/a"]
    artifacts.put("runs/r-1/b", b"new")
    assert artifacts.exists("runs/r-1/b")


def test_a_folder_that_another_process_filled_is_known_from_the_start(root: Path) -> None:
    FolderArtifacts(root, SystemClock()).put("runs/r-1/a", b"old")
    artifacts = FolderArtifacts(root, SystemClock())
    move_away(root)

    with pytest.raises(StoreUnavailableError):
        artifacts.exists("runs/r-1/b")
    with pytest.raises(StoreUnavailableError):
        artifacts.put("runs/r-1/b", b"new")

    assert not root.exists()


def test_nothing_is_found_in_an_unused_folder(root: Path) -> None:
    """A handler may ask for a file before any was stored."""
    artifacts = FolderArtifacts(root, SystemClock())

    assert not artifacts.exists("runs/r-1/a")
    assert list(artifacts.list("runs/r-1")) == []
    with pytest.raises(ArtifactNotFoundError):
        artifacts.get("runs/r-1/a")


def test_a_value_that_was_kept_is_not_lost_because_nothing_is_there_at_all(root: Path) -> None:
    """A process that starts while the folder is away has never seen it."""
    kept = keep(FolderArtifacts(root, SystemClock()), '"' + "x" * 40_000 + '"', "runs/r-1/values/a")
    move_away(root)
    artifacts = FolderArtifacts(root, SystemClock())

    with pytest.raises(StoreUnavailableError, match="once held runs/r-1/values/a"):
        load(artifacts, kept)


def test_a_value_that_was_kept_is_not_lost_because_its_store_was_begun_anew(root: Path) -> None:
    """A process that never saw the folder keeps what others do in a new one, in its place."""
    kept = keep(FolderArtifacts(root, SystemClock()), '"' + "x" * 40_000 + '"', "runs/r-1/values/a")
    move_away(root)
    artifacts = FolderArtifacts(root, SystemClock())
    artifacts.put("runs/r-2/values/a", b"1")

    with pytest.raises(StoreUnavailableError, match="once held runs/r-1/values/a"):
        load(artifacts, kept)


def test_a_value_that_is_lost_alone_is_lost(artifacts: FolderArtifacts, root: Path) -> None:
    kept = keep(artifacts, '"' + "x" * 40_000 + '"', "runs/r-1/values/a")
    (root / "runs/r-1/values/a").unlink()

    with pytest.raises(ArtifactNotFoundError):
        load(artifacts, kept)


def test_a_deleted_folder_of_unfinished_writes_is_made_again(
    artifacts: FolderArtifacts, root: Path
) -> None:
    artifacts.put("runs/r-1/a", b"old")
    (root / ".unfinished").rmdir()

    artifacts.put("runs/r-1/a", b"new")

    assert artifacts.get("runs/r-1/a") == b"new"


def test_to_open_a_folder_that_is_not_there_leaves_nothing(tmp_path: Path) -> None:
    """Another setting may be refused at the open, and then nothing was written."""
    artifacts = FolderArtifacts(tmp_path / "a" / "b", SystemClock())

    assert list(tmp_path.iterdir()) == []
    assert list(artifacts.list("")) == []
    assert artifacts.sweep(before=SystemClock().now().timestamp()) == 0


def test_to_open_a_folder_that_is_empty_leaves_it_empty(root: Path) -> None:
    root.mkdir()

    FolderArtifacts(root, SystemClock())

    assert list(root.iterdir()) == []


@pytest.mark.parametrize("below", ["n" * 300, "a/b/" + "n" * 300])
def test_a_folder_that_cannot_be_made_is_refused_and_leaves_nothing(
    tmp_path: Path, below: str
) -> None:
    with pytest.raises(StoreUnavailableError):
        FolderArtifacts(tmp_path / below, SystemClock())

    assert list(tmp_path.iterdir()) == []


def test_a_link_that_leads_nowhere_is_refused(root: Path) -> None:
    root.symlink_to(root.parent / "nowhere")

    with pytest.raises(StoreUnavailableError):
        FolderArtifacts(root, SystemClock())


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="/proc is what takes no folder")
def test_a_file_system_that_takes_no_folder_is_refused() -> None:
    with pytest.raises(StoreUnavailableError) as raised:
        FolderArtifacts(Path("/proc/x"), SystemClock())

    assert raised.value.details["store"] == "/proc/x"


def test_artifacts_are_for_their_owner_alone(root: Path, artifacts: FolderArtifacts) -> None:
    path = Path(artifacts.put("runs/r-1/a.txt", b"words"))

    modes = {it.name: oct(it.stat().st_mode & 0o777) for it in (path, *path.parents[:3])}

    assert modes == {"a.txt": "0o600", "r-1": "0o700", "runs": "0o700", "artifacts": "0o700"}


# -- what a stranger plants in the folder ----------------------------------------------------------


@pytest.fixture
def planted(artifacts: FolderArtifacts, root: Path, tmp_path: Path) -> Path:
    """The folder of a run that has one file; a secret lies outside the store."""
    artifacts.put("runs/r-1/files/a", b"a")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"secret")
    return root / "runs" / "r-1" / "files"


def test_a_link_to_a_file_is_not_there(
    artifacts: FolderArtifacts, planted: Path, tmp_path: Path
) -> None:
    artifacts.put("runs/r-2/files/other", b"of another run")
    (planted / "secret").symlink_to(tmp_path / "outside" / "secret")
    (planted / "other").symlink_to("../../r-2/files/other")

    for name in ("secret", "other"):
        with pytest.raises(ArtifactNotFoundError):
            artifacts.get(f"runs/r-1/files/{name}")
        assert not artifacts.exists(f"runs/r-1/files/{name}")
    assert artifacts.sizes("runs/r-1") == {"runs/r-1/files/a": 1}


def test_a_link_to_a_folder_is_neither_read_nor_written_through(
    artifacts: FolderArtifacts, planted: Path, tmp_path: Path
) -> None:
    """A folder that was moved and linked is reported, and nothing is taken for lost."""
    (planted / "out").symlink_to(tmp_path / "outside")

    with pytest.raises(StoreUnavailableError, match="link in place of a folder is not followed"):
        artifacts.get("runs/r-1/files/out/secret")
    with pytest.raises(StoreUnavailableError, match="not followed"):
        artifacts.sizes("runs/r-1/files/out")
    with pytest.raises(StoreUnavailableError, match="not followed"):
        artifacts.put("runs/r-1/files/out/more", b"")

    assert artifacts.sizes("runs/r-1") == {"runs/r-1/files/a": 1}
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["secret"]


@pytest.mark.parametrize("linked", ["runs", "runs/r-1", "runs/r-1/files", ".unfinished"])
def test_nothing_is_put_behind_a_link_wherever_it_stands(
    artifacts: FolderArtifacts, planted: Path, root: Path, linked: str
) -> None:
    """A link may stand above the last folder, too: by `lstat` alone of the last it is followed."""
    outside = root.parent / "moved"
    (root / linked).rename(outside)
    (root / linked).symlink_to(outside, target_is_directory=True)
    before = sorted(outside.rglob("*"))

    for name in ("runs/r-1/files/a", "runs/r-1/files/new", "runs/r-1/files/deep/er/new"):
        with pytest.raises(StoreUnavailableError, match="move the folder back"):
            artifacts.put(name, b"new")

    assert sorted(outside.rglob("*")) == before
    assert planted.joinpath("a").read_bytes() == b"a"


def test_a_pipe_stalls_no_reader(artifacts: FolderArtifacts, planted: Path) -> None:
    """To open one waits for who writes into it, and that may be forever."""
    os.mkfifo(planted / "pipe")

    with pytest.raises(ArtifactNotFoundError):
        artifacts.get("runs/r-1/files/pipe")
    assert artifacts.sizes("runs/r-1") == {"runs/r-1/files/a": 1}


def test_a_name_that_could_not_have_been_put_is_not_listed(
    artifacts: FolderArtifacts, planted: Path
) -> None:
    """It could not be got either, and some are not even text."""
    (planted / "line\nend").write_bytes(b"")
    Path(os.fsdecode(bytes(planted) + b"/\xff")).write_bytes(b"")

    assert artifacts.sizes("runs/r-1") == {"runs/r-1/files/a": 1}


def test_the_folder_itself_may_be_a_link(root: Path, planted: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)

    assert FolderArtifacts(tmp_path / "link", SystemClock()).get("runs/r-1/files/a") == b"a"


def test_a_deleted_folder_is_gone_from_the_disk(artifacts: FolderArtifacts, root: Path) -> None:
    artifacts.put("runs/r-1/values/a.json", b"x")
    artifacts.put("runs/r-1/files/deep/b", b"x")
    artifacts.put("runs/r-2/files/b", b"x")

    artifacts.delete("runs/r-1")

    assert sorted(path.name for path in (root / "runs").iterdir()) == ["r-2"]
    artifacts.delete("runs/r-2")
    artifacts.put("runs/r-3/files/c", b"x")  # the store is there still


def test_a_link_is_deleted_and_not_what_it_leads_to(
    artifacts: FolderArtifacts, root: Path, tmp_path: Path
) -> None:
    """A handler may have linked its files to anywhere."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    artifacts.put("runs/r-1/files/a", b"x")
    (root / "runs/r-1/files/out").symlink_to(outside, target_is_directory=True)
    (root / "runs/r-1/files/one").symlink_to(outside / "precious")
    (root / "runs/r-2").symlink_to(outside, target_is_directory=True)

    with pytest.raises(ArtifactNameError, match="a link or a file"):
        artifacts.delete("runs/r-2/precious")
    with pytest.raises(ArtifactNameError, match="a link or a file"):
        artifacts.delete("runs/r-1/files/a/b")
    for name in ("runs/r-1/files/one", "runs/r-1", "runs/r-2"):
        artifacts.delete(name)

    assert list((root / "runs").iterdir()) == []
    assert (outside / "precious").read_text() == "x"


def test_what_cannot_be_deleted_now_is_an_outage(artifacts: FolderArtifacts, root: Path) -> None:
    artifacts.put("runs/r-1/a", b"x")
    shutil.move(root, root.with_name("away"))

    with pytest.raises(StoreUnavailableError, match="the folder is gone"):
        artifacts.delete("runs/r-1")


def test_nothing_is_deleted_in_an_unused_store(artifacts: FolderArtifacts, root: Path) -> None:
    artifacts.delete("runs/r-1")

    assert not root.exists()
