"""Where runs and artifacts lie on this machine: can they be written, is there space, is it one?"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from leasehold.bootstrap.connections import file_damages, store_file
from leasehold.doctor.finding import Finding, Kind
from leasehold.doctor.setup import Setup
from leasehold.domain.printable import counted
from leasehold.errors import StoreUnavailableError, StoreVersionError
from leasehold.ports.clock import Clock
from leasehold.registry.settings import SETTINGS

#: With less, a run of a few large outputs fills the disk.
_MIN_FREE_BYTES: Final = 200 * 1024**2
_MIN_FREE_FILES: Final = 1000
#: Of each of its folders so many names are looked at.
_MAX_ENTRIES_READ: Final = 10_000
#: How long the file of the store is checked; 1 GB takes about so long.
_MAX_CHECK_S: Final = 5.0
_BESIDE: Final = ("", "-wal", "-shm")


def artifacts_folder(setup: Setup) -> Path | None:
    """Return the folder of the artifacts; None: they are in no folder."""
    address = str(setup.settings["LEASEHOLD_ARTIFACTS"])
    if not address.startswith("file:"):
        return None
    return setup.folder / address.removeprefix("file://")


def folders(setup: Setup) -> Iterator[Finding]:
    """Yield what is wrong with the folders that are to be written."""
    file = store_file(setup.store)
    places = [one for one in [artifacts_folder(setup)] if one is not None]
    written: list[Path] = []
    if file is not None:
        places.insert(0, setup.folder / file.parent)
        beside = (setup.folder / f"{file}{end}" for end in _BESIDE)
        written = [path for path in beside if exists(path)]
    blocked = [*_blocked(places)]
    yield from blocked
    if not blocked:
        yield from _unwritable([*places, *written])
        yield from _linked(artifacts_folder(setup))
    if file is not None:
        yield from _linked_log(setup.folder / file)
        yield from _two_places(setup, file)
    for place in dict.fromkeys(map(_nearest, places)):
        yield from little_space(place, os.statvfs(place))


def _blocked(places: list[Path]) -> Iterator[Finding]:
    """Yield a finding for each file that is where a folder is to be."""
    for there in dict.fromkeys(map(_nearest, places)):
        if not there.is_dir():
            message = f"{there} is a file, where a folder is to be: nothing can be stored."
            yield Finding("data_folder", message, f"ls -l {shlex.quote(str(there))}")


def _linked(folder: Path | None) -> Iterator[Finding]:
    """Yield a finding for the first folder of the artifacts that is a link: none is followed."""
    if folder is None or not folder.is_dir():
        return
    runs = folder / "runs"
    with contextlib.suppress(OSError):
        for place in [folder] if runs.is_symlink() or not runs.is_dir() else [folder, runs]:
            with os.scandir(place) as entries:
                for entry in islice(entries, _MAX_ENTRIES_READ):
                    if entry.is_symlink():
                        message = (
                            f"{entry.path} is a link, and none below the folder of the artifacts "
                            "is followed: runs wait that need what is behind it."
                        )
                        yield Finding("linked_folder", message, _repair(entry.path))
                        return


def _linked_log(file: Path) -> Iterator[Finding]:
    """Yield a finding for the first link in the place of what SQLite keeps beside the store."""
    for path in (file.with_name(f"{file.name}{end}") for end in _BESIDE if end):
        if path.is_symlink():
            message = (
                f"{path} is a link, and SQLite follows none there: the store cannot be opened."
            )
            repair = _repair(str(path)) if exists(path) else f"rm {shlex.quote(str(path))}"
            yield Finding("linked_log", message, repair)
            return


def _repair(path: str) -> str:
    """Return the command that puts in the link's place what it leads to."""
    link, target = shlex.quote(path), shlex.quote(os.path.realpath(path))
    return f"rm {link} && mv {target} {link}"


def _unwritable(paths: list[Path]) -> Iterator[Finding]:
    """Yield a finding for the first path that this user cannot write."""
    for there in map(_nearest, paths):
        if os.statvfs(there).f_flag & os.ST_RDONLY:
            message = f"{there} is on a file system that is mounted read-only: nothing is recorded."
            place = shlex.quote(str(there))
            repair = f'sudo mount -o remount,rw "$(findmnt -no TARGET -T {place})"'
            yield Finding("not_writable", message, repair)
            return
        if not os.access(there, os.W_OK):
            owner = there.stat().st_uid
            message = (
                f"{there} cannot be written by this user: it belongs to user {owner}, so runs "
                "cannot be recorded."
            )
            repair = f'sudo chown -R "$(id -un)" {shlex.quote(str(there))}'
            yield Finding("not_writable", message, repair)
            return
    if os.geteuid() == 0:
        yield from _of_another_user(paths)


def _of_another_user(paths: list[Path]) -> Iterator[Finding]:
    """Yield a warning where root works on another user's files: what it makes, that one cannot."""
    for path in paths:
        if exists(path) and (owner := path.stat().st_uid) != 0:
            message = (
                f"{path} belongs to user {owner}, and this is root: files that root makes there "
                "cannot be written by that user."
            )
            yield Finding("another_user", message, f"sudo -u '#{owner}' leasehold doctor")
            return


