"""What a call returns, by its annotation: how its result becomes JSON text, and is read again."""

from __future__ import annotations

import inspect
import types
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter

from leasehold.domain.calls import MAX_TYPE
from leasehold.domain.json_text import digest
from leasehold.errors import InvalidRequestError
from leasehold.worker.failures import safe_text
from leasehold.worker.user_code import adapter_of, code_of, first_sentence, unwrapped

_MAX_SHOWN: Final = 200
_MARK: Final = 16


@dataclass(frozen=True, slots=True)
class ReturnType:
    """What a call returns.

    Args:
        name: of the type; the same in every process and, as long as it is not renamed, deploy.
        model: reads and writes its values.
        is_async: whether the call is of a coroutine function.
    """

    name: str
    model: TypeAdapter[Any]
    is_async: bool


def return_type_of(call: Callable[..., Any]) -> ReturnType:
    """Return what a call returns; where it does not say, plain JSON values.

    Raises:
        InvalidRequestError: it cannot be called, or what it returns is nothing that JSON keeps.
    """
    code = _code_of(call)
    try:
        hint = code if inspect.isclass(code) else _returned(code)
        model = adapter_of(hint)
    except Exception as error:
        problem = safe_text(first_sentence(error), _MAX_SHOWN)
        allowed = (
            f"a function whose return annotation can be read from JSON; of this one: {problem}"
        )
        raise refused(call, allowed) from error
    return ReturnType(_short(type_name(hint)), model, inspect.iscoroutinefunction(code))


def refused(call: object, allowed: str) -> InvalidRequestError:
    """Return the error of a call that cannot be made."""
    return InvalidRequestError(field="call", value=name_of(call)[:_MAX_SHOWN], allowed=allowed)


def name_of(call: object) -> str:
    """Return the name of what is called."""
    function = unwrapped(call)
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__qualname__


def type_name(hint: Any) -> str:
    """Return the name of a type, without that of its module: classes are moved."""
    if hint is None or hint is type(None):
        return "None"
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return type_name(args[0])
    if origin in (Union, types.UnionType):
        return " | ".join(type_name(arg) for arg in args)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, args))}]"
    if origin is not None:
        return (
            f"{type_name(origin)}[{', '.join('...' if a is ... else type_name(a) for a in args)}]"
        )
    name = getattr(hint, "__qualname__", None) or getattr(hint, "__name__", None)
    return str(name or hint).rpartition("<locals>.")[2]


def _code_of(call: Any) -> Any:
    """Return the function, method or class behind a partial or an object that can be called."""
    if not callable(unwrapped(call)):
        raise refused(call, "a function, and its arguments after it")
    function = code_of(call)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise refused(call, "a function that returns its result; a generator yields several")
    return function


def _returned(code: Any) -> Any:
    """Return the return annotation; those of the parameters need not be known here."""
    function = inspect.unwrap(getattr(code, "__func__", code))
    annotations = getattr(function, "__annotations__", {})
    if "return" not in annotations:
        return Any
    alone = types.SimpleNamespace(__annotations__={"return": annotations["return"]})
    names = getattr(function, "__globals__", {})
    hint = get_type_hints(alone, globalns=names, include_extras=True)["return"]
    if get_origin(hint) in (Awaitable, Coroutine):
        return get_args(hint)[-1]
    return hint


def _short(name: str) -> str:
    if len(name) <= MAX_TYPE:
        return name
    return f"{name[: MAX_TYPE - _MARK - 1]}#{digest(name)[:_MARK]}"
