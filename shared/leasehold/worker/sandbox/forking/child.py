"""A process of an attempt, as its worker sees it."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from leasehold.frozen import dataclass
from leasehold.worker.sandbox.forking.fork_server import REPORT
from leasehold.worker.sandbox.forking.memory import memory_of

# A process of this machine that is killed by no mistake: its pid may be given to another one.


#: Linux 6.9: all processes of the group that the process leads.
_GROUP: Final = 1 << 2


class ProcessHandle:
    """Kills one process and its group.

    Args:
        pid: the process; it has not been reaped yet.
        is_reaped: whether it may have been since, where the system cannot say so itself.
    """

    def __init__(self, pid: int, is_reaped: Callable[[], bool] = lambda: False) -> None:
        self.pid = pid
        self._is_reaped = is_reaped
        self._descriptor = _opened(pid)
        self._lock = threading.Lock()
        self._is_closed = False

    def kill(self) -> None:
        """Kill the process and its group; nothing, if it is gone."""
        with self._lock:
            if self._is_closed:
                return
            self._send(signal.SIGKILL)
            with suppress(ProcessLookupError, PermissionError):
                self._kill_group()

    def signal(self, number: int) -> None:
        """Send a signal to the process alone; nothing, if it is gone."""
        with self._lock:
            if not self._is_closed:
                self._send(number)

    def wait(self, seconds: float) -> bool:
        """Return whether the process ends within that time; True where the system cannot say."""
        if self._descriptor < 0:
            return True
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def close(self) -> None:
        """Release the process."""
        with self._lock:
            if self._descriptor >= 0 and not self._is_closed:
                os.close(self._descriptor)
            self._is_closed = True

    def _send(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if self._descriptor >= 0:
                signal.pidfd_send_signal(self._descriptor, number)
            elif not self._is_reaped():
                os.kill(self.pid, number)

    def _kill_group(self) -> None:
        if self._descriptor >= 0:
            try:
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL, None, _GROUP)
            except ProcessLookupError:
                raise
            except OSError:  # an older kernel
                pass
            else:
                return
        if not self._is_reaped():
            os.killpg(self.pid, signal.SIGKILL)


def _opened(pid: int) -> int:
    """Return a descriptor of the process, or -1."""
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):  # gone, too many descriptors, or another system
        return -1


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended; neither is known where its fork server ended before it could say so.

    Args:
        exit_code: what it exited with.
        signal: what killed it.
    """

    exit_code: int | None = None
    signal: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether its end was seen."""
        return self.exit_code is not None or self.signal is not None

    @classmethod
    def of_report(cls, number: int) -> Ending:
        """Return what a fork server reported: an exit code, or the negative of a signal."""
        return cls(signal=-number) if number < 0 else cls(exit_code=number)


class Child:
    """A process that was forked for this worker.

    Args:
        pid: its pid.
        call: the conversation with it.
        output: what it and its descendants print; ends when the last of them has closed it.
        status: becomes readable when the process has ended, whatever its descendants do, or when
            its fork server has. If that is frozen, it does not: after `kill`, wait for it no
            longer than a few seconds.
        released: called once when all descriptors are closed.

    Attributes:
        attempts: how many it has served.
        is_outdated: whether who forked it forks no more, so that no further attempt is for it.
    """

    def __init__(
        self,
        pid: int,
        call: socket.socket,
        output: int,
        status: int,
        released: Callable[[Child], None],
    ) -> None:
        self.pid = pid
        self.call = call
        self.output = output
        self.status = status
        self._released = released
        self._stacks = -1
        self._alarm: tuple[socket.socket, socket.socket] | None = None
        self.attempts = 0
        self.is_outdated = False
        self.ending_seen: Ending | None = None
        self.is_unreported = False  # killed, and what forked it does not say so: that is frozen
        self._is_closed = False
        # it is reaped after it was reported: what is not reported now is still this process
        self._process = ProcessHandle(pid, self._is_reported)
        self._is_gone = self._is_reported()

    @property
    def stacks(self) -> int:
        """Where its stacks are read; the pipe is made, and its other end sent, at first use."""
        if self._stacks < 0:
            self._stacks, far = os.pipe()
            try:
                os.set_blocking(self._stacks, False)
                os.set_blocking(far, False)
                with suppress(ConnectionError):  # it has ended already; how, it is asked later
                    socket.send_fds(self.call, [b"s"], [far])
            finally:
                os.close(far)
        return self._stacks

    @property
    def alarm(self) -> tuple[socket.socket, socket.socket]:
        """What any thread writes to and its worker's thread reads, to wake it; made at first use.

        One for all its attempts: who wakes the next one only has it look once more.
        """
        if self._alarm is None:
            self._alarm = socket.socketpair()
            for end in self._alarm:
                end.setblocking(False)
        return self._alarm

    @property
    def is_quiet(self) -> bool:
        """Whether it lives and says nothing, as one that waits."""
        if self._is_closed:
            return False
        poll = select.poll()
        for descriptor in (self.status, self.call.fileno(), self.output):
            poll.register(descriptor, select.POLLIN)
        return not poll.poll(0)

    def kill(self) -> None:
        """Kill it and its group at once; more than once does no harm.

        It takes no fork server, which kills what else is left of it.
        """
        if not self._is_closed and not self._is_gone:
            self._process.kill()

    def signal(self, number: int) -> None:
        """Send it a signal; nothing, if it is gone."""
        if not self._is_closed and not self._is_reported():
            self._process.signal(number)

    def ending(self) -> Ending | None:
        """Return how it ended; None: it has not, as far as the fork server said.

        A process whose fork server is gone is killed: nothing else ends it.
        """
        if self.ending_seen is None and not self._is_closed and self._is_reported():
            report = os.read(self.status, REPORT.size)
            if not report:
                self.kill()
            self.ending_seen = Ending.of_report(*REPORT.unpack(report)) if report else Ending()
        return self.ending_seen

    def memory(self) -> int:
        """Return the bytes of memory that it and its descendants take now; 0: not known."""
        return 0 if self.ending() else memory_of(self.pid)

    def close(self) -> None:
        """Kill it if it still runs, and close all descriptors."""
        if self._is_closed:
            return
        if self.ending_seen is None:
            self.kill()
        self.let_go()
        self._released(self)

    def let_go(self) -> None:
        """Close the descriptors: this is a fork of the worker, and the process is not its own."""
        if self._is_closed:
            return
        self._is_closed = True
        self._process.close()
        self.call.close()
        os.close(self.output)
        os.close(self.status)
        if self._stacks >= 0:
            os.close(self._stacks)
        for end in self._alarm or ():
            end.close()

    def _is_reported(self) -> bool:
        if self.ending_seen is not None:
            return True
        poll = select.poll()
        poll.register(self.status, select.POLLIN)
        return bool(poll.poll(0))
