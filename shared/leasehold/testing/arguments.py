"""What a test passes: each value that cannot be used is refused in one line."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pydantic_core

from leasehold.domain.json_text import check_depth
from leasehold.domain.manifest import is_run_id
from leasehold.domain.printable import printable
from leasehold.errors import MAX_VALUE_SHOWN_CHARS, InvalidRequestError
from leasehold.ports.clock import Clock


def refuse(field: str, value: object, allowed: str) -> NoReturn:
    """Raise InvalidRequestError, with as much of the value as fits a line."""
    shown = printable(value if isinstance(value, str) else repr(value))[:MAX_VALUE_SHOWN_CHARS]
    raise InvalidRequestError(field=field, value=shown, allowed=allowed)


def checked_number(field: str, value: Any, least: int = 1) -> int:
    """Return a whole number from `least` on."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        refuse(field, value, f"a whole number from {least} on")
    return value


def checked_seconds(field: str, value: Any, most: float, *, zero: bool = True) -> float:
    """Return the seconds of a number or a timedelta, up to a limit; none at all where `zero`."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds <= most or not (seconds or zero):
        least = "from 0" if zero else "above 0"
        refuse(field, value, f"a timedelta or seconds {least}, at most {most:.0f}")
    return float(seconds)


def checked_run_id(value: Any) -> str:
    """Return what a run can be called."""
    if not isinstance(value, str) or not is_run_id(value):
        allowed = "up to 128 of a-z A-Z 0-9 _ -, beginning with a letter or digit"
        refuse("run_id", value, allowed)
    return value


def checked_mapping(field: str, value: Any, of: type, allowed: str) -> Mapping[str, Any]:
    """Return a mapping of names to values of a class."""
    is_mapping = isinstance(value, Mapping)
    if not is_mapping or not all(isinstance(name, str) for name in value):
        refuse(field, value, f"a dict of {allowed} by name")
    for name, one in value.items():
        if not isinstance(one, of):
            refuse(f"{field}[{name!r}]", one, allowed)
    return dict(value)


def checked_clock(value: Any) -> Clock:
    """Return a clock."""
    if not all(hasattr(value, name) for name in ("now", "monotonic", "new_id", "skip")):
        refuse("clock", value, "FrozenClock(), or system_clock()")
    clock: Clock = value
    return clock


def checked_folder(value: Any) -> Path:
    """Return a folder as an absolute path."""
    if not isinstance(value, str | Path) or not str(value):
        refuse("folder", value, "a path, as pytest's tmp_path; or None")
    return Path(value).absolute()


def json_text(field: str, value: Any) -> str:
    """Return the JSON text of a value, as the engine keeps it."""
    try:
        text = pydantic_core.to_json(value, inf_nan_mode="constants").decode()
        pydantic_core.from_json(text, allow_inf_nan=False)
        check_depth(text)
    except ValueError as error:
        refuse(field, str(error), "JSON values")
    return text
