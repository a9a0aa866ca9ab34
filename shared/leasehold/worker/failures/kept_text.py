"""Texts as a record keeps them: cut to what there is room for, and fit for every store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pydantic_core

MAX_TEXT_CHARS: Final = 4000
MAX_TEXT_BYTES: Final = 6 * 1024


def cut(text: str, limit: int) -> str:
    """Return the text as it can be stored, cut at a number of characters."""
    clean = text[: limit + 1].encode("utf-8", "replace").decode()
    return clean if len(clean) <= limit else f"{clean[: limit - 1]}…"


def bounded(text: str, room: int = MAX_TEXT_BYTES) -> str:
    """Return as much of a long text as there are bytes for, however it is written as JSON."""
    text = cut(text, MAX_TEXT_CHARS)
    while size(text) > room:
        text = cut(text, len(text) * 3 // 4)
    return text


def json_of(plain: Any) -> str:
    """Return plain values as JSON text, as much of it as there is room for."""
    return bounded(pydantic_core.to_json(_storable(plain), inf_nan_mode="strings").decode())


def size(plain: Any) -> int:
    """Return how many bytes plain values take as JSON text."""
    return len(pydantic_core.to_json(plain))


def try_text(text_of: Callable[[], str]) -> str:
    """Return a text from a class of the user's, which may do anything when it is called."""
    try:
        return text_of()
    except Exception as failure:  # noqa: BLE001 - see above
        return f"Its words raised {type(failure).__name__}."


def _storable(plain: Any) -> Any:
    """Return plain values whose texts can be stored."""
    match plain:
        case str():
            return plain.encode("utf-8", "replace").decode()
        case dict():
            return {_storable(key): _storable(value) for key, value in plain.items()}
        case list():
            return [_storable(value) for value in plain]
    return plain
