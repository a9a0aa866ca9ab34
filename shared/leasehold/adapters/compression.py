"""What artifacts are compressed with: gzip, in blocks, so that a file of any size fits in memory.

The store keeps the size beside it: a reader gets as many bytes as were put, or an error.
"""

from __future__ import annotations

import errno
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

#: A smaller file takes hardly less space on a disk, whose blocks are 4 KiB; a larger one has no
#: size that gzip's own four bytes can say.
LEAST_BYTES: Final = 16 * 1024
MOST_BYTES: Final = 2**32 - 1

#: A file is read, and given to readers, in blocks of so many bytes.
BLOCK_BYTES: Final = 1024 * 1024

#: What compressed takes more than this share of its bytes is left as it is.
_MOST_LEFT: Final = 0.9
_SAMPLE_BYTES: Final = 256 * 1024

_LEVEL: Final = 6
_FAST: Final = 1
_AS_GZIP: Final = zlib.MAX_WBITS + 16


def may_gain(size: int) -> bool:
    """Return whether a file of so many bytes is worth a look."""
    return LEAST_BYTES <= size <= MOST_BYTES


def gains(packed: int, size: int) -> bool:
    """Return whether it is worth to keep a file compressed."""
    return packed <= _MOST_LEFT * size


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
