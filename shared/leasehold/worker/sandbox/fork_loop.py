"""The loop of a process that forks others: it forks, reaps, reports, and leaves nobody behind.

It runs in a process of one thread that does nothing else. A request is one byte with three
descriptors: where to report to, the child's end of the conversation, and where its prints go.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
from contextlib import suppress
from errno import EMFILE
from typing import Final, NamedTuple, NoReturn

from leasehold.worker.sandbox.descendants import own_children

#: What is reported: first the pid, or a negative errno instead of it; then, when the process has
#: ended, its exit code, or the negative number of the signal that killed it.
REPORT: Final = struct.Struct("!i")

REQUEST: Final = b"f"
_DESCRIPTORS: Final = 3

_CLOSE_ON_EXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Newborn(NamedTuple):
    """What a forked process has: its descriptors, and the pid of the one that forked it."""

    call: int
    output: int
    parent: int


class ForkLoop:
    """Forks at each request.

    Args:
        control: where requests come from. Its end is the end of this process and of all below it.
        worker: the pid of the worker, if it is the parent of this process: its end is one too,
            even where a fork of the worker keeps the control socket open.
    """

    def __init__(self, control: socket.socket, worker: int | None = None) -> None:
        self._control = control
        self._worker = worker
        self._pid = os.getpid()
        self._reports: dict[int, int] = {}
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, take_signal)

    def serve(self) -> Newborn:
        """Fork at each request; return in each process that is forked, and only there."""
        self._kill_leftovers()  # what the import of a handler's module started
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        while self._worker is None or self._worker == os.getppid():
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._woken in ready:
                with suppress(BlockingIOError):
                    os.read(self._woken, 4096)
                self._reap()
            if self._control.fileno() in ready:
                request = self._receive()
                if request is None:
                    break
                if len(request) == _DESCRIPTORS and (newborn := self._fork(*request)):
                    return newborn
        return self._end()

    def _receive(self) -> list[int] | None:
        """Return the three descriptors of a request, fewer if there was no room; None: the end."""
        try:
            byte, descriptors, _, _ = socket.recv_fds(
                self._control, 1, _DESCRIPTORS, _CLOSE_ON_EXEC
            )
        except OSError:
            return None
        if not byte:
            return None
        if len(descriptors) < _DESCRIPTORS:
            if descriptors:
                _report(descriptors[0], -EMFILE)
            _close(*descriptors)
            return []
        return descriptors

    def _fork(self, report: int, call: int, output: int) -> Newborn | None:
        try:
            pid = os.fork()
        except OSError as error:
            _report(report, -(error.errno or EMFILE))
            _close(report, call, output)
            return None
        if pid == 0:
            _close(report)
            self._release()
            return Newborn(call, output, self._pid)
        self._reports[pid] = report
        _close(call, output)  # first: who knows the pid may wait for the end of the conversation
        _report(report, pid)
        return None

    def _release(self) -> None:
        """Let go of what a forked process inherited; that it takes SIGCHLD does it no harm."""
        signal.set_wakeup_fd(-1)
        self._control.close()
        _close(self._woken, self._waker, *self._reports.values())

    def _reap(self) -> None:
        """Report who ended, and kill whom they left behind.

        They are killed before the process is reaped: until then nobody else can get its pid. Who
        dies of that wakes this process again, and then it has all that were below them.
        """
        is_adopted = False
        while ended := _next_ended():
            pid, code = ended
            report = self._reports.pop(pid, None)
            if report is None:
                is_adopted = True
            else:
                _kill_group(pid)
                self._kill_leftovers()
                _report(report, code)
                _close(report)
            _reap_one(pid)
        if is_adopted:
            self._kill_leftovers()

    def _kill_leftovers(self) -> None:
        """Kill every child that nobody asked for: it was adopted, so who started it has ended."""
        for child in own_children(self._pid):
            if child not in self._reports:
                _kill(child)

    def _end(self) -> NoReturn:
        """Kill all below this process, and end."""
        for child in self._reports:
            _kill_group(child)
            _kill(child)
        with suppress(ChildProcessError):  # there is none left
            while True:
                for child in own_children(self._pid):
                    _kill(child)
                os.waitpid(-1, 0)
        os._exit(0)


def _next_ended() -> tuple[int, int] | None:
    """Return a child that has ended, with its code as reported; not reaped yet, if possible."""
    if not hasattr(os, "waitid"):  # macOS
        return _next_reaped()
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if found is None:
        return None
    was_killed = found.si_code != os.CLD_EXITED
    return found.si_pid, -found.si_status if was_killed else found.si_status


def _next_reaped() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


def _reap_one(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _report(descriptor: int, number: int) -> None:
    with suppress(OSError):  # nobody reads it any more
        os.write(descriptor, REPORT.pack(number))


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def take_signal(_signal: int, _frame: object) -> None:
    """Do nothing: a signal that is taken wakes the loop, and ends no process."""
