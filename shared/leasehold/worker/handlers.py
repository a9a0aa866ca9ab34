"""Handlers: from a path in the registry to a function with its models."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter

from leasehold.domain.result import StepResult
from leasehold.errors import HandlerNotFoundError
from leasehold.ports.step_runner import StepHandler
from leasehold.worker.context import StepContext


@dataclass(frozen=True, slots=True)
class Handler:
    """A function `(ctx, given) -> output`, with the models of what goes in and out."""

    function: Callable[[StepContext, Any], Any]
    given: TypeAdapter[Any]
    output: TypeAdapter[Any]
    given_name: str
    is_async: bool

    def __call__(self, ctx: StepContext, given: Any) -> Any:
        """Call the function; a coroutine is run to its end."""
        if self.is_async:
            return asyncio.run(self.function(ctx, given))
        return self.function(ctx, given)


def handler_of(step: StepHandler) -> Handler:
    """Import the handler of a step.

    Raises:
        HandlerNotFoundError: the path does not lead to a function that takes (ctx, given).
    """
    try:
        return _resolve(step.handler)
    except _UnresolvedError as error:
        raise HandlerNotFoundError(
            handler=step.handler, step=step.step_type, problem=str(error)
        ) from error.__cause__


class _UnresolvedError(Exception):
    """Why a path does not resolve, in words."""


@cache
def _resolve(path: str) -> Handler:
    module_name, _, name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise _UnresolvedError(
            f"importing {module_name!r} raised {type(error).__name__}: {error}"
        ) from error
    function = getattr(module, name, None)
    if function is None:
        raise _UnresolvedError(f"{module_name!r} has no {name!r}")
    try:
        given, output = _models(function)
        name_of_given = getattr(given, "__name__", str(given))
        is_async = inspect.iscoroutinefunction(function)
        return Handler(function, TypeAdapter(given), TypeAdapter(output), name_of_given, is_async)
    except _UnresolvedError:
        raise
    except Exception as error:
        raise _UnresolvedError(f"its annotations cannot be used: {error}") from error


def _models(function: Any) -> tuple[Any, Any]:
    """Return what the handler is given and what it returns; what it does not say is Any."""
    if not callable(function):
        raise _UnresolvedError("it is no function")
    parameters = list(inspect.signature(function).parameters.values())
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise _UnresolvedError("it must take two arguments, (ctx, given)") from None
    hints = get_type_hints(function, include_extras=True)
    given = hints.get(parameters[1].name, Any) if len(parameters) > 1 else Any
    output = hints.get("return", Any)
    if get_origin(output) is StepResult:
        (output,) = get_args(output)
    elif output is StepResult:
        output = Any
    return given, output
