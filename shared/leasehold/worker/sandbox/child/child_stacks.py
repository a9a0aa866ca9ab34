"""The stacks of a child, written where its worker reads them, whatever the handler does.

While the interpreter runs, they are written by a thread that holds its lock: no one changes them
meanwhile. A thread without it may read data that is being changed, and crash, so that is for
processes that do not answer.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from leasehold.worker.sandbox.child.soft_limit import SoftLimit

#: What the worker sends for the stacks of all threads.
STACKS_SIGNAL: Final[int] = getattr(signal, "SIGRTMAX", signal.SIGUSR2) - 2

#: The worker asks at the soft limit. Who hears neither that nor a signal writes its stacks so much
#: later, and at the latest in the middle of its time to clean up.
_LATER_S: Final = 1.0
_MOST_TASKS: Final = 20
_MOST_FRAMES: Final = 100


class ChildStacks:
    """Has the stacks written: of a crash, at the signal of the worker, and at the soft limit.

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
        """Write them when the soft limit is over, in so many seconds, and no one has asked."""
        later = min(_LATER_S, cleanup_s / 2)
        faulthandler.dump_traceback_later(max(0.0, soft_s) + later, file=self._pipe)

    def expect_no_more(self) -> None:
        """Write nothing of an attempt that has ended."""
        faulthandler.cancel_dump_traceback_later()

    def write(self, soft: SoftLimit) -> None:
        """Write the stacks of all threads, and of the coroutines that wait: no thread runs them."""
        faulthandler.cancel_dump_traceback_later()
        faulthandler.dump_traceback(self._pipe)
        if soft.task is None or soft.coroutine is None:
            return
        stacks = [_stack_of(soft.coroutine)]
        with suppress(RuntimeError):  # the set of tasks changes meanwhile
            tasks = asyncio.all_tasks(soft.task.get_loop()) - {soft.task}
            stacks += [_stack_of(task.get_coro()) for task in list(tasks)[:_MOST_TASKS]]
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
    for _ in range(_MOST_FRAMES):
        if awaitable is None:
            return
        for kind in ("cr", "gi", "ag"):
            if frame := getattr(awaitable, f"{kind}_frame", None):
                yield frame
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "gi_yieldfrom", None)
