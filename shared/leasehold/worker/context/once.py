"""Recorded results: a stored value takes the place of a call (`StepContext.once`)."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pydantic import ValidationError

from leasehold.attempt.calls import ContextCalls
from leasehold.bounded_calls import in_thread
from leasehold.domain.json_text import OUTPUT_BYTES, check_size
from leasehold.domain.once_results import check_call_key
from leasehold.errors import CallKeyReusedError, CallResultError, UnrestorableResultError
from leasehold.worker.context.keyed_lock import OwnTurnError, Turns
from leasehold.worker.context.return_type import (
    RECIPE,
    ReturnType,
    name_of,
    refused,
    return_type_of,
)
from leasehold.worker.context.typed_json import json_text_of
from leasehold.worker.failures.failures import record_of
from leasehold.worker.failures.kept_text import cut, try_text
from leasehold.worker.failures.validation_issues import first_problem

_MAX_PROBLEM: Final = 1000
#: Where an object is in memory says nothing of what it is.
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")

_WITHIN_ITSELF: Final = "a function that does not use its own key while it is called"
_ASYNC: Final = "a function; a coroutine function is for `await ctx.aonce(…)`"


class CallsMadeOnce:
    """The calls of one attempt that are made once.

    Args:
        calls: where results are found and recorded.
    """

    def __init__(self, calls: ContextCalls) -> None:
        self._calls = calls
        self._turns = Turns()
        self._seen: dict[str, str] = {}

    def make(self, key: str, call: Callable[..., Any], args: tuple[Any, ...], keep: bool) -> Any:
        """Return the result of a call: the recorded one, or that of the call made now."""
        check_call_key(key)
        returns, mark = return_type_of(call), _mark_of(call, args)
        if returns.is_async:
            raise refused(call, _ASYNC)
        try:
            with self._turns.turn(key):
                text = self._recorded(key, returns, mark)
                if text is None:
                    returns.check_restorable(call)
                    result = _not_awaitable(call, call(*args))
                    text = self._record(key, returns, mark, result, keep)
                return _read(key, returns, text)
        except OwnTurnError:
            raise refused(call, _WITHIN_ITSELF) from None

    async def amake(
        self, key: str, call: Callable[..., Any], args: tuple[Any, ...], keep: bool
    ) -> Any:
        """Do as `make`, without blocking the loop; the call may be of a coroutine function."""
        check_call_key(key)
        returns, mark = return_type_of(call), _mark_of(call, args)
        try:
            async with self._turns.aturn(key):
                text = await in_thread(partial(self._recorded, key, returns, mark))
                if text is None:
                    returns.check_restorable(call)
                    result = await _awaited(call, args, returns)
                    record = partial(self._record, key, returns, mark, result, keep)
                    text = await _to_the_end(record)
                return _read(key, returns, text)
        except OwnTurnError:
            raise refused(call, _WITHIN_ITSELF) from None

    def _recorded(self, key: str, returns: ReturnType, mark: str) -> str | None:
        """Return the recorded result of a call, JSON text; None: it is to be made."""
        if self._seen.get(key, mark) != mark:
            raise CallKeyReusedError(key=key)
        text = self._calls.recorded_result(key, returns.name)
        if text is not None:
            self._seen[key] = mark
        return text

    def _record(self, key: str, returns: ReturnType, mark: str, result: Any, keep: bool) -> str:
        """Record the result of a call that was made; return it as JSON text."""
        text = _written(key, returns, result)
        self._calls.record_result(key, returns.name, text, keep=bool(keep))
        self._seen[key] = mark
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
        problem = f"cannot be kept as JSON: {cut(record_of(error).message, _MAX_PROBLEM)}"
        raise UnrestorableResultError(key=key, problem=problem) from None
    check_size(f"the result of the call {key!r}", text, OUTPUT_BYTES)
    if lost := returns.lost_in(result, _read(key, returns, text)):
        problem = f"would not come back as what it is: {lost}. {RECIPE}"
        raise UnrestorableResultError(key=key, problem=problem)
    return text


def _read(key: str, returns: ReturnType, text: str) -> Any:
    """Return a result as the type that the call returns, or raise CallResultError."""
    try:
        return returns.model.validate_json(text)
    except ValidationError as error:
        problem = f"as it is kept does not fit {returns.name}: {first_problem(error)}"
        raise CallResultError(
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

    What a lambda reads of the function around it is an argument by another name.
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
