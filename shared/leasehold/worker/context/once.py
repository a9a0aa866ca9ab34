"""Recorded results: a stored value takes the place of a call (`StepContext.once`)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import inspect
import re
import threading
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import islice
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, TypeAdapter, ValidationError

from leasehold.attempt.calls import ContextCalls
from leasehold.bounded_calls import in_thread
from leasehold.domain.json_text import MAX_OUTPUT_BYTES, check_size, digest, not_json
from leasehold.domain.recorded_calls import (
    MAX_ARGUMENTS_CHARS,
    MAX_TYPE_CHARS,
    Intent,
    MadeCall,
    Request,
    check_call_key,
    fingerprint_of,
)
from leasehold.errors import (
    MAX_VALUE_SHOWN_CHARS,
    CallKeyReusedError,
    CallMisfitError,
    CallResultError,
    InvalidRequestError,
    UnrestorableResultError,
)
from leasehold.frozen import dataclass
from leasehold.worker.context.arguments import check_arguments
from leasehold.worker.context.spending import SpentInCall, collecting
from leasehold.worker.context.typed_json import (
    adapter_of,
    code_of,
    first_sentence,
    json_text_of,
    unwrapped,
)
from leasehold.worker.failures.failures import first_problem, record_of, safe_text
from leasehold.worker.failures.kept_text import cut, try_text

_MAX_PROBLEM_CHARS: Final = 1000
#: Where an object is in memory says nothing of what it is.
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")

_WITHIN_ITSELF: Final = "a function that does not use its own key while it is called"
_ASYNC: Final = "a function; a coroutine function is for `await ctx.aonce(…)`"


#: What becomes of a call of which it is not known whether it has happened.
OnUnknown: TypeAlias = Literal["repeat", "ask", "fail"]


class OnceCall:
    """A call that is to be made once.

    Args:
        key: what names it.
        call: what is called.
        args: given to it by place.
        kwargs: given to it by name.
        request: what its result depends on, JSON values; None: that is not known.
        on_unknown: what becomes of it where it is not known whether it has happened.
        keep: whether the result outlasts its step.

    Raises:
        InvalidRequestError: it cannot be made, or its request is not JSON.
    """

    def __init__(
        self,
        key: str,
        call: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        request: object = None,
        on_unknown: OnUnknown = "repeat",
        keep: bool = False,
    ) -> None:
        check_call_key(key)
        self.key = key
        self.call = partial(call, **kwargs) if kwargs else call
        self.args = args
        self.kwargs = kwargs or {}
        self.keep = bool(keep)
        self.returns = return_type_of(self.call)
        self.mark = _mark_of(self.call, args)
        self._function = call
        self.intent: Intent | None = None
        if on_unknown in ("ask", "fail"):
            self.intent = Intent(on_unknown, _shown_arguments(args, kwargs), self.keep)
        elif on_unknown != "repeat":
            allowed = "repeat, ask or fail"
            raise InvalidRequestError(field="on_unknown", value=str(on_unknown), allowed=allowed)
        self.request: Request | None = None
        if request is not None:
            try:
                self.request = fingerprint_of(request)
            except (ValueError, TypeError) as error:
                raise not_json("request", ValueError(error)) from None

    def check(self) -> None:
        """Refuse a call that would cost something for nothing, with a LeaseholdError."""
        self.returns.check_restorable(self.call)
        check_arguments(self._function, name_of(self._function), self.args, self.kwargs)


def _shown_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> str:
    """Return the arguments of a call, for a person who is asked whether it has happened."""
    shown = [try_text(lambda: repr(one)) for one in args]  # noqa: B023
    shown += [f"{name}={try_text(lambda: repr(one))}" for name, one in (kwargs or {}).items()]  # noqa: B023
    return cut(", ".join(shown), MAX_ARGUMENTS_CHARS)


class CallsMadeOnce:
    """The calls of one attempt that are made once.

    Args:
        calls: where results are found and recorded.

    Attributes:
        made: how many calls were made, and not found.
    """

    def __init__(self, calls: ContextCalls) -> None:
        self._calls = calls
        self._turns = Turns()
        self._seen: dict[str, str] = {}
        self.made = 0

    def make(self, asked: OnceCall) -> Any:
        """Return the result of a call: the recorded one, or that of the call made now."""
        if asked.returns.is_async:
            raise refused(asked.call, _ASYNC)
        try:
            with self._turns.turn(asked.key):
                text = self._recorded(asked)
                if text is None:
                    with collecting(self._calls.note_spend) as spent:
                        with self._intended(asked):
                            asked.check()
                            result = _not_awaitable(asked.call, asked.call(*asked.args))
                        text = self._record(asked, result, spent)
                return _read(asked.key, asked.returns, text)
        except OwnTurnError:
            raise refused(asked.call, _WITHIN_ITSELF) from None

    async def amake(self, asked: OnceCall) -> Any:
        """Do as `make`, without blocking the loop; the call may be of a coroutine function."""
        try:
            async with self._turns.aturn(asked.key):
                if self._calls.is_at_hand(asked.key, asked.request, asked.intent):
                    text = self._recorded(asked)
                else:
                    text = await in_thread(partial(self._recorded, asked))
                if text is None:
                    with collecting(self._calls.note_spend) as spent:
                        with self._intended(asked):
                            asked.check()
                            result = await _awaited(asked.call, asked.args, asked.returns)
                        text = await _to_the_end(partial(self._record, asked, result, spent))
                return _read(asked.key, asked.returns, text)
        except OwnTurnError:
            raise refused(asked.call, _WITHIN_ITSELF) from None

    @contextlib.contextmanager
    def _intended(self, asked: OnceCall) -> Iterator[None]:
        """Forget that a call was to be made which raises: the handler knows what became of it."""
        try:
            yield
        except Exception:
            self._calls.forget_intent(asked.key)
            raise

    def _recorded(self, asked: OnceCall) -> str | None:
        """Return the recorded result of a call, JSON text; None: it is to be made."""
        key, mark = asked.key, asked.mark
        if self._seen.get(key, mark) != mark:
            raise CallKeyReusedError(key=key)
        text = self._calls.recorded_result(key, asked.returns.name, asked.request, asked.intent)
        if text is not None:
            self._seen[key] = mark
        return text

    def _record(self, asked: OnceCall, result: Any, spent: SpentInCall) -> str:
        """Record the result of a call that was made; return the one that counts, JSON text."""
        written = _written(asked.key, asked.returns, result)
        self.made += 1
        made = MadeCall(
            asked.key, asked.returns.name, written, asked.keep, asked.request, spent.spend
        )
        text = self._calls.record_result(made)
        self._seen[asked.key] = asked.mark
        return text


def _written(key: str, returns: ReturnType, result: Any) -> str:
    """Return a result as JSON text that can be read again.

    Raises:
        CallResultError, TooLargeError: it cannot be kept.
        UnrestorableResultError: it is not JSON, or would come back as something else.
    """
    try:
        text = json_text_of(returns.model, result, name="result", round_trip=True)
    except ValidationError as error:
        problem = f"is not the {returns.name} that it is annotated to return"
        raise CallResultError(key=key, problem=f"{problem}: {first_problem(error)}") from None
    except Exception as error:  # noqa: BLE001 - a validator of the user's may raise anything
        problem = f"cannot be kept as JSON: {cut(record_of(error).message, _MAX_PROBLEM_CHARS)}"
        raise UnrestorableResultError(key=key, problem=problem) from None
    check_size(f"the result of the call {key!r}", text, MAX_OUTPUT_BYTES)
    if lost := returns.lost_in(result, _read(key, returns, text)):
        problem = f"would not come back as what it is: {lost}. {RECIPE}"
        raise UnrestorableResultError(key=key, problem=problem)
    return text


def _read(key: str, returns: ReturnType, text: str) -> Any:
    """Return a result as the type that the call returns, or raise CallMisfitError."""
    try:
        return returns.model.validate_json(text)
    except ValidationError as error:
        problem = f"as it is kept does not fit {returns.name}: {first_problem(error)}"
        raise CallMisfitError(
            key=key, problem=f"{problem}; to make the call again, give it another key"
        ) from None


def _not_awaitable(call: Callable[..., Any], result: Any) -> Any:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()  # it never began
        raise refused(call, _ASYNC)
    return result


async def _to_the_end(write: Callable[[], str]) -> str:
    """Return what a write returns; a task that is cut short meanwhile ends after it.

    Else who has the turn after it would not find what was written.
    """
    writing = asyncio.ensure_future(in_thread(write))
    try:
        return await asyncio.shield(writing)
    except BaseException:
        await asyncio.wait([writing])
        raise


async def _awaited(call: Callable[..., Any], args: tuple[Any, ...], returns: ReturnType) -> Any:
    """Return what a call returns; one that may block is made in its own thread."""
    if returns.is_async:
        return await call(*args)
    result = await in_thread(partial(call, *args))
    return await result if inspect.isawaitable(result) else result


def _mark_of(call: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """Return what tells a call and its arguments from others of the attempt, and nothing of them.

    A variable that a lambda reads from the function around it is an argument by another name.
    """
    words = [name_of(call), getattr(call, "__module__", ""), try_text(lambda: repr(args))]
    while isinstance(call, functools.partial):
        partial_of = call
        words.append(try_text(lambda: repr((partial_of.args, partial_of.keywords))))  # noqa: B023
        call = call.func
    if getattr(call, "__name__", "") == "<lambda>":
        code, cells = call.__code__, call.__closure__ or ()
        words += [str(code.co_firstlineno), try_text(lambda: repr(call.__defaults__))]
        words += [try_text(lambda: repr(cell.cell_contents)) for cell in cells]  # noqa: B023
    text = _ADDRESS.sub("", "\0".join(map(str, words)))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


# Turns: what has a key is done by one thread or task at a time.


#: The keys whose turn this thread or task has, by the turns that they are of.
_OWN: Final[ContextVar[frozenset[tuple[int, str]]]] = ContextVar("turns", default=frozenset())


class OwnTurnError(Exception):
    """The holder of the turn of a key wants it once more, and would wait for itself."""


class Turns:
    """The turns of keys, for threads and for tasks of event loops alike."""

    def __init__(self) -> None:
        self._taken: dict[str, Future[None]] = {}
        self._taking = threading.Lock()

    @contextlib.contextmanager
    def turn(self, key: str) -> Iterator[None]:
        """Wait for the turn of a key, and have it inside.

        Raises:
            OwnTurnError: to wait would be to wait forever.
        """
        while before := self._taken_before(key):
            if _in_event_loop():
                raise OwnTurnError  # the loop that it would block may have to end the other turn
            before.result()
        with self._having(key):
            yield

    @contextlib.asynccontextmanager
    async def aturn(self, key: str) -> AsyncIterator[None]:
        """Do as `turn`, without blocking the loop."""
        while before := self._taken_before(key):
            await asyncio.wrap_future(before)
        with self._having(key):
            yield

    def _taken_before(self, key: str) -> Future[None] | None:
        """Return the turn that is to be waited for; None: it is the caller's now."""
        if (id(self), key) in _OWN.get():
            raise OwnTurnError
        with self._taking:
            before = self._taken.get(key)
            if before is None:
                mine: Future[None] = Future()
                mine.set_running_or_notify_cancel()  # a task that waits for it may be cancelled
                self._taken[key] = mine
            return before

    @contextlib.contextmanager
    def _having(self, key: str) -> Iterator[None]:
        token = _OWN.set(_OWN.get() | {(id(self), key)})
        try:
            yield
        finally:
            _OWN.reset(token)
            self._taken.pop(key).set_result(None)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# What a call returns, by its annotation: how its result becomes JSON text, and is read again.


