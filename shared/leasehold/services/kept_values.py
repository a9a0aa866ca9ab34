"""Users' values: JSON text in the manifest, or an artifact where the text is large."""

from __future__ import annotations

from leasehold.domain.kept_value import KeptValue, kept_value
from leasehold.domain.manifest_room import fits_inline
from leasehold.errors import ArtifactNotFoundError, StoreUnavailableError
from leasehold.ports.artifacts import Artifacts
from leasehold.services import temporary_files


def inline(text: str, *, beside: int = 0) -> KeptValue | None:
    """Return the value with its text, or None where a manifest has no room for it.

    Args:
        text: its JSON text.
        beside: the bytes of the texts that the manifest holds already.
    """
    return kept_value(text=text) if fits_inline(len(text.encode()), beside=beside) else None


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
        DamagedFileError: it is a temporary file (`services/temporary_files.py`), and damaged.
        StoreUnavailableError: it could not be read, or the store holds nothing at all of what lay
            beside it: it was moved away, or is not mounted, and a new one may have been begun.
    """
    if kept.ref is None:
        return kept.text if kept.text is not None else "null"
    if kept.digest is not None or kept.ref.endswith(temporary_files.GZIP):
        return temporary_files.load(artifacts, kept.ref, kept.digest)
    try:
        return artifacts.get(kept.ref).decode()
    except ArtifactNotFoundError as error:
        if error.details.get("is_empty"):
            problem = f"nothing is where it once held {kept.ref}"
            raise StoreUnavailableError(store=error.details["store"], problem=problem) from error
        raise
