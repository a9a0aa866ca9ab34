"""The soft limit, in the child: SoftTimeoutError is raised where the handler's main thread is.

What is said here of a handler holds for its entry actions as well: they are called before it.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import CodeType, FrameType
from typing import Any, Final, TypeVar

from leasehold.bounded_calls import start_thread
from leasehold.errors import SoftTimeoutError
from leasehold.worker.context.step_context import StepContext
from leasehold.worker.handler.handlers import StepFunction
from leasehold.worker.sandbox.forking.footprint import LIMIT_SIGNAL

F = TypeVar("F", bound=StepFunction)

#: So long after it was given it is given again, unless it was raised.
_SIGNAL_EVERY_S: Final = 0.1


class SoftLimit:
    """Raises SoftTimeoutError in a handler, when the limit is given, and never after its end.

    In a coroutine that waits it is raised where that waits; in code that blocks, there.

    Attributes:
        task: the task of an async handler, once that runs.
        coroutine: its coroutine.
    """

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None
        self.coroutine: Coroutine[Any, Any, Any] | None = None
        self._is_given = False
        self._is_raised = False
        self._is_over = False
        self._is_cancelling = False
        self._interrupted: list[asyncio.Task[Any]] = []

    def within(self, function: F) -> F:
        """Return a handler or an entry action as the limit reaches it.

        In the main thread, which will call one after the other.
        """
        signal.signal(LIMIT_SIGNAL, self._on_signal)
        call = self._call_async if function.is_async else self._call
        return replace(function, function=partial(call, function.function))

    def give(self) -> None:
        """Give the limit, in any other thread."""
        self._is_given = True
        self._signal()
        start_thread(self._insist, "leasehold-limit")

    def end(self) -> None:
        """Raise nothing any more; what wakes the main thread is kept from ending its process."""
        signal.signal(LIMIT_SIGNAL, _ignore)
        self.task = self.coroutine = None

    def _insist(self) -> None:
        """Give it again until it is raised: one that just begins cannot be interrupted yet."""
        while not (self._is_raised or self._is_over):
            time.sleep(_SIGNAL_EVERY_S)
            self._signal()

    def _signal(self) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, LIMIT_SIGNAL)

    def _call(self, function: Callable[..., Any], ctx: StepContext, given: Any) -> Any:
        self._begin()
        try:
            self._raise_if_given()
            return function(ctx, given)
        finally:
            self._is_over = True

    async def _call_async(self, function: Callable[..., Any], ctx: StepContext, given: Any) -> Any:
        self._begin()
        try:
            self._raise_if_given()
            self.coroutine = function(ctx, given)
            self.task = asyncio.current_task()
            return await _Driven(self.coroutine, self._in_place_of)
        finally:
            self._is_over = True

    def _begin(self) -> None:
        """Forget the call before this one, which has ended."""
        self.task = self.coroutine = None
        self._is_over = self._is_cancelling = False

    def _raise_if_given(self) -> None:
        if self._is_given and not self._is_raised:
            self._is_raised = True
            raise SoftTimeoutError

    def _on_signal(self, _: int, frame: FrameType | None) -> None:
        """Raise it here, if this is the handler: what it has returned counts already."""
        if self._is_raised:
            return
        if self.task is None:
            if _is_called_by(frame, SoftLimit._call.__code__):
                self._raise_if_given()
            return
        if self.task.done():
            return
        runs = asyncio.current_task(self.task.get_loop())
        if runs is self.task and _is_called_by(frame, _Driven.__await__.__code__):
            self._raise_if_given()
        if not self._is_cancelling:
            self._is_cancelling = True
            self.task.get_loop().call_soon_threadsafe(self._cancel)
        if runs is not None and runs is not self.task and runs not in self._interrupted:
            self._interrupted.append(runs)
            raise SoftTimeoutError  # a task of the handler's blocks its loop

    def _cancel(self) -> None:
        if self.task is not None and not self._is_raised:
            self.task.cancel()

    def _in_place_of(self, thrown: BaseException) -> BaseException:
        """Return what the coroutine gets for what its task has thrown into it."""
        is_ours = isinstance(thrown, asyncio.CancelledError) and self._is_given
        if not is_ours or self._is_raised:
            return thrown
        self._is_raised = True
        if self.task is not None:
            self.task.uncancel()
        return SoftTimeoutError()


class _Driven:
    """Awaits a coroutine; what is thrown into it can be another error than its task was given."""

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        in_place_of: Callable[[BaseException], BaseException],
    ) -> None:
        self._coroutine = coroutine
        self._in_place_of = in_place_of

    def __await__(self) -> Generator[Any, Any, Any]:
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                if error is None:
                    waits_for = self._coroutine.send(value)
                else:
                    waits_for = self._coroutine.throw(error)
            except StopIteration as end:
                return end.value
            value, error = None, None
            try:
                value = yield waits_for
            except BaseException as thrown:  # noqa: BLE001 - all of them are the coroutine's
                error = self._in_place_of(thrown)


def _ignore(_signal: int, _frame: object) -> None:
    pass


def _is_called_by(frame: FrameType | None, code: CodeType) -> bool:
    """Return whether the frame is of something that this code has called, and not its own."""
    caller = None if frame is None else frame.f_back
    while caller is not None:
        if caller.f_code is code:
            return frame is not None and frame.f_code is not code
        caller = caller.f_back
    return False


# The stacks of a child, written where its worker reads them, whatever the handler does.
#
# While the interpreter runs, they are written by a thread that holds its lock: no thread changes
# them meanwhile. A thread without it may read data that is being changed, and crash, so that is
# for processes that do not answer.


#: What the worker sends for the stacks of all threads.
STACKS_SIGNAL: Final[int] = getattr(signal, "SIGRTMAX", signal.SIGUSR2) - 2

#: The worker asks at the soft limit. Who hears neither that nor a signal writes its stacks so much
#: later, and at the latest in the middle of its time to clean up.
_STACKS_DELAY_S: Final = 1.0
_MAX_TASKS: Final = 20
_MAX_FRAMES: Final = 100


class ChildStacks:
    """Has the stacks written: of a crash, when the worker asks or signals, and at the soft limit.

    None of the three needs the interpreter's lock, and the last one needs no signal.

    Args:
        pipe: the descriptor to write to; it does not block.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        faulthandler.enable(pipe)
        faulthandler.register(STACKS_SIGNAL, pipe)
        os.register_at_fork(after_in_child=self._leave)

    def expect(self, soft_s: float, cleanup_s: float) -> None:
        """Write them after the soft limit, in `soft_s` seconds, if not asked for before."""
        later = min(_STACKS_DELAY_S, cleanup_s / 2)
        faulthandler.dump_traceback_later(max(0.0, soft_s) + later, file=self._pipe)

    def expect_no_more(self) -> None:
        """Write nothing later: the attempt has ended, or its soft limit was given."""
        faulthandler.cancel_dump_traceback_later()

    def write(self, soft: SoftLimit) -> None:
        """Write the stacks of all threads, and of the coroutines that wait: no thread runs them."""
        faulthandler.dump_traceback(self._pipe)
        if soft.task is None or soft.coroutine is None:
            return
        stacks = [_stack_of(soft.coroutine)]
        with suppress(RuntimeError):  # the set of tasks changes meanwhile
            tasks = asyncio.all_tasks(soft.task.get_loop()) - {soft.task}
            stacks += [_stack_of(task.get_coro()) for task in list(tasks)[:_MAX_TASKS]]
        with suppress(OSError):  # there is no room
            os.write(self._pipe, "".join(stacks).encode("utf-8", "replace"))

    def _leave(self) -> None:
        """Have a fork write nothing here, but a crash to stderr, as the handler's own program."""
        with suppress(Exception):  # it may have closed stderr
            faulthandler.enable()
            faulthandler.unregister(STACKS_SIGNAL)


def _stack_of(awaitable: Any) -> str:
    lines = [
        f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}\n'
        for frame in _frames_of(awaitable)
    ]
    return "\nTask (most recent call first):\n" + "".join(reversed(lines))


def _frames_of(awaitable: Any) -> Iterator[Any]:
    """Yield the frames of a coroutine and of what it waits for."""
    for _ in range(_MAX_FRAMES):
        if awaitable is None:
            return
        for kind in ("cr", "gi", "ag"):
            if frame := getattr(awaitable, f"{kind}_frame", None):
                yield frame
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "gi_yieldfrom", None)
