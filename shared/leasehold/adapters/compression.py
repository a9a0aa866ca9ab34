"""What artifacts are compressed with: gzip, in blocks, so that a file of any size fits in memory.

The store keeps the size beside it: a reader gets as many bytes as were put, or an error.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

from leasehold.adapters.plain_files import open_file, open_folder

#: A smaller file takes hardly less space on a disk, whose blocks are 4 KiB; a larger one has no
#: size that gzip's own four bytes can say.
MIN_FILE_BYTES: Final = 16 * 1024
MAX_FILE_BYTES: Final = 2**32 - 1

#: A file is read, and given to readers, in blocks of so many bytes.
BLOCK_BYTES: Final = 1024 * 1024

#: What compressed takes more than this share of its bytes is left as it is.
_MAX_SHARE_LEFT: Final = 0.9
_SAMPLE_BYTES: Final = 256 * 1024

_LEVEL: Final = 6
_FAST: Final = 1
_AS_GZIP: Final = zlib.MAX_WBITS + 16


def may_gain(size: int) -> bool:
    """Return whether a file of so many bytes is worth a look."""
    return MIN_FILE_BYTES <= size <= MAX_FILE_BYTES


def gains(packed: int, size: int) -> bool:
    """Return whether it is worth to keep a file compressed."""
    return packed <= _MAX_SHARE_LEFT * size


def looks_compressible(beginning: bytes) -> bool:
    """Return whether a file that begins so probably gains: an image or an archive does not."""
    sample = beginning[:_SAMPLE_BYTES]
    return gains(len(zlib.compress(sample, _FAST)), len(sample))


def compressed(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what is in the blocks as gzip."""
    packer = zlib.compressobj(_LEVEL, wbits=_AS_GZIP)
    for block in blocks:
        if packed := packer.compress(block):
            yield packed
    yield packer.flush()


def decompressed(blocks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield what `compressed` was given, in blocks of a bounded size.

    Args:
        blocks: what it yielded, in any blocks.
        size: how many bytes it was given: no more of them are unpacked, whatever is in there.

    Raises:
        OSError: it is damaged; the last block is only given where all are what they were.
    """
    unpacker, left, held = zlib.decompressobj(_AS_GZIP), size, b""
    try:
        for block in blocks:
            rest = block
            while rest and not unpacker.eof:
                data = unpacker.decompress(rest, BLOCK_BYTES)
                rest, left = unpacker.unconsumed_tail, left - len(data)
                if left < 0:
                    raise _damaged("it is longer than was stored")
                if held and data:
                    yield held
                held = data or held
            if unpacker.unused_data or (rest and unpacker.eof):
                raise _damaged("something follows its end")
    except zlib.error as error:
        raise _damaged(str(error)) from None
    if left or not unpacker.eof:
        raise _damaged("it is cut off")
    if held:
        yield held


def _damaged(problem: str) -> OSError:
    return OSError(errno.EIO, f"its compressed content is damaged: {problem}")


# Files of a folder that are stored as gzip: `report.md` is called `report.md\.gz` then.
#
# No artifact can have that name (`domain/artifact_name.py`), so none of a user's own is taken for
# one. Where both are there, the plain file counts: it was put later, or the making of the other
# was cut off before it was removed. `zcat` prints such a file, and `gunzip` makes it plain again.


SUFFIX: Final = "\\.gz"

#: The shortest gzip file there is; its last four bytes say how many were put.
_MIN_GZIP_BYTES: Final = 18
_SIZE: Final = struct.Struct("<I")


def blocks_of(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the rest of a file in blocks."""
    while block := file.read(BLOCK_BYTES):
        yield block


def size_of(file: IO[bytes]) -> int:
    """Return how many bytes were put into a compressed file, which is then at its beginning."""
    if os.fstat(file.fileno()).st_size < _MIN_GZIP_BYTES:
        return 0
    file.seek(-_SIZE.size, os.SEEK_END)
    (size,) = _SIZE.unpack(file.read(_SIZE.size))
    file.seek(0)
    return int(size)


def compress_file(root: Path, name: str, unfinished: Path) -> None:
    """Compress the file of a name below `root`, unless it gains too little by that.

    It is cut off at any place without harm. Of a file that is put meanwhile, that one stays.

    Args:
        root: the folder of all.
        name: whose parts are plain.
        unfinished: the folder of writes that are not finished.

    Raises:
        OSError: it could not be compressed; the file is as it was.
    """
    try:
        source = open_file(root, name)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return  # it went away
    with source:
        found = os.fstat(source.fileno())
        if not may_gain(found.st_size) or not looks_compressible(source.read(BLOCK_BYTES)):
            return
        source.seek(0)
        handle, path = tempfile.mkstemp(dir=unfinished)
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(compressed(blocks_of(source)))
                file.flush()
                os.fsync(file.fileno())
                packed = file.tell()
            if gains(packed, source.tell()) and not _is_folder(root, name + SUFFIX):
                _take_its_place(root, name, Path(path), found)
        finally:
            with contextlib.suppress(FileNotFoundError):
                Path(path).unlink()


def _is_folder(root: Path, name: str) -> bool:
    """Return whether a stranger's folder has a name: the file stays as it is then."""
    try:
        return stat.S_ISDIR((root / name).lstat().st_mode)
    except FileNotFoundError:
        return False


def _take_its_place(root: Path, name: str, made: Path, found: os.stat_result) -> None:
    """Put what was made beside the file, then remove the file, if it is still the one found."""
    *folders, last = name.split("/")
    folder = open_folder(root, folders)
    try:
        os.rename(made, last + SUFFIX, dst_dir_fd=folder)
        os.fsync(folder)
        try:
            os.rename(last, made, src_dir_fd=folder)  # away: nothing replaces it between two looks
        except FileNotFoundError:
            return  # another archive of the run has just done it
        if not os.path.samestat(made.lstat(), found):
            with contextlib.suppress(FileExistsError):  # one that is later still
                os.link(made, last, dst_dir_fd=folder, follow_symlinks=False)
            os.unlink(last + SUFFIX, dir_fd=folder)
        os.fsync(folder)
    finally:
        os.close(folder)
