"""Handlers: from a path in the registry to a function with its models."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import signal
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final, NoReturn, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter

from leasehold.domain.result import StepResult
from leasehold.errors import HandlerNotFoundError
from leasehold.frozen import dataclass
from leasehold.ports.handler_runner import StepHandler
from leasehold.worker.context.step_context import StepContext
from leasehold.worker.context.typed_json import adapter_of, code_of, first_sentence, unwrapped
from leasehold.worker.failures.failures import safe_text, words_of_import
from leasehold.worker.handler.user_modules import ImportRaisedError, import_users

#: A module that catches what says that it is late hears it again after so many seconds.
_INTERRUPT_EVERY_S: Final = 1.0
_MAX_WORDS_CHARS: Final = 300

_HANDLER: Final = "a handler is a function (ctx, given) that returns its output"
_ACTION: Final = "an entry action is a function (ctx, given)"
_SENDER: Final = "a sender is a function (message, timeout)"

#: What no call of a handler may make, by how it is known.
_REFUSED: Final = (
    (inspect.isclass, "a class"),
    (inspect.isgeneratorfunction, "a generator function"),
    (inspect.isasyncgenfunction, "a generator function"),
)


@dataclass(frozen=True, slots=True)
class StepFunction:
    """A function `(ctx, given)` of a user, sync or async."""

    function: Callable[[StepContext, Any], Any]
    is_async: bool

    def __call__(self, ctx: StepContext, given: Any) -> Any:
        """Call the function; a coroutine is run to its end."""
        if self.is_async:
            return asyncio.run(self.function(ctx, given))
        return self.function(ctx, given)


@dataclass(frozen=True, slots=True)
class Handler(StepFunction):
    """A function `(ctx, given) -> output`, with the models of what goes in and out."""

    given: TypeAdapter[Any]
    output: TypeAdapter[Any]
    given_name: str
    output_name: str


def handler_of(step: StepHandler) -> Handler:
    """Import the handler of a step.

    Raises:
        HandlerNotFoundError: the path does not lead to a function that takes (ctx, given).
    """
    try:
        return _resolve(step.handler)
    except UnresolvedError as error:
        raise HandlerNotFoundError(
            handler=step.handler, step=step.step_type, problem=str(error)
        ) from error.__cause__


def resolve_early(handler: str) -> None:
    """Resolve a handler for the calls to come; what is wrong with it, those say."""
    with contextlib.suppress(UnresolvedError):
        _resolve(handler)


def model_of(step: StepHandler, path: str) -> TypeAdapter[Any]:
    """Import the model of a step's output, `module:Model`.

    Raises:
        HandlerNotFoundError: the path does not lead to a model.
    """
    try:
        return _resolve_model(path)
    except UnresolvedError as error:
        problem = f"as the model of its output, {error}"
        raise HandlerNotFoundError(
            handler=path, step=step.step_type, problem=problem
        ) from error.__cause__


class UnresolvedError(Exception):
    """Why a path does not resolve, in words."""


@functools.cache
def action_at(path: str) -> StepFunction:
    """Import the function that is an entry action; the hints of it are its own affair.

    Raises:
        UnresolvedError: the path leads to none.
    """
    function = _imported(path)
    code = _code_of(function, _ACTION)
    _second_argument(function)
    return StepFunction(function, inspect.iscoroutinefunction(code))


@functools.cache
def sender_at(path: str) -> Callable[[Any, float], Any]:
    """Import the function that sends to a channel.

    Raises:
        UnresolvedError: the path leads to none.
    """
    function: Callable[[Any, float], Any] = _imported(path)
    _code_of(function, _SENDER)
    _second_argument(function, "(message, timeout)")
    return function


@functools.cache
def _resolve(path: str) -> Handler:
    function = _imported(path)
    code = _code_of(function, _HANDLER)
    given, output = _models(function, code)
    return Handler(
        function,
        inspect.iscoroutinefunction(code),
        _adapter(given),
        _adapter(output),
        _name_of(given),
        _name_of(output),
    )


@functools.cache
def _resolve_model(path: str) -> TypeAdapter[Any]:
    model = _imported(path)
    if inspect.isroutine(model):
        raise UnresolvedError("it is a function; a model is a class or an annotation")
    return _adapter(model)


def _name_of(model: Any) -> str:
    is_generic = bool(get_args(model))  # `list[Page]` has the name of `list`
    return str(model) if is_generic else getattr(model, "__name__", str(model))


@contextlib.contextmanager
def imports_within(seconds: float) -> Iterator[None]:
    """Have each import of a module of the user's, inside, take no longer; in the main thread.

    One that does is not resolved, now or later: who asks again in this process does not wait.
    """
    _limits.append(seconds)
    before = signal.signal(signal.SIGALRM, _say_that_it_is_late)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
        _limits.pop()


_limits: Final[list[float]] = []  # of imports, in seconds; the last one holds
_late: Final[dict[str, str]] = {}  # modules that took too long, and for how long


def _say_that_it_is_late(_signal: int, _frame: object) -> NoReturn:
    raise TimeoutError


def _module(name: str) -> ModuleType:
    """Import a module.

    Raises:
        UnresolvedError: that takes, or took, too long.
    """
    if name in _late:
        raise UnresolvedError(_late[name])
    if not _limits or name in sys.modules:
        return import_users(name)
    signal.setitimer(signal.ITIMER_REAL, _limits[-1], _INTERRUPT_EVERY_S)
    try:
        return import_users(name)
    except ImportRaisedError as error:
        if not isinstance(error.__cause__, TimeoutError):
            raise
        _late[name] = f"importing {name!r} took longer than {_limits[-1]:g} s"
        raise UnresolvedError(_late[name]) from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _imported(path: str) -> Any:
    module_name, _, name = path.partition(":")
    try:
        module = _module(module_name)
    except ImportRaisedError as raised:
        error = raised.__cause__ or raised
        problem = f"importing {module_name!r} raised {words_of_import(error, module_name)}"
        raise UnresolvedError(problem) from error
    found = getattr(module, name, None)
    if found is None:
        raise UnresolvedError(f"{module_name!r} has no {name!r}")
    return found


def _code_of(function: Any, wanted: str) -> Callable[..., Any]:
    """Return the function behind a partial or an object that can be called: it has the hints.

    Args:
        function: what a path leads to.
        wanted: what it should be, in words.
    """
    function = unwrapped(function)
    if not callable(function):
        short = wanted.partition(" that ")[0]
        problem = f"it is of class {type(function).__name__}; {short}"
        raise UnresolvedError(problem)
    code: Callable[..., Any] = code_of(function)
    for is_such, what in _REFUSED:
        if is_such(code):
            raise UnresolvedError(f"it is {what}; {wanted}")
    return code


def _models(function: Callable[..., Any], code: Callable[..., Any]) -> tuple[Any, Any]:
    """Return what the handler is given and what it returns; what it does not annotate is Any."""
    name = _second_argument(function)
    try:
        hints = get_type_hints(code, include_extras=True)
    except Exception as error:
        raise UnresolvedError(_unusable(error)) from error
    output = hints.get("return", Any)
    if get_origin(output) is StepResult:
        (output,) = get_args(output)
    elif output is StepResult:
        output = Any
    return hints.get(name, Any), output


def _second_argument(function: Callable[..., Any], wanted: str = "(ctx, given)") -> str:
    """Return the name of the parameter that takes what the handler is given."""
    try:
        bound = inspect.signature(function).bind(None, None)
    except TypeError:
        raise UnresolvedError(f"it must take two arguments, {wanted}") from None
    except ValueError:  # some of C do not say what they take
        raise UnresolvedError("it does not say which arguments it takes") from None
    return tuple(bound.arguments)[-1]


def _adapter(model: Any) -> TypeAdapter[Any]:
    """Return what reads and writes the model; one with an unknown name in it is refused now."""
    try:
        return adapter_of(model)
    except Exception as error:
        raise UnresolvedError(_unusable(error)) from error


def _unusable(error: Exception) -> str:
    words = safe_text(first_sentence(error).rstrip(" ."), _MAX_WORDS_CHARS)
    return f"its annotations cannot be used: {words}"
