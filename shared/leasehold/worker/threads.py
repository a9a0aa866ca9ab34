"""Threads of this process, where the system may have none to give."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import TypeVar

T = TypeVar("T")


def start_thread(target: Callable[[], object], name: str) -> threading.Thread | None:
    """Start a daemon thread and return it; None: the system has no thread, or no memory, for it."""
    try:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
    except (RuntimeError, MemoryError):
        return None
    return thread


def start_call(call: Callable[[], T], name: str) -> Future[T] | None:
    """Make a call in a thread of its own, and return what it comes to; None: as `start_thread`."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # a call that was begun is not taken back
    make = partial(copy_context().run, _make, call, done)
    return None if start_thread(make, name) is None else done


async def in_thread(call: Callable[[], T]) -> T:
    """Return what a blocking call returns, made in a thread of its own, or here if there is none.

    The loop's own executor keeps a call that it had no thread for, to make it at some later time,
    and needs a further thread to be closed.
    """
    done = start_call(call, "handler-call")
    return copy_context().run(call) if done is None else await asyncio.wrap_future(done)


def _make(call: Callable[[], T], done: Future[T]) -> None:
    try:
        done.set_result(call())
    except BaseException as error:  # noqa: BLE001 - it is raised where the call is awaited
        done.set_exception(error)
