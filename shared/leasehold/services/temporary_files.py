"""Temporary files of a step: JSON text as gzip, each under a name that nothing ever had before.

Whoever records a file in the manifest keeps its digest with it, and deletes the file that it takes
the place of after that; whoever could not record it deletes its own. What a kill leaves in between
goes with the step's folder (`domain/life.py`).
"""

from __future__ import annotations

import contextlib
import zlib
from functools import partial
from typing import Final, NamedTuple

from leasehold.domain.json_text import OUTPUT_BYTES, digest
from leasehold.domain.kept_value import KeptValue
from leasehold.domain.life import step_folder
from leasehold.domain.manifest import Manifest
from leasehold.errors import (
    ArtifactNameError,
    ArtifactNotFoundError,
    DamagedFileError,
    StoreUnavailableError,
)
from leasehold.ports.artifacts import Artifacts
from leasehold.services.engine import Errand

#: What a name ends with whose file is gzip.
GZIP: Final = ".json.gz"

#: The default of gzip, and one that mostly takes less time for the same; some data gets larger.
_LEVEL, _FASTER_LEVEL = 6, 5
_MOST_GROWTH: Final = 1.03
_SAMPLE_BYTES: Final = 128 * 1024
_AS_GZIP: Final = zlib.MAX_WBITS + 16
#: No text is larger, nor is what it is packed into.
_MOST_BYTES: Final = OUTPUT_BYTES + 64 * 1024


class PackedFile(NamedTuple):
    """A text as it is to be stored: `digest` is that of the text."""

    name: str
    data: bytes
    digest: str


def pack(run: Manifest, new_id: str, text: str) -> PackedFile:
    """Return a text as a file in the folder of the current step.

    Args:
        run: the run, under its lease: no other lease has its token.
        new_id: so that no other file under the lease has the name.
        text: JSON text.
    """
    folder = step_folder(run, run.current_step, run.trial)
    name = f"{folder}/{run.fencing_token}-{new_id}{GZIP}"
    return PackedFile(name, _packed(text.encode()), digest(text))


def put(artifacts: Artifacts, file: PackedFile) -> KeptValue:
    """Store a file, and return its text as the manifest refers to it.

    Raises:
        StoreUnavailableError: it is not known to be stored; the same file may be put again.
    """
    artifacts.put(file.name, file.data)
    return KeptValue(ref=file.name, digest=file.digest)


def discard(artifacts: Artifacts, name: str, errand: Errand) -> None:
    """Delete a file that nothing refers to; where that cannot be done, it goes with its folder."""
    with contextlib.suppress(StoreUnavailableError, ArtifactNameError):
        errand(partial(artifacts.delete_file, name))


def load(artifacts: Artifacts, name: str, expected: str | None) -> str:
    """Return the text of a file that `put` stored.

    Args:
        artifacts: where.
        name: of the file.
        expected: the digest of the text; None: unknown.

    Raises:
        ArtifactNotFoundError: it is not there.
        DamagedFileError: it is not what was stored.
        StoreUnavailableError: it cannot be read now.
    """
    try:
        with artifacts.open(name) as content:
            if content.size > _MOST_BYTES:
                raise DamagedFileError(name=name, problem=f"it has {content.size} bytes")
            packed = b"".join(content.blocks)
    except ArtifactNotFoundError as error:
        if error.details.get("is_empty") and not _is_there(artifacts, name):
            problem = f"nothing is where it once held {name}"
            raise StoreUnavailableError(store=error.details["store"], problem=problem) from error
        raise
    text = _unpacked(packed, name)
    if expected is not None and digest(text) != expected:
        raise DamagedFileError(name=name, problem="its text has another digest than was recorded")
    return text


def _is_there(artifacts: Artifacts, name: str) -> bool:
    """Return whether the store has anything of the run: somebody deleted the step's folder."""
    run_folder = "/".join(name.split("/")[:2])
    return bool(artifacts.list(run_folder))


def _packed(data: bytes) -> bytes:
    sample = data[:_SAMPLE_BYTES]
    small, fast = (len(zlib.compress(sample, level)) for level in (_LEVEL, _FASTER_LEVEL))
    level = _FASTER_LEVEL if fast <= _MOST_GROWTH * small else _LEVEL
    return zlib.compress(data, level, _AS_GZIP)


def _unpacked(packed: bytes, name: str) -> str:
    """Return the text of a gzip file; a small file of a huge text takes no memory for it."""
    unpack = zlib.decompressobj(_AS_GZIP)
    try:
        data = unpack.decompress(packed, _MOST_BYTES)
        if not unpack.eof or unpack.unused_data:
            raise DamagedFileError(name=name, problem="it is cut off, or goes on after its end")
        return data.decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise DamagedFileError(
            name=name, problem=f"it is not JSON text as gzip ({error})"
        ) from None
