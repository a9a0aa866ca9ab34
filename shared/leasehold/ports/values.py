"""Users' values: JSON text in the manifest, or an artifact where the text is large."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

import pydantic_core

from leasehold.domain.manifest import KeptValue
from leasehold.errors import ArtifactNotFoundError, StoreUnavailableError, TooLargeError
from leasehold.ports.artifacts import Artifacts

#: Larger texts go to the artifact store, by reference.
INLINE_BYTES: Final = 32 * 1024
#: All texts of one manifest together: with what else it holds it stays below 256 KiB, so that it
#: can always be written once more, if only to give the run up.
MANIFEST_BYTES: Final = 192 * 1024
#: No value is larger: an input comes in one HTTP body, an output is read whole by the next step.
INPUT_BYTES: Final = 1024 * 1024
OUTPUT_BYTES: Final = 16 * 1024 * 1024
#: No value is nested deeper. The reader of JSON takes 200 levels, and some answers have a value
#: two levels down (`resume.partialResults`).
MAX_DEPTH: Final = 198
_READABLE_DEPTH: Final = 200


def canonical(value: Any) -> str:
    """Return the JSON text of a value, the same for the same value.

    Raises:
        ValueError, TypeError: the value is no JSON, or nested too deep.
    """
    try:
        text = json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    text.encode()  # a lone surrogate is no text
    check_depth(text)
    return text


_TOO_DEEP: Final = f"it is nested more than {MAX_DEPTH} levels deep"


def check_depth(text: str) -> None:
    """Refuse JSON text that no later reader could read, with ValueError.

    To count brackets is cheap, and most texts have too few of them to be deep.
    """
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    around = _READABLE_DEPTH - MAX_DEPTH
    try:
        pydantic_core.from_json('{"":' * around + text + "}" * around)
    except ValueError:
        raise ValueError(_TOO_DEEP) from None


def digest(text: str) -> str:
    """Return a name for the text that no other text has."""
    return hashlib.sha256(text.encode()).hexdigest()


def check_size(what: str, text: str, limit: int) -> None:
    """Refuse a text that is larger than `limit` bytes, with TooLargeError."""
    size = len(text.encode())
    if size > limit:
        raise TooLargeError(what=what, size=size, limit=limit)


def keep(artifacts: Artifacts, text: str, name: str, *, beside: int = 0) -> KeptValue:
    """Return the value as a manifest keeps it.

    Args:
        artifacts: where a large one is stored.
        text: its JSON text.
        name: how the artifact is called then.
        beside: the bytes of the texts that the manifest holds already.
    """
    data = text.encode()
    if len(data) <= min(INLINE_BYTES, MANIFEST_BYTES - beside):
        return KeptValue(text=text)
    artifacts.put(name, data)
    return KeptValue(ref=name)


def load(artifacts: Artifacts, kept: KeptValue) -> str:
    """Return the JSON text of a kept value.

    Raises:
        ArtifactNotFoundError: it is lost.
        StoreUnavailableError: it could not be read, or the store holds nothing at all of what lay
            beside it: it was moved away, or is not mounted, and a new one may have been begun.
    """
    if kept.ref is None:
        return kept.text if kept.text is not None else "null"
    try:
        return artifacts.get(kept.ref).decode()
    except ArtifactNotFoundError as error:
        if error.details.get("is_empty"):
            problem = f"nothing is where it once held {kept.ref}"
            raise StoreUnavailableError(store=error.details["store"], problem=problem) from error
        raise
