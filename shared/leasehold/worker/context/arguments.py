"""The arguments of a recorded call: refused before it costs anything, in one line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from types import CodeType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError

from leasehold.errors import InvalidRequestError
from leasehold.worker.context.typed_json import adapter_of, code_of
from leasehold.worker.failures.failures import first_problem, safe_text

#: The annotations of so many functions are kept.
_MAX_FUNCTIONS_KEPT: Final = 500
_MAX_WORDS_CHARS: Final = 200
_VARIABLE: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_PLAIN: Final = (str, int, float, bytes, list, tuple, dict, set, frozenset, type(None))
#: The types of issues of pydantic with a value that should be a text, a number and so on.
_OF_PLAIN: Final = ("string_type", "int_type", "float_type", "bool_type", "bytes_type")

#: What checks an argument: as it is annotated, and as each type of a union alone.
_Adapters = Sequence[TypeAdapter[Any]]

_adapters: Final[dict[CodeType, Mapping[str, _Adapters]]] = {}


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
        told = safe_text(f"{name}{signature}: {error}", _MAX_WORDS_CHARS)
        count = len(args) + len(kwargs)
        field = f"arguments of {name}"
        raise InvalidRequestError(field=field, value=str(count), allowed=told) from None
    adapters = _adapters_of(code_of(call))
    for parameter, value in given.items():
        if parameter not in adapters or signature.parameters[parameter].kind in _VARIABLE:
            continue
        if problem := _misfit(adapters[parameter], value):
            allowed = f"what it is annotated as: {problem}"
            kind = type(value).__qualname__
            raise InvalidRequestError(field=f"{parameter} of {name}", value=kind, allowed=allowed)


def _adapters_of(function: Any) -> Mapping[str, _Adapters]:
    """Return what checks the arguments of a function, by the names of its parameters."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return {}
    known = _adapters.get(code)
    if known is None:
        known = dict(_made(function))
        if len(_adapters) >= _MAX_FUNCTIONS_KEPT:
            _adapters.clear()
        _adapters[code] = known
    return known


def _made(function: Any) -> Iterator[tuple[str, _Adapters]]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - such as a name that is imported for type checkers alone
        return
    for name, hint in hints.items():
        try:
            yield name, [adapter_of(one) for one in (hint, *_alternatives(hint))]
        except Exception:  # noqa: BLE001, S112 - a class that pydantic does not know
            continue


def _alternatives(hint: Any) -> Iterator[Any]:
    """Yield the types of a union; none: it is no union."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        for one in get_args(hint):
            yield from (one, *_alternatives(one))


def _misfit(adapters: _Adapters, value: Any) -> str | None:
    """Return why a value surely is not what it is annotated as; None: it is, or may be."""
    try:
        fitting = adapters[0].validate_python(value, strict=True)
    except ValidationError as error:
        return _misfit_of(adapters, value, error)
    except Exception:  # noqa: BLE001 - a validator of the user's may raise anything
        return None
    return _not_made(fitting, value, adapters)


def _misfit_of(adapters: _Adapters, value: Any, strict: ValidationError) -> str | None:
    """Return the same of a value that does not fit to the letter."""
    if not isinstance(value, _PLAIN):
        is_plain = all(one["type"] in _OF_PLAIN for one in strict.errors(include_url=False))
        return first_problem(strict) if is_plain else None
    try:
        fitting = adapters[0].validate_python(value)
    except ValidationError as lax:
        return first_problem(lax)
    except Exception:  # noqa: BLE001 - as above
        return None
    return _not_made(fitting, value, adapters)


def _not_made(fitting: Any, value: Any, adapters: _Adapters) -> str | None:
    """Return why a value that a model could be made of does not fit: the call would get a dict.

    A call that takes a dict as well says so by a union, of which pydantic tries the model first.
    """
    is_made = isinstance(fitting, BaseModel) or is_dataclass(fitting)
    if not (is_made and isinstance(value, _PLAIN)):
        return None
    if any(_misfit([one], value) is None for one in adapters[1:]):
        return None
    return f"an instance of {type(fitting).__qualname__}"
