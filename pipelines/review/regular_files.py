"""Regular files below a folder, read without following links and up to a limit.

Each part of a path is opened from the folder before it, so what is checked is what is read, even
where a link is put in its place meanwhile.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
#: Without waiting: a pipe that no one writes to, and the kernel's log, would never answer.
_FILE: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


class TooLargeError(OSError):
    """The file has more bytes than are read."""


@contextmanager
def folder_below(root: Path, parts: Sequence[str]) -> Iterator[int]:
    """Yield the descriptor of a folder below `root`.

    Raises:
        OSError: it cannot be opened, or one of its parts is a link or not a folder.
    """
    folder = os.open(root, _FOLDER)
    try:
        for part in parts:
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def read_below(root: Path, parts: Sequence[str], at_most: int) -> bytes:
    """Return the content of a file below `root`.

    Raises:
        TooLargeError: it has more than `at_most` bytes, whatever its size is said to be.
        OSError: it cannot be read, or is not a regular file, or is behind a link.
    """
    with folder_below(root, parts[:-1]) as folder:
        file = os.open(parts[-1], _FILE | os.O_NOFOLLOW, dir_fd=folder)
    with open(file, "rb", buffering=0) as source:  # noqa: PTH123 - it is a descriptor
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return _read(source.fileno(), at_most)


def _read(file: int, at_most: int) -> bytes:
    blocks: list[bytes] = []
    left = at_most + 1
    while left > 0 and (block := os.read(file, min(left, 1 << 20))):
        blocks.append(block)
        left -= len(block)
    if left <= 0:
        raise TooLargeError(errno.EFBIG, "more bytes than are read")
    return b"".join(blocks)
