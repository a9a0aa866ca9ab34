"""JSON text as runs keep it: one text a value, its limits, and its name."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import pydantic_core

from leasehold.errors import InvalidRequestError, TooLargeError

#: No value is larger: an input comes in one HTTP body, an output is read whole by the next step.
MAX_INPUT_BYTES: Final = 1024 * 1024
MAX_OUTPUT_BYTES: Final = 16 * 1024 * 1024
#: No value is nested deeper. The reader of JSON takes 200 levels, and some answers have a value
#: two levels down (`resume.partialResults`).
MAX_JSON_LEVELS: Final = 198
_READABLE_LEVELS: Final = 200
_MAX_PROBLEM_CHARS: Final = 200
_MAX_NAME_SHOWN_CHARS: Final = 50
_KINDS: Final = {type(None): "null", bool: "a boolean", str: "a text", list: "a list"}
_CANONICAL: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)
#: It begins with a digit, so that the search passes over megabytes without one.
_HUGE: Final = re.compile(r"[0-9](?:[eE]\+?[0-9]{3}|[0-9]{299})")
_HUGE_BYTES: Final = re.compile(_HUGE.pattern.encode())
_TOO_DEEP: Final = f"it is nested more than {MAX_JSON_LEVELS} levels deep"


def canonical(value: Any) -> str:
    """Return the JSON text of a value, the same for the same value.

    Raises:
        ValueError, TypeError: the value is not JSON, or nested too deep.
    """
    try:
        text = _CANONICAL.encode(value)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    text.encode()  # a lone surrogate is no text
    check_depth(text)
    return text


def plain(value: Any) -> Any:
    """Return the JSON value of what may be a model, or have models in it; under their aliases.

    What JSON cannot have is returned as it is: `canonical` says what is wrong with it.
    """
    try:
        return pydantic_core.to_jsonable_python(value, by_alias=True, round_trip=True)
    except (ValueError, RecursionError):
        return value


def check_depth(text: str) -> None:
    """Refuse JSON text that no later reader could read, with ValueError.

    To count brackets is cheap, and most texts have too few of them to be deep.
    """
    if text.count("[") + text.count("{") <= MAX_JSON_LEVELS:
        return
    around = _READABLE_LEVELS - MAX_JSON_LEVELS
    try:
        pydantic_core.from_json('{"":' * around + text + "}" * around)
    except ValueError:
        raise ValueError(_TOO_DEEP) from None


def check_json(text: str) -> None:
    """Refuse what is not JSON, or nested too deep, with ValueError; the text is read once.

    It is read within brackets, which count as levels; a text that closes them is none.
    """
    around = _READABLE_LEVELS - MAX_JSON_LEVELS
    found = pydantic_core.from_json("[" * around + text + "]" * around, allow_inf_nan=False)
    for _ in range(around):
        if len(found) != 1:
            raise ValueError("it is not one JSON value")
        found = found[0]
    check_finite(text, found)


def json_value(text: str | bytes, *, is_object: bool = False) -> Any:
    """Return the value that a stranger's text is, as strict JSON.

    Raises:
        ValueError: it is none, or no object where that is wanted; or it has two values under one
            name, of which one reader takes the first and another the last.
    """
    value = pydantic_core.from_json(text, allow_inf_nan=False)
    check_finite(text, value)
    if is_object and not isinstance(value, dict):
        raise ValueError(_KINDS.get(type(value), "a number"))
    json.loads(text, object_pairs_hook=unique, parse_int=len, parse_float=len)
    return value


def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; raises ValueError where two of its values have one name."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"an object with two values for {twice[:_MAX_NAME_SHOWN_CHARS]!r}")
    return found


def check_finite(text: str | bytes, value: Any) -> None:
    """Refuse numbers that no float can hold, as 1e400: they are read as infinity.

    Few texts have a number of so many digits, and no other is looked at again.
    """
    form = _HUGE if isinstance(text, str) else _HUGE_BYTES
    if form.search(text):  # type: ignore[arg-type] # the one for its kind
        try:
            json.dumps(value, allow_nan=False)
        except ValueError:
            raise ValueError("a number is too large for JSON to be read again") from None


def not_json(field: str, error: ValueError) -> InvalidRequestError:
    """Return the error of a value that cannot be kept as JSON."""
    problem = str(error)[:_MAX_PROBLEM_CHARS]
    allowed = f"JSON values, without NaN and infinity, and pydantic models ({problem})"
    return InvalidRequestError(field=field, value="not JSON", allowed=allowed)


def digest(text: str) -> str:
    """Return a name for the text that no other text has."""
    return hashlib.sha256(text.encode()).hexdigest()


def check_size(what: str, text: str, limit: int) -> None:
    """Refuse a text that is larger than `limit` bytes, with TooLargeError."""
    size = len(text.encode())
    if size > limit:
        raise TooLargeError(what=what, size=size, limit=limit)
