"""Calls with a time limit, each in a thread: a call that hangs blocks no other work.

The waiting caller, the time limit and calls made side by side are all here. Where the system has no
thread or no memory for a call, the caller gets an error; no call begins after its caller gave up.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")

#: So long a background call is waited for: most are over by then, and tests find
#: done what they expect.
CALL_PATIENCE_S: Final = 5.0
#: With so many that are still under way, no other is begun.
MAX_LATE_CALLS: Final = 4
#: So long a thread waits for a further call.
IDLE_THREAD_S: Final = 1.0

#: A call, and where what it comes to is waited for.
_Job: TypeAlias = tuple[Callable[[], Any], "Future[Any]"]
#: What one thread is given; None: it is to end.
_Inbox: TypeAlias = "SimpleQueue[_Job | None]"


def start_thread(target: Callable[[], object], name: str) -> threading.Thread | None:
    """Start a daemon thread and return it; None: the system has no thread, or no memory, for it."""
    try:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
    except (RuntimeError, MemoryError):
        return None
    return thread


def start_call(call: Callable[[], T], name: str) -> Future[T] | None:
    """Make a call in its own thread, and return what it comes to; None: as `start_thread`."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # a call that was begun is not taken back
    make = partial(copy_context().run, _complete, call, done)
    return None if start_thread(make, name) is None else done


async def in_thread(call: Callable[[], T]) -> T:
    """Return what a blocking call returns, made in another thread, or here if there is none.

    The loop's own executor keeps a call that it had no thread for, to make it at some later time,
    and needs a further thread to be closed.
    """
    done = _HANDLER_CALLS.start_call(call)
    return copy_context().run(call) if done is None else await asyncio.wrap_future(done)


def _complete(call: Callable[[], T], done: Future[T]) -> None:
    try:
        done.set_result(call())
    except BaseException as error:  # noqa: BLE001 - it is raised where the call is awaited
        done.set_exception(error)


class BoundedCalls:
    """Makes calls with a limited wait; a limited number may go on after that.

    Args:
        name: what the threads are named.
        patience_s: for how many seconds each is waited for, unless it says otherwise.
        most_late: how many may go on after they were waited for.
    """

    def __init__(
        self, name: str, patience_s: float = CALL_PATIENCE_S, most_late: int = MAX_LATE_CALLS
    ) -> None:
        self._threads = KeptThreads(name)
        self._patience_s = patience_s
        self._most_late = most_late
        self._late: list[Future[Any]] = []
        self._noting = threading.Lock()

    def are_taken(self) -> bool:
        """Return whether as many calls hang as may: no other is to be made."""
        with self._noting:
            self._late = [call for call in self._late if not call.done()]
            return len(self._late) >= self._most_late

    def make(self, call: Callable[[], T], *, wait_s: float) -> Future[T] | None:
        """Make a call, and return it when it is over or was waited for.

        None: the system has no thread for it, and it is not made.
        """
        made = self._threads.start_call(call)
        if made is not None:
            with suppress(TimeoutError):
                made.exception(wait_s)
            self._note_late(made)
        return made

    def run(self, call: Callable[[], object], patience_s: float | None = None) -> bool:
        """Make a call in the background; return whether it is over.

        One that takes long goes on without the caller. Where too many do, or the system has no
        thread, it is not made.

        Args:
            call: what is called.
            patience_s: for how many seconds it is waited for; None: as all are.

        Raises:
            Errors of the call, if it ends in time.
        """
        if self.are_taken():
            return False
        wait_s = self._patience_s if patience_s is None else patience_s
        made = self.make(call, wait_s=wait_s)
        if made is None or not made.done():
            return False
        made.result()
        return True

    def close(self) -> None:
        """End the threads that have no call to make."""
        self._threads.close()

    def _note_late(self, call: Future[Any]) -> None:
        if not call.done():
            with self._noting:
                self._late.append(call)


class KeptThreads:
    """Makes calls as `start_call` does, in threads that go on to the next one.

    To begin a thread takes longer than a short call.

    Args:
        name: what the threads are named.
        kept_s: for how many seconds one waits for a further call.
    """

    def __init__(self, name: str, kept_s: float = IDLE_THREAD_S) -> None:
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
            self._make(inbox, *job)
            del job  # nothing of a call is kept while the thread waits

    def _make(self, inbox: _Inbox, call: Callable[[], Any], done: Future[Any]) -> None:
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - it is raised where the call is awaited
            self._wait_for_more(inbox)
            done.set_exception(error)
        else:
            self._wait_for_more(inbox)
            done.set_result(result)

    def _wait_for_more(self, inbox: _Inbox) -> None:
        """Be ready for the next call before the waiting caller can make another."""
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
            return inbox.get()  # another thread has just taken it


_HANDLER_CALLS: Final = KeptThreads("handler-call")

Call = Callable[[], None]


def side_by_side(take: Callable[[], Call | None], at_most: int) -> None:
    """Make the calls that `take` gives, a limited number at a time, until it gives none.

    The caller's thread makes calls too, and another one is started only while there are calls to
    make. A thread that cannot be started is done without. Each has the context of the caller.

    Args:
        take: gives the next call, or None where there is none now. It is never called twice at
            the same time. Each thread calls it once more after each call that it made, so what a
            call leaves to be done may be given then.
        at_most: how many calls may run at once.

    Raises:
        What `take` or a call raises, once the calls that run are over; no further one is made.
    """
    _Crew(take, at_most).run()


class _Crew:
    def __init__(self, take: Callable[[], Call | None], at_most: int) -> None:
        self._take = take
        self._at_most = at_most
        self._helpers: list[threading.Thread] = []
        self._taking = threading.Lock()
        self._over = False
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._work()
        except BaseException:
            self._over = True
            raise
        finally:
            for helper in self._helpers:  # those that come meanwhile are joined too
                helper.join()
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while call := self._next():
            call()

    def _next(self) -> Call | None:
        with self._taking:
            call = None if self._over else self._take()
            if call is not None and len(self._helpers) + 1 < self._at_most:
                self._start_helper()
            return call

    def _start_helper(self) -> None:
        helper = start_thread(partial(copy_context().run, self._help), "side-by-side")
        if helper is not None:
            self._helpers.append(helper)

    def _help(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - it is raised again by the caller's thread
            self._over, self._failure = True, error
