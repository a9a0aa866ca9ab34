"""What a call returns, by its annotation: how its result becomes JSON text, and is read again."""

from __future__ import annotations

import inspect
import types
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, TypeAdapter

from leasehold.domain.json_text import digest
from leasehold.domain.once_results import MAX_TYPE
from leasehold.errors import InvalidRequestError
from leasehold.worker.context.user_code import adapter_of, code_of, first_sentence, unwrapped
from leasehold.worker.failures.failures import safe_text

_MAX_SHOWN: Final = 200
_MARK: Final = 16
#: A result is searched so deep for what is lost, and so many members of each list in it.
_MAX_DEPTH: Final = 6
_MAX_MEMBERS: Final = 100
#: What to record in its place.
RECIPE: Final = (
    "Record what you need of it: an async function that is annotated with a model and returns "
    "(await agent.run(...)).output, or plain JSON"
)


@dataclass(frozen=True, slots=True)
class ReturnType:
    """What a call returns.

    Args:
        name: of the type; the same in every process and, as long as it is not renamed, deploy.
        model: reads and writes its values.
        is_async: whether the call is of a coroutine function.
        hint: the type itself.
    """

    name: str
    model: TypeAdapter[Any]
    is_async: bool
    hint: Any

    def check_restorable(self, call: object) -> None:
        """Refuse a call, before it costs anything, whose result cannot come back as what it is."""
        if (found := _open_class_in(self.hint)) is not None:
            problem = f"{type_name(found)} does not say what it holds, which would be a dict"
            raise refused(call, f"a call whose result can be restored: {problem}. {RECIPE}")

    def lost_in(self, result: Any, restored: Any) -> str | None:
        """Return what of a result comes back as a dict in place of what it is; None: nothing.

        A call that does not say what it returns has plain JSON values as its result.
        """
        return None if self.hint in (Any, object) else _lost_in("result", result, restored, 0)


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
    return ReturnType(_short(type_name(hint)), model, inspect.iscoroutinefunction(code), hint)


def refused(call: object, allowed: str) -> InvalidRequestError:
    """Return the error of a call that cannot be made."""
    return InvalidRequestError(field="call", value=name_of(call)[:_MAX_SHOWN], allowed=allowed)


def name_of(call: object) -> str:
    """Return the name of the called function."""
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


def _open_class_in(hint: Any) -> Any:
    """Return a generic class in a type that leaves open what it holds; None: there is none.

    `Reply`, `Reply[T]` and `Reply[Any]`, of a class `Reply(Generic[T])`. A collection of anything
    holds plain JSON values.
    """
    origin, args = get_origin(hint), get_args(hint)
    known = getattr(hint, "__pydantic_generic_metadata__", None)
    if known and known["origin"] is not None:
        origin, args = known["origin"], known["args"]
    kind = origin or hint
    parameters: tuple[Any, ...] = getattr(kind, "__parameters__", ())
    is_open = any(arg is Any or isinstance(arg, TypeVar) for arg in args or parameters)
    if inspect.isclass(kind) and parameters and is_open and _has_fields(kind):
        return hint
    return next((one for one in map(_open_class_in, args) if one is not None), None)


def _lost_in(path: str, result: Any, restored: Any, depth: int) -> str | None:
    if isinstance(restored, dict) and not isinstance(result, Mapping):
        return f"{path} is of the class {type(result).__qualname__}, and would be a dict"
    if depth == _MAX_DEPTH or type(result) is not type(restored):
        return None
    pairs = ((path + at, one, other) for at, one, other in _pairs(result, restored))
    found = (_lost_in(*pair, depth + 1) for pair in pairs)
    return next((lost for lost in found if lost), None)


def _pairs(result: Any, restored: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the members of two values of one type, with the step of the path to each."""
    if isinstance(result, list | tuple):
        both = zip(result, restored, strict=False)
        yield from ((f"[{at}]", *pair) for at, pair in enumerate(islice(both, _MAX_MEMBERS)))
    elif isinstance(result, dict):
        for key in islice(result, _MAX_MEMBERS):
            yield f"[{key!r}]", result[key], restored.get(key)
    elif _has_fields(type(result)):
        names = getattr(result, "__pydantic_fields__", None) or [f.name for f in fields(result)]
        for name in names:
            yield f".{name}", getattr(result, name, None), getattr(restored, name, None)


def _has_fields(kind: type) -> bool:
    return issubclass(kind, BaseModel) or is_dataclass(kind)