_MARK: Final = 16
#: A result is searched so deep for what is lost, and so many members of each list in it.
_MAX_LEVELS_SEARCHED: Final = 6
_MAX_MEMBERS_SEARCHED: Final = 100
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
        problem = safe_text(first_sentence(error), MAX_VALUE_SHOWN_CHARS)
        allowed = (
            f"a function whose return annotation can be read from JSON; of this one: {problem}"
        )
        raise refused(call, allowed) from error
    return ReturnType(_short(type_name(hint)), model, inspect.iscoroutinefunction(code), hint)


def refused(call: object, allowed: str) -> InvalidRequestError:
    """Return the error of a call that cannot be made."""
    return InvalidRequestError(
        field="call", value=name_of(call)[:MAX_VALUE_SHOWN_CHARS], allowed=allowed
    )


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
    names, said = getattr(function, "__globals__", {}), annotations["return"]
    if isinstance(said, str) and said in names:  # most are a name, and Python would compile it
        said = names[said]
    alone = types.SimpleNamespace(__annotations__={"return": said})
    hint = get_type_hints(alone, globalns=names, include_extras=True)["return"]
    if get_origin(hint) in (Awaitable, Coroutine):
        return get_args(hint)[-1]
    return hint


def _short(name: str) -> str:
    if len(name) <= MAX_TYPE_CHARS:
        return name
    return f"{name[: MAX_TYPE_CHARS - _MARK - 1]}#{digest(name)[:_MARK]}"


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
    if depth == _MAX_LEVELS_SEARCHED or type(result) is not type(restored):
        return None
    pairs = ((path + at, one, other) for at, one, other in _pairs(result, restored))
    found = (_lost_in(*pair, depth + 1) for pair in pairs)
    return next((lost for lost in found if lost), None)


def _pairs(result: Any, restored: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the members of two values of one type, with the step of the path to each."""
    if isinstance(result, list | tuple):
        both = zip(result, restored, strict=False)
        yield from (
            (f"[{at}]", *pair) for at, pair in enumerate(islice(both, _MAX_MEMBERS_SEARCHED))
        )
    elif isinstance(result, dict):
        for key in islice(result, _MAX_MEMBERS_SEARCHED):
            yield f"[{key!r}]", result[key], restored.get(key)
    elif _has_fields(type(result)):
        names = getattr(result, "__pydantic_fields__", None) or [f.name for f in fields(result)]
        for name in names:
            yield f".{name}", getattr(result, name, None), getattr(restored, name, None)


def _has_fields(kind: type) -> bool:
    return issubclass(kind, BaseModel) or is_dataclass(kind)
