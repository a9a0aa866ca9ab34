"""Users' values: JSON text in the manifest, or a file that it refers to where the text is large.

A temporary file of a step is gzip, under a name that nothing ever had before. The commit that
records it in the manifest keeps the digest of its text, and the file that it replaces is deleted
after that; a worker that could not record it deletes its own. Files that a kill leaves in between
go with the step's folder (`domain/artifact_name.py`).
"""

from __future__ import annotations

import contextlib
import zlib
from functools import partial
from typing import Final, NamedTuple

from leasehold.domain.artifact_name import step_folder, values_folder
from leasehold.domain.checkpoint import CallResult, KeptValue
from leasehold.domain.json_text import MAX_OUTPUT_BYTES, digest
from leasehold.domain.manifest import Manifest, fits_inline, manifest_of, run_ref
from leasehold.errors import (
    ArtifactNameError,
    ArtifactNotFoundError,
    DamagedFileError,
    LeaseholdError,
    StoreUnavailableError,
)
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.clock import Threads
from leasehold.ports.documents import Documents

#: What a name ends with whose file is gzip.
_GZIP: Final = ".json.gz"

#: The default of gzip, and one that mostly takes less time for the same; some data gets larger.
_LEVEL, _FASTER_LEVEL = 6, 5
_MAX_GROWTH: Final = 1.03
_SAMPLE_BYTES: Final = 128 * 1024
_AS_GZIP: Final = zlib.MAX_WBITS + 16
#: No text is larger, nor is what it is packed into.
_MAX_TEXT_BYTES: Final = MAX_OUTPUT_BYTES + 64 * 1024


class PackedFile(NamedTuple):
    """A text as it is to be stored: `digest` is that of the text."""

    name: str
    data: bytes
    digest: str

    @property
    def value(self) -> KeptValue:
        """The text as the manifest refers to it."""
        return KeptValue(ref=self.name, digest=self.digest)


def inline(text: str, *, beside: int = 0) -> KeptValue | None:
    """Return the value with its text, or None where a manifest has no room for it.

    Args:
        text: its JSON text.
        beside: the bytes of the texts that the manifest holds already.
    """
    return KeptValue(text=text) if fits_inline(len(text.encode()), beside=beside) else None


def keep(artifacts: Artifacts, text: str, name: str, *, beside: int = 0) -> KeptValue:
    """Return the value as a manifest keeps it.

    Args:
        artifacts: where a large one is stored.
        text: its JSON text.
        name: how the artifact is called then.
        beside: the bytes of the texts that the manifest holds already.
    """
    if kept := inline(text, beside=beside):
        return kept
    return put(artifacts, text, name)


def put(artifacts: Artifacts, text: str, name: str) -> KeptValue:
    """Store the text of a value as an artifact, and return the value as a manifest keeps it."""
    artifacts.put(name, text.encode())
    return KeptValue(ref=name)


def load(artifacts: Artifacts, kept: KeptValue) -> str:
    """Return the JSON text of a kept value.

    Raises:
        ArtifactNotFoundError: it is lost.
        DamagedFileError: it is a temporary file, and damaged.
        StoreUnavailableError: it could not be read, or the store holds nothing at all of what lay
            beside it: it was moved away, or is not mounted, and a new one may have been begun.
    """
    if kept.ref is None:
        return kept.text if kept.text is not None else "null"
    if kept.digest is not None or kept.ref.endswith(_GZIP):
        return _load_packed(artifacts, kept.ref, kept.digest)
    try:
        return artifacts.get(kept.ref).decode()
    except ArtifactNotFoundError as error:
        if error.details.get("is_empty"):
            problem = f"nothing is where it once held {kept.ref}"
            raise StoreUnavailableError(store=error.details["store"], problem=problem) from error
        raise


def pack(run: Manifest, new_id: str, text: str) -> PackedFile:
    """Return a text as a file in the folder of the current step.

    Args:
        run: the run, under its lease: no other lease has its token.
        new_id: so that no other file under the lease has the name.
        text: JSON text.
    """
    folder = step_folder(run, run.position.step, run.position.trial)
    name = f"{folder}/{run.fencing_token}-{new_id}{_GZIP}"
    return PackedFile(name, _packed(text.encode()), digest(text))


def pack_call(run: Manifest, new_id: str, call: CallResult) -> PackedFile:
    """Return the result of a call as a file; one to be kept lies with the run's values."""
    file = pack(run, new_id, call.inline or "null")
    if not call.keep:
        return file
    name = f"{run.position.step}-call-{run.fencing_token}-{new_id}{_GZIP}"
    return file._replace(name=f"{values_folder(run)}/{name}")


def put_packed(artifacts: Artifacts, file: PackedFile) -> KeptValue:
    """Store a file, and return its text as the manifest refers to it.

    Raises:
        StoreUnavailableError: it is not known to be stored; the same file may be put again.
    """
    artifacts.put(file.name, file.data)
    return file.value


def discard(artifacts: Artifacts, name: str, threads: Threads) -> None:
    """Delete a file that nothing refers to; where that cannot be done, it goes with its folder."""
    with contextlib.suppress(StoreUnavailableError, ArtifactNameError):
        threads.errand(partial(artifacts.delete_file, name))


def may_refer_to(documents: Documents, run_id: str, name: str) -> bool:
    """Return whether the run refers to a file, as far as can be known; True: it may.

    To be asked before a file is deleted because the write that refers to it was refused: the
    answer to the write before it may be lost, and the lease over since.
    """
    try:
        found = documents.get(run_ref(run_id))
        run = None if found is None else manifest_of(run_id, found.document)
    except LeaseholdError:
        return True
    if run is None:
        return False
    kept = run.position.checkpoint
    return kept is not None and kept.partial_results.ref == name


def _load_packed(artifacts: Artifacts, name: str, expected: str | None) -> str:
    """Return the text of a packed file; raises as `load`."""
    try:
        with artifacts.open(name) as content:
            if content.size > _MAX_TEXT_BYTES:
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
    """Return whether the store has anything of the run: the step's folder was deleted."""
    run_folder = "/".join(name.split("/")[:2])
    return bool(artifacts.list(run_folder))


def _packed(data: bytes) -> bytes:
    sample = data[:_SAMPLE_BYTES]
    small, fast = (len(zlib.compress(sample, level)) for level in (_LEVEL, _FASTER_LEVEL))
    level = _FASTER_LEVEL if fast <= _MAX_GROWTH * small else _LEVEL
    return zlib.compress(data, level, _AS_GZIP)


def _unpacked(packed: bytes, name: str) -> str:
    """Return the text of a gzip file; a small file of a huge text takes no memory for it."""
    unpack = zlib.decompressobj(_AS_GZIP)
    try:
        data = unpack.decompress(packed, _MAX_TEXT_BYTES)
        if not unpack.eof or unpack.unused_data:
            raise DamagedFileError(name=name, problem="it is cut off, or goes on after its end")
        return data.decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise DamagedFileError(
            name=name, problem=f"it is not JSON text as gzip ({error})"
        ) from None
