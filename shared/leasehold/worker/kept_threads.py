"""Threads for short calls that are kept for a while: to begin one takes longer than such a call."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

from leasehold.worker.threads import start_thread

T = TypeVar("T")

#: So long a thread waits for a further call.
KEPT_S: Final = 1.0

#: A call, and where what it comes to is waited for.
_Job: TypeAlias = tuple[Callable[[], Any], "Future[Any]"]
#: What one thread is given; None: it is to end.
_Inbox: TypeAlias = "SimpleQueue[_Job | None]"


class KeptThreads:
    """Makes calls as `start_call` does, in threads that go on to the next one.

    Args:
        name: what the threads are named.
        kept_s: for how many seconds one waits for a further call.
    """

    def __init__(self, name: str, kept_s: float = KEPT_S) -> None:
        self._name = name
        self._kept_s = kept_s
        self._idle: list[_Inbox] = []
        self._changing = threading.Lock()
        self._owner = os.getpid()
        self._is_closed = False

    def start_call(self, call: Callable[[], T]) -> Future[T] | None:
        """Make a call, and return what it comes to; None: the system has no thread for it."""
        done: Future[T] = Future()
        done.set_running_or_notify_cancel()  # a call that was begun is not taken back
        job: _Job = partial(copy_context().run, call), done
        inbox = self._take_idle()
        if inbox is not None:
            inbox.put(job)
            return done
        inbox = SimpleQueue()
        inbox.put(job)
        return None if start_thread(partial(self._work, inbox), self._name) is None else done

    def close(self) -> None:
        """End the threads that wait, and each other one after its call."""
        with self._changing:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _take_idle(self) -> _Inbox | None:
        if self._owner != os.getpid():  # a fork has none of the threads
            self._owner, self._changing, self._idle = os.getpid(), threading.Lock(), []
        with self._changing:
            return self._idle.pop() if self._idle else None

    def _work(self, inbox: _Inbox) -> None:
        """Make one call after another, until none has come for a while."""
        while (job := self._next(inbox)) is not None:
            call, done = job
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - it is raised where the call is awaited
                self._wait_for_more(inbox)
                done.set_exception(error)
            else:
                self._wait_for_more(inbox)
                done.set_result(result)

    def _wait_for_more(self, inbox: _Inbox) -> None:
        """Be there for the next call before whoever waits for this one can have another."""
        with self._changing:
            if self._is_closed:
                inbox.put(None)
            else:
                self._idle.append(inbox)

    def _next(self, inbox: _Inbox) -> _Job | None:
        try:
            return inbox.get(timeout=self._kept_s)
        except Empty:
            with self._changing:
                if inbox in self._idle:
                    self._idle.remove(inbox)
                    return None
            return inbox.get()  # somebody has just taken it
