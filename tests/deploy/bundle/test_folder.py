"""The folder of a bundle: made anew each time, and no file of another owner is lost in it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from leasehold.deploy.bundle import BundleError
from leasehold.deploy.bundle.assemble import Changes, write

FIRST = {"main.py": b"1", "old/a.py": b"a", "same.py": b"s"}
SECOND = {"main.py": b"2", "new/b.py": b"b", "same.py": b"s"}
NOTHING = Changes((), (), ())


def held(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder but the list."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    found.pop("contents.sha256", None)
    return found


def test_it_holds_what_the_last_bundle_had_and_says_what_changed(tmp_path: Path) -> None:
    folder = tmp_path / "build" / "bundle"
    write(folder, FIRST)
    (folder / "old" / "__pycache__").mkdir()
    (folder / "old" / "__pycache__" / "a.cpython-311.pyc").touch()

    changes = write(folder, SECOND)

    assert held(folder) == SECOND
    assert changes == Changes(added=("new/b.py",), changed=("main.py",), removed=("old/a.py",))
    assert not (folder / "old").exists()


def test_a_file_that_did_not_change_is_not_written(tmp_path: Path) -> None:
    write(tmp_path, FIRST)
    before = (tmp_path / "main.py").stat().st_mtime_ns

    assert write(tmp_path, FIRST) == NOTHING
    assert (tmp_path / "main.py").stat().st_mtime_ns == before


def test_its_list_is_what_sha256sum_checks(tmp_path: Path) -> None:
    write(tmp_path, FIRST)

    checked = subprocess.run(
        ["/usr/bin/env", "sha256sum", "--check", "--strict", "contents.sha256"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert checked.stdout == "main.py: OK\nold/a.py: OK\nsame.py: OK\n"


@pytest.mark.parametrize("name", ["notes.txt", "old/notes.txt", "old/__pycache__/notes.txt"])
def test_a_file_of_another_origin_is_refused_and_all_stays_as_it_is(
    tmp_path: Path, name: str
) -> None:
    write(tmp_path, FIRST)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    before = held(tmp_path)

    with pytest.raises(BundleError, match=rf"{name} is not of a bundle, and nothing is deleted"):
        write(tmp_path, SECOND)

    assert held(tmp_path) == before


@pytest.mark.parametrize("text", [b"", b"\xff", b"0123  main.py\n"])
def test_a_list_of_another_origin_makes_no_file_ours(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "contents.sha256").write_bytes(text)
    (tmp_path / "main.py").write_text("mine")

    with pytest.raises(BundleError, match="is not of a bundle"):
        write(tmp_path, SECOND)

    assert (tmp_path / "main.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["main.py", "old", "contents.sha256", "contents.sha256.new"])
def test_nothing_is_written_through_a_link(tmp_path: Path, name: str) -> None:
    write(tmp_path / "bundle", FIRST)
    link, outside = tmp_path / "bundle" / name, tmp_path / "outside"
    (tmp_path / "bundle" / "contents.sha256.new").touch()  # as of a call that was killed
    link.rename(outside)
    link.symlink_to(outside)

    with pytest.raises(BundleError, match="is not of a bundle"):
        write(tmp_path / "bundle", SECOND)

    assert outside.exists()


@pytest.mark.parametrize("name", ["main.py", "contents.sha256.new"])
def test_a_file_that_is_elsewhere_too_is_left_there_as_it_is(tmp_path: Path, name: str) -> None:
    write(tmp_path / "bundle", FIRST)
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "bundle" / name).unlink(missing_ok=True)
    (tmp_path / "bundle" / name).hardlink_to(tmp_path / "mine")

    write(tmp_path / "bundle", SECOND)

    assert (tmp_path / "mine").read_text() == "mine"


def test_folders_that_were_empty_before_stay(tmp_path: Path) -> None:
    """A folder of the user, or the place of a disk that is not mounted now."""
    (tmp_path / "disk" / "inner").mkdir(parents=True)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "mine.cpython-313.pyc").touch()

    write(tmp_path, FIRST)
    write(tmp_path, SECOND)

    assert (tmp_path / "disk" / "inner").is_dir()
    assert (tmp_path / "__pycache__" / "mine.cpython-313.pyc").exists()


def test_a_name_in_the_list_that_leads_out_of_the_folder_is_never_followed(tmp_path: Path) -> None:
    write(tmp_path / "bundle", FIRST)
    (tmp_path / "mine").write_text("mine")
    with (tmp_path / "bundle" / "contents.sha256").open("a") as listed:
        listed.write("0123  ../mine\n")

    write(tmp_path / "bundle", SECOND)

    assert (tmp_path / "mine").read_text() == "mine"


def test_what_was_cut_off_in_the_middle_is_done_by_the_next_call(tmp_path: Path) -> None:
    """A path that is a file and a folder at once: the last one cannot be written."""
    write(tmp_path, FIRST)
    with pytest.raises(BundleError, match=r"main.py"):
        write(tmp_path, SECOND | {"main.py/x.py": b"x"})

    write(tmp_path, SECOND)

    assert held(tmp_path) == SECOND


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")

    with pytest.raises(BundleError, match="is not a folder; write to another one: --out FOLDER"):
        write(tmp_path / "file", FIRST)
