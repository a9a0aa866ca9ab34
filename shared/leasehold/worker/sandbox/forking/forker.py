"""What forks, as its worker sees it: the fork server, which begins and ends here, or a zygote."""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Final

from leasehold.worker.sandbox.forking.child import Child, ProcessHandle
from leasehold.worker.sandbox.forking.fork_server import REPORT, REQUEST
from leasehold.worker.sandbox.forking.source_finder import SourceText, dump
from leasehold.worker.sandbox.wire.assignment import Assignment, environment

_AT_ONCE: Final = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)

#: A process that reads nothing does not keep its worker for longer.
_SEND_TIMEOUT_S: Final = 5.0

#: It ends within a moment when its socket is closed; longer, and it is frozen.
_END_TIMEOUT_S: Final = 5.0

#: What is killed may have just started something more: it is looked for again, this often.
_KILL_ROUNDS: Final = 20
_GONE_TIMEOUT_S: Final = 1.0

#: Set for the fork server, and inherited by all below it.
MARK: Final = "LEASEHOLD_FORK_SERVER"

#: How often a caller that waits for a process is asked whether it still needs it.
_CALLER_POLL_S: Final = 0.1


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
        """Close all descriptors; a process that was forked for it finds them closed, and ends."""
        self._near.close()

    def _send_rest(self) -> None:
        """Send what did not fit into the socket before it had a reader."""
        if self._rest:
            self._call.settimeout(_SEND_TIMEOUT_S)
            self._call.sendall(self._rest)
            self._call.settimeout(None)


def _pipe(near: ExitStack, far: ExitStack) -> tuple[int, int]:
    reads, writes = os.pipe()
    near.callback(os.close, reads)
    far.callback(os.close, writes)
    return reads, writes


class StoppedError(Exception):
    """The process is not needed any more."""


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
        self.is_frozen = False

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
        """The end of one of its processes was not seen."""

    def let_go(self) -> None:
        """Close the descriptors: this is a fork of the worker, and nothing here is its own."""
        self._control.close()
        for child in self._children:
            child.let_go()

    def _awaited(self, request: ForkRequest, wait: Callable[[float], bool], until: float) -> Child:
        while True:
            left = until - time.monotonic()
            if child := self.answer(request, min(_CALLER_POLL_S, left)):
                return child
            if left <= 0:
                raise TimeoutError("the fork server does not answer")
            if wait(0):
                raise StoppedError

    def _released(self, child: Child) -> None:
        with self._lock:
            self._children.discard(child)
            self.is_frozen = self.is_frozen or child.is_unreported
            is_over = self.is_retired and not self._children
        ending = child.ending_seen
        if ending is not None and not ending.is_known:
            self.note_lost()
        if is_over:
            self._end()


_PROGRAM: Final = (
    "import sys; sys.path[:] = {path!a}; "
    "from leasehold.worker.sandbox.forking.fork_server import main; "
    "main({control}, {worker}, {entry!a}, {sources})"
)


class ForkServer(Forker):
    """The fork server: a new program, so nothing of the worker is in it, and no thread.

    Args:
        entry: the module that children run.
        sources: the project's own, as the worker read them: children import these.

    Raises:
        OSError: there is no process, or no descriptor, to be had.
    """

    def __init__(self, entry: str, sources: Mapping[str, SourceText]) -> None:
        control, far = socket.socketpair()
        super().__init__(control, self._stop)
        self._mark = secrets.token_hex(8)
        self._clean_up = threading.Lock()
        self._is_cleaned_up = False
        try:
            with tempfile.TemporaryFile() as file:
                file.write(dump(sources))
                file.flush()
                self._process = _started(far, self._mark, entry, file)
        except BaseException:
            control.close()
            raise
        finally:
            far.close()

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, by whatever; what it left behind is killed then."""
        if self._process.poll() is None:
            return False
        self._kill_left_behind()
        return True

    def note_lost(self) -> None:
        """Kill what is left of a process whose end was not seen, if this is why."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_TIMEOUT_S)
            self._kill_left_behind()

    def let_go(self) -> None:
        """Close the descriptors: this is a fork of the worker, and nothing here is its own."""
        super().let_go()
        self._process.returncode = 0  # as far as this process is concerned

    def _stop(self) -> None:
        self._control.close()
        self._process.send_signal(
            signal.SIGCONT
        )  # if another process stopped it, it would not know
        try:
            self._process.wait(
                0 if self.is_retired else _END_TIMEOUT_S
            )  # it was retired as it is frozen
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._kill_left_behind()

    def _kill_left_behind(self) -> None:
        """Kill what it forked and could not kill itself, once."""
        with self._clean_up:
            if not self._is_cleaned_up and self._process.returncode != 0:
                kill_marked(self._mark)
            self._is_cleaned_up = True


def _started(
    control: socket.socket, mark: str, entry: str, sources: IO[bytes]
) -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise FileNotFoundError("this program does not know its Python interpreter")
    path = [part for part in sys.path if isinstance(part, str)]
    program = _PROGRAM.format(
        path=path,
        control=control.fileno(),
        worker=os.getpid(),
        entry=entry,
        sources=sources.fileno(),
    )
    return subprocess.Popen(  # noqa: S603 - this interpreter, and a text of our own
        [sys.executable, "-P", "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, MARK: mark},
        pass_fds=[control.fileno(), sources.fileno()],
        start_new_session=True,
    )


def kill_marked(mark: str) -> None:
    """Kill all processes with that mark. Does nothing on a system without /proc."""
    wanted = f"{MARK}={mark}".encode()
    for _ in range(_KILL_ROUNDS):
        if not _kill_all(wanted):
            return


def _kill_all(variable: bytes) -> bool:
    """Kill all that have the variable; return whether there was one."""
    killed = []
    for pid in _pids():
        process = ProcessHandle(pid)  # before the look: so it is the same process
        if variable in _environment(pid):
            process.kill()
            killed.append(process)
        else:
            process.close()
    for process in killed:
        process.wait(_GONE_TIMEOUT_S)
        process.close()
    return bool(killed)


def _pids() -> list[int]:
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - as cheap as can be
    except OSError:
        return []
    return [int(name) for name in names if name.isdecimal() and int(name) != os.getpid()]


def _environment(pid: int) -> list[bytes]:
    """Return the variables that a process was started with; none: it ended, or is not ours."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
