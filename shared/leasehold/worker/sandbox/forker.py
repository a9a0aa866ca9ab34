"""A process that forks, as its worker sees it: the fork server or a zygote."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from leasehold.worker.sandbox.assignment import Assignment, environment
from leasehold.worker.sandbox.child import Child
from leasehold.worker.sandbox.fork_loop import REPORT, REQUEST

_AT_ONCE: Final = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)

#: A process that reads nothing does not keep its worker for longer.
_SEND_S: Final = 5.0


class ForkRequest:
    """A request that was sent. No descriptor is left if that fails.

    Args:
        control: where the process that forks reads its requests.
        assignment: what the new process is for.

    Raises:
        OSError: there are no descriptors to be had, or the process that forks is gone or frozen.
    """

    def __init__(self, control: socket.socket, assignment: Assignment) -> None:
        with ExitStack() as near, ExitStack() as far:
            self._call, far_call = socket.socketpair()
            near.callback(self._call.close)
            far.callback(far_call.close)
            self._output, far_output = _pipe(near, far)
            self._status, far_status = _pipe(near, far)
            ends = [far_status, far_call.fileno(), far_output]
            message = assignment.encode()
            self._rest = message[self._call.send(message, _AT_ONCE) :]
            socket.send_fds(control, [REQUEST], ends, _AT_ONCE)
            self._near = near.pop_all()

    def answer(self, seconds: float, released: Callable[[Child], None]) -> Child | None:
        """Return the process if there is one within that time; None: there is no answer yet.

        Raises:
            OSError: there will be none.
        """
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        if not poll.poll(max(0.0, seconds) * 1000):
            return None
        report = os.read(self._status, REPORT.size)
        if not report:
            raise ConnectionResetError("the fork server ended")
        (number,) = REPORT.unpack(report)
        if number < 0:
            raise OSError(-number, os.strerror(-number))
        self._send_rest()
        self._near.pop_all()
        return Child(number, self._call, self._output, self._status, released)

    def cancel(self) -> None:
        """Close all descriptors; a process that was forked for it finds nobody, and ends."""
        self._near.close()

    def _send_rest(self) -> None:
        """Send what did not fit into the socket before there was somebody to read it."""
        if self._rest:
            self._call.settimeout(_SEND_S)
            self._call.sendall(self._rest)
            self._call.settimeout(None)


def _pipe(near: ExitStack, far: ExitStack) -> tuple[int, int]:
    reads, writes = os.pipe()
    near.callback(os.close, reads)
    far.callback(os.close, writes)
    return reads, writes


#: How often somebody who waits for a process is asked whether it is still needed.
_LOOK_S: Final = 0.1


class StoppedError(Exception):
    """Nobody needs the process any more."""


class Forker:
    """Requests processes from one that forks.

    Args:
        control: where it reads its requests.
        end: ends it, and with it all that it forked.
    """

    def __init__(self, control: socket.socket, end: Callable[[], None]) -> None:
        self._control = control
        self._end = end
        self._baseline = environment()
        self._lock = threading.Lock()
        self._children: set[Child] = set()
        self.is_retired = False
        self.has_answered = False

    def request(self, handlers: Sequence[str], *, load_s: float | None = None) -> ForkRequest:
        """Request a process, without waiting for it.

        Args:
            handlers: see `Assignment`.
            load_s: as above.

        Raises:
            OSError: see ForkRequest.
        """
        assignment = Assignment.of_this_process(handlers, self._baseline, load_s=load_s)
        return ForkRequest(self._control, assignment)

    def fork(self, handler: str, wait: Callable[[float], bool], until: float) -> Child:
        """Return a process for a handler.

        Args:
            handler: what it is to call.
            wait: waits so many seconds; True: the process is not needed any more.
            until: when to give up, in monotonic seconds.

        Raises:
            OSError: there is none to be had.
            TimeoutError: the one that forks does not answer.
            StoppedError: it is not needed any more.
        """
        request = self.request([handler])
        try:
            return self._awaited(request, wait, until)
        except BaseException:
            request.cancel()
            raise

    def answer(self, request: ForkRequest, seconds: float) -> Child | None:
        """Return the requested process if there is one within that time.

        Raises:
            OSError: there will be none.
        """
        child = request.answer(seconds, self._released)
        if child is not None:
            self.has_answered = True
            with self._lock:
                self._children.add(child)
        return child

    def retire(self) -> None:
        """End it as soon as no child of it is left."""
        with self._lock:
            self.is_retired = True
            for child in self._children:
                child.is_outdated = True
            is_over = not self._children
        if is_over:
            self._end()

    def end(self) -> None:
        """End it at once, and with it all that it forked."""
        self._end()

    def note_lost(self) -> None:
        """Nobody saw a process of it end."""

    def let_go(self) -> None:
        """Close the descriptors: this is a fork of the worker, and nothing here is its own."""
        self._control.close()
        for child in self._children:
            child.let_go()

    def _awaited(self, request: ForkRequest, wait: Callable[[float], bool], until: float) -> Child:
        while True:
            left = until - time.monotonic()
            if child := self.answer(request, min(_LOOK_S, left)):
                return child
            if left <= 0:
                raise TimeoutError("the fork server does not answer")
            if wait(0):
                raise StoppedError

    def _released(self, child: Child) -> None:
        with self._lock:
            self._children.discard(child)
            is_over = self.is_retired and not self._children
        ending = child.ending_seen
        if ending is not None and not ending.is_known:
            self.note_lost()
        if is_over:
            self._end()
