"""The arguments of a recorded call: refused before it costs anything, in one line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from types import CodeType
from typing import Any, Final, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError

from leasehold.errors import InvalidRequestError
from leasehold.worker.context.typed_json import adapter_of, code_of
from leasehold.worker.failures.failures import first_problem, safe_text

#: The annotations of so many functions are kept.
_MOST_KEPT: Final = 500
_MAX_WORDS: Final = 200
_VARIABLE: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_PLAIN: Final = (str, int, float, bytes, list, tuple, dict, set, frozenset, type(None))
#: The types of issues of pydantic with a value that should be a text, a number and so on.
_OF_PLAIN: Final = ("string_type", "int_type", "float_type", "bool_type", "bytes_type")

_adapters: Final[dict[CodeType, Mapping[str, TypeAdapter[Any]]]] = {}


def check_arguments(
    call: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Refuse arguments that a call does not take, or that are of another type than it says.

    What it does not say, or says in a way that cannot be read, is not checked; neither is an
    object of a class in place of one of another class, such as a client of a test, nor what can be
    read but once.

    Raises:
        InvalidRequestError: which argument, and what it is to be.
    """
    try:
        signature = inspect.signature(call)
    except (ValueError, TypeError):  # some of C do not say what they take
        return
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        told = safe_text(f"{name}{signature}: {error}", _MAX_WORDS)
        count = len(args) + len(kwargs)
        field = f"arguments of {name}"
        raise InvalidRequestError(field=field, value=str(count), allowed=told) from None
    adapters = _adapters_of(code_of(call))
    for parameter, value in given.items():
        adapter = adapters.get(parameter)
        if adapter is None or signature.parameters[parameter].kind in _VARIABLE:
            continue
        if problem := _misfit(adapter, value):
            allowed = f"what it is annotated as: {problem}"
            kind = type(value).__qualname__
            raise InvalidRequestError(field=f"{parameter} of {name}", value=kind, allowed=allowed)


def _adapters_of(function: Any) -> Mapping[str, TypeAdapter[Any]]:
    """Return what checks the arguments of a function, by the names of its parameters."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return {}
    known = _adapters.get(code)
    if known is None:
        known = dict(_made(function))
        if len(_adapters) >= _MOST_KEPT:
            _adapters.clear()
        _adapters[code] = known
    return known


def _made(function: Any) -> Iterator[tuple[str, TypeAdapter[Any]]]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - such as a name that is imported for type checkers alone
        return
    for name, hint in hints.items():
        try:
            yield name, adapter_of(hint)
        except Exception:  # noqa: BLE001, S112 - a class that pydantic does not know
            continue


def _misfit(adapter: TypeAdapter[Any], value: Any) -> str | None:
    """Return why a value surely is not what it is annotated as; None: it is, or may be."""
    try:
        fitting = adapter.validate_python(value, strict=True)
    except ValidationError as error:
        return _misfit_of(adapter, value, error)
    except Exception:  # noqa: BLE001 - a validator of the user's may raise anything
        return None
    return _not_made(fitting, value)


def _misfit_of(adapter: TypeAdapter[Any], value: Any, strict: ValidationError) -> str | None:
    """Return the same of a value that does not fit to the letter."""
    if not isinstance(value, _PLAIN):
        is_plain = all(one["type"] in _OF_PLAIN for one in strict.errors(include_url=False))
        return first_problem(strict) if is_plain else None
    try:
        fitting = adapter.validate_python(value)
    except ValidationError as lax:
        return first_problem(lax)
    except Exception:  # noqa: BLE001 - as above
        return None
    return _not_made(fitting, value)


def _not_made(fitting: Any, value: Any) -> str | None:
    """Return why a value that a model could be made of does not fit: the call would get a dict."""
    is_made = isinstance(fitting, BaseModel) or is_dataclass(fitting)
    if is_made and isinstance(value, _PLAIN):
        return f"an instance of {type(fitting).__qualname__}"
    return None
