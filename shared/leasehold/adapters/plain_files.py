"""Plain files in plain folders: no link is followed, and no pipe or device is opened.

A link within the folder could lead out of it, and who opens a pipe waits for its other end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

#: Folders are for their owner alone, as the files in them are.
PRIVATE: Final = 0o700

#: What opening a link says, and opening a socket.
_NO_FILE: Final = (errno.ELOOP, errno.ENXIO)

#: A folder that went away, or lies deeper than any name leads.
_NO_FOLDER: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


def open_file(root: Path, name: str) -> IO[bytes]:
    """Open the file of a name below `root`, whose parts are plain.

    Raises:
        FileNotFoundError: it is not there, or no plain file.
        IsADirectoryError, NotADirectoryError: a folder in place of a file, or the other way.
        OSError: one of its folders is a link, or the system does not answer.
    """
    *folders, last = name.split("/")
    folder = open_folder(root, folders)
    try:
        descriptor = os.open(last, _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise FileNotFoundError(errno.ENOENT, "not a plain file", name) from None
        raise
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "not a plain file", name)
    return os.fdopen(descriptor, "rb")


def open_folder(root: Path, parts: Sequence[str]) -> int:
    """Return a descriptor of a folder below `root`, which alone may be a link."""
    folder = os.open(root, _FOLDER)
    for part in parts:
        try:
            inner = open_part(part, folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


def open_part(name: str, folder: int) -> int:
    """Return a descriptor of a folder in an open one; it is no link."""
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError:
        if _is_link(name, folder):
            raise _link_error() from None
        raise


def check_folder(root: Path, parts: Sequence[str]) -> None:
    """Pass a folder below `root`; raise as `open_file` where it is not one."""
    os.close(open_folder(root, parts))


def is_folder(path: Path) -> bool:
    """Return whether there is a folder; OSError: a link is in its place."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if stat.S_ISLNK(mode):
        raise _link_error()
    return stat.S_ISDIR(mode)


def make_folder(folder: Path) -> None:
    """Make the folder and those above it that are not there: durable, and their owner's alone."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=PRIVATE, exist_ok=True)
        _sync(folder.parent)


def files_below(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield each plain file below the folder, and its size; what goes away is passed over."""
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                children = list(entries)
        except OSError as error:
            if error.errno in _NO_FOLDER:
                continue
            raise
        for entry in children:
            with contextlib.suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    yield Path(entry.path), entry.stat(follow_symlinks=False).st_size


def _sync(folder: Path) -> None:
    """Make durable which names the folder has."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_link(name: str, folder: int) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def _link_error() -> OSError:
    return OSError(
        errno.ELOOP,
        "a link in place of a folder is not followed: move the folder back, or mount it there",
    )
