"""Values of users as JSON text, by the models that they are annotated with."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

import pydantic_core
from pydantic import BaseModel, ConfigDict, TypeAdapter

from leasehold.domain.json_text import check_depth
from leasehold.worker.failures.kept_text import try_text

#: A value that is nested deeper, or has more members, is not searched through.
_MAX_LEVELS_SEARCHED: Final = 200
_MAX_VALUES_SEARCHED: Final = 1_000_000
_MAX_KEY_SHOWN_CHARS: Final = 60
#: Python reads no longer number.
_MAX_DIGITS: Final = 4300
_TOO_LONG: Final = 10**_MAX_DIGITS
_LONG: Final = re.compile(rf"(?<![0-9])[0-9]{{{_MAX_DIGITS + 1}}}")


def json_text_of(
    model: TypeAdapter[Any], value: Any, *, name: str = "output", round_trip: bool = False
) -> str:
    """Return a value of a user's as its model has it, as JSON text.

    Args:
        model: what it is to fit.
        value: the value.
        name: what it is, for the path to what JSON does not have.
        round_trip: for the same model to read it again.

    Raises:
        ValidationError: it does not fit.
        ValueError, RecursionError: JSON has no such value, or it is nested too deep.
    """
    fitting = model.validate_python(value)
    by_alias = True if round_trip else None
    try:
        text = model.dump_json(fitting, by_alias=by_alias, round_trip=round_trip).decode()
    except (ValueError, RecursionError):
        if problem := not_json_in(name, fitting):
            raise ValueError(problem) from None
        raise
    if len(text) > _MAX_DIGITS or "NaN" in text or "Infinity" in text:
        _refuse_unreadable(name, fitting, text)  # of what can be read but once, it alone tells
    if "null" in text or "NaN" in text or "Infinity" in text:  # what models make of these
        constants = pydantic_core.to_json(fitting, inf_nan_mode="constants", fallback=repr)
        _refuse_unreadable(name, fitting, constants.decode())
    check_depth(text)
    return text


def plain_json_text_of(name: str, value: Any) -> str:
    """Return JSON values and models as JSON text, or raise ValueError: JSON has no such value."""
    try:
        text = pydantic_core.to_json(value, inf_nan_mode="constants").decode()
    except ValueError as error:
        raise ValueError(not_json_in(name, value) or str(error)) from None
    _refuse_unreadable(name, value, text)
    return text


def not_json_in(name: str, value: Any) -> str | None:
    """Return the first value that JSON does not have, by its path; None: it is not found.

    As in: `output.items[3].score is NaN: JSON has no such number`.
    """
    try:
        return _found_in(name, value)
    except Exception:  # noqa: BLE001 - a class of the user's may do anything when it is looked at
        return None


def _found_in(name: str, value: Any) -> str | None:
    waiting = [(name, value, 0)]
    for _ in range(_MAX_VALUES_SEARCHED):
        if not waiting:
            return None
        path, one, depth = waiting.pop()
        if depth > _MAX_LEVELS_SEARCHED:
            return f"{path[:_MAX_LEVELS_SEARCHED]}… is nested too deep, or within itself"
        members = _members(one)
        if members is None:
            if problem := _problem_of(one):
                return f"{path} {problem}"
        else:
            waiting += [(path + step, member, depth + 1) for step, member in reversed(members)]
    return None


def _refuse_unreadable(name: str, value: Any, text: str) -> None:
    """Raise ValueError for numbers that no reader of JSON takes.

    NaN and infinity, which null would hide, and those of too many digits.
    """
    if "NaN" in text or "Infinity" in text or _has_long_number(text):
        try:
            pydantic_core.from_json(text, allow_inf_nan=False)  # they may stand within a string
        except ValueError:
            generic = "it holds NaN or infinity, which JSON does not have, or too long a number"
            raise ValueError(not_json_in(name, value) or generic) from None


def _has_long_number(text: str) -> bool:
    """Return whether so many digits stand in a row: a look at a few places tells, mostly."""
    return any(map(str.isdigit, text[::_MAX_DIGITS])) and _LONG.search(text) is not None


def _members(value: Any) -> list[tuple[str, Any]] | None:
    """Return what a value consists of, with the step of the path to each; None: it is one value."""
    if isinstance(value, Mapping):
        return [(_step(key), member) for key, member in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(f"[{place}]", member) for place, member in enumerate(value)]
    if isinstance(value, BaseModel):
        held = {**value.__dict__, **(value.model_extra or {})}
        return [(_step(field), member) for field, member in held.items()]
    if is_dataclass(value) and not isinstance(value, type):
        return [(f".{field.name}", getattr(value, field.name, None)) for field in fields(value)]
    return None


def _step(key: Any) -> str:
    is_name = isinstance(key, str) and key.isidentifier()
    return (
        f".{key[:_MAX_KEY_SHOWN_CHARS]}"
        if is_name
        else f"[{try_text(lambda: repr(key))[:_MAX_KEY_SHOWN_CHARS]}]"
    )


def _problem_of(value: Any) -> str | None:
    """Return what is wrong with a single value; None: JSON has it."""
    if isinstance(value, float) and not math.isfinite(value):
        number = "NaN" if math.isnan(value) else "infinity" if value > 0 else "-infinity"
        return f"is {number}: JSON has no such number"
    if isinstance(value, int) and abs(value) >= _TOO_LONG:
        return f"is a number of more than {_MAX_DIGITS:,} digits, which no reader of JSON takes"
    try:
        pydantic_core.to_json(value)
    except Exception:  # noqa: BLE001 - code of the user's may run here, and raise anything
        if isinstance(value, str):
            return "has half of a character (a lone surrogate): JSON has no such text"
        return f"is of the class {type(value).__qualname__}: JSON has no such value"
    return None


# Code of users, as far as it can be known without calling it: a handler, a gate, or any call.


def unwrapped(call: Any) -> Any:
    """Return what is behind a partial."""
    while isinstance(call, functools.partial):
        call = call.func
    return call


def code_of(call: Any) -> Any:
    """Return the function, method or class that a call comes to: it has the annotations.

    Args:
        call: what can be called; of an object that can, it is its `__call__`.
    """
    function = unwrapped(call)
    is_code = inspect.isroutine(function) or inspect.isclass(function)
    return function if is_code else function.__call__


def adapter_of(annotation: Any) -> TypeAdapter[Any]:
    """Return what reads and writes values of an annotation.

    Raises:
        Exception: whatever pydantic, or code of the user's, says of one that cannot be used; also
            where it has an unknown name in it.
    """
    if annotation is Any:
        return _anything()
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    adapter.rebuild(raise_errors=True)
    return adapter


@functools.cache
def _anything() -> TypeAdapter[Any]:
    """Return what reads and writes plain JSON values: most calls have no annotation."""
    return TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))


def first_sentence(error: Exception) -> str:
    """Return the first sentence of an error: pydantic adds advice and an address."""
    return (str(error).splitlines() or [type(error).__name__])[0].partition(". ")[0]