def little_space(place: Path, status: os.statvfs_result) -> Iterator[Finding]:
    """Yield a finding where hardly anything more can be written."""
    free = status.f_bavail * status.f_frsize
    if free < _MIN_FREE_BYTES:
        message = (
            f"{place} has {free // 1024**2} MiB free: a full disk is an outage, and runs wait "
            "until it has space."
        )
        yield Finding("little_space", message, f"df -h {shlex.quote(str(place))}")
    elif status.f_files > 0 and status.f_favail < _MIN_FREE_FILES:
        message = f"{place} has room for {counted(status.f_favail, 'more file')} only."
        yield Finding("little_space", message, f"df -i {shlex.quote(str(place))}")


def _two_places(setup: Setup, file: Path) -> Iterator[Finding]:
    """Yield a finding where what belongs together is looked for in two places."""
    artifacts = str(setup.settings["LEASEHOLD_ARTIFACTS"])
    folder = Path(artifacts.removeprefix("file://"))
    if artifacts.startswith("file:") and file.is_absolute() != folder.is_absolute():
        fixed, loose = ("LEASEHOLD_STORE", "LEASEHOLD_ARTIFACTS")
        loose_path = folder
        if folder.is_absolute():
            fixed, loose, loose_path = loose, fixed, file
        scheme = "file://" if loose == "LEASEHOLD_ARTIFACTS" else "sqlite:///"
        address = f"{scheme}{setup.folder / loose_path}"
        message = (
            f"{fixed} is an absolute path, and {loose} begins at the working folder: from another "
            "folder the same runs have other files."
        )
        yield Finding("two_folders", message, f"export {loose}={shlex.quote(address)}")
    is_default = setup.store == SETTINGS["LEASEHOLD_STORE"].default
    if is_default and not exists(setup.folder / file):
        above = (parent / file for parent in setup.folder.parents)
        for other in filter(exists, above):
            message = f"There is no store in this folder, and there is one at {other}."
            yield Finding("store_elsewhere", message, f"cd {shlex.quote(str(other.parents[1]))}")
            return


def store_on_network(setup: Setup) -> Iterator[Finding]:
    """Yield a finding where the store's file is on a network file system."""
    file = store_file(setup.store)
    if file is None:
        return
    place = (setup.folder / file).parent
    kind = file_system_of(place)
    if kind in NETWORK:
        message = (
            f"{place} is on a network file system ({kind}), whose locks SQLite cannot rely on: "
            "two machines may damage the store."
        )
        yield Finding("network_file_system", message, "export LEASEHOLD_STORE=sqlite:////var/lib/…")


def store_damages(setup: Setup, clock: Clock) -> Iterator[Finding]:
    """Yield what is wrong with the file of the store."""
    relative = store_file(setup.store)
    if relative is None:
        return
    file = setup.folder / relative
    named = partial(shlex.quote, str(file))
    log = file.with_name(f"{file.name}-wal")
    if not exists(file):
        if exists(log):
            message = f"{file} is gone, and its log is not: the store cannot be opened."
            yield Finding("store_gone", message, f"ls -l {named()}*")
        return
    try:
        damages, is_whole = file_damages(file, clock, _MAX_CHECK_S)
    except (StoreUnavailableError, StoreVersionError) as error:
        yield Finding(error.code, error.message)
        return
    if damages:
        message = f"{file} is damaged ({damages[0]}): restore a backup, or what SQLite can save."
        repair = f"sqlite3 {named()} .recover | sqlite3 {named()}.recovered"
        yield Finding("store_damaged", message, repair)
    if not is_whole:
        message = f"{file} was checked in part: it takes more than {_MAX_CHECK_S:g} s."
        repair = f"sqlite3 {named()} 'PRAGMA quick_check'"
        yield Finding("store_large", message, repair, kind=Kind.WARNING)


def exists(path: Path) -> bool:
    """Return whether it is there, as far as this user may know."""
    try:
        return path.exists()
    except OSError:
        return False


def _nearest(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists."""
    return next((one for one in (path, *path.parents) if os.path.lexists(one)), Path("/"))


# Which kind of file system a path is on, as Linux tells it.


#: Where two machines may write one file, or locks are not what SQLite needs.
NETWORK: Final = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "9p"),
        *("fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.glusterfs"),
    )
)
_MOUNTS: Final = Path("/proc/self/mountinfo")


def file_system_of(path: Path) -> str:
    """Return the kind of file system a path is on; empty: it is not known. The path is not opened.

    Only names are compared, as a look at a mount that is dead would hang.
    """
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    return kind_in(mounts, path.absolute())


def kind_in(mounts: str, path: Path) -> str:
    """Return the kind of the mount that a path is below; a later one lies over an earlier.

    https://docs.kernel.org/filesystems/proc.html#proc-pid-mountinfo-information-about-mounts
    """
    found: tuple[int, str] = (-1, "")
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) > 4 and after:  # noqa: PLR2004 - the fifth is where it is mounted
            point = Path(_unescaped(fields[4]))
            if path.is_relative_to(point) and len(point.parts) >= found[0]:
                found = len(point.parts), after.split(" ")[0]
    return found[1]


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
