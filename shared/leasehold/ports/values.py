"""Users' values: JSON text in the manifest, or an artifact where the text is large."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from leasehold.domain.manifest import KeptValue
from leasehold.errors import TooLargeError
from leasehold.ports.artifacts import Artifacts

#: Larger texts go to the artifact store, by reference.
INLINE_BYTES: Final = 32 * 1024
#: All texts of one manifest together: with what else it holds it stays below 256 KiB, so that it
#: can always be written once more, if only to give the run up.
MANIFEST_BYTES: Final = 192 * 1024
#: No value is larger: an input comes in one HTTP body, an output is read whole by the next step.
INPUT_BYTES: Final = 1024 * 1024
OUTPUT_BYTES: Final = 16 * 1024 * 1024


def canonical(value: Any) -> str:
    """Return the JSON text of a value, the same for the same value.

    Raises:
        ValueError, TypeError: the value is no JSON.
    """
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    text.encode()  # a lone surrogate is no text
    return text


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
    """Return the JSON text of a kept value."""
    if kept.ref is not None:
        return artifacts.get(kept.ref).decode()
    return kept.text if kept.text is not None else "null"
