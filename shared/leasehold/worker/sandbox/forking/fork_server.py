"""The program of the fork server: it imports what every child needs, and forks children.

It imports no handlers. Those are imported by a child, or by a zygote: a child that serves forks
itself once it has imported the module of a handler.

The loop of both forks, reaps, reports, and leaves no process behind. It runs in a process of one
thread that does nothing else. A request is one byte with three descriptors: where to report to, the
child's end of the conversation, and where its prints go.
"""

from __future__ import annotations

import functools
import gc
import importlib
import io
import os
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from errno import EMFILE
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from leasehold.worker.sandbox.forking.footprint import is_fit_for_forking
from leasehold.worker.sandbox.forking.memory import own_children
from leasehold.worker.sandbox.forking.source_finder import install, load
from leasehold.worker.sandbox.wire.assignment import Assignment

#: The process of an attempt takes these, and does nothing: its worker says when it is to stop.
SIGNALS_OF_THE_WORKER: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def let_signals_end_forks() -> None:
    """Have each fork of this process end by these signals, unless the handler took them itself.

    `Process.terminate` and the pools of `multiprocessing` send SIGTERM, and wait for the end. The
    signals are blocked meanwhile: one that came to the fork before that would be lost.
    """
    masks = threading.local()

    def block() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS_OF_THE_WORKER)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def unblock_in_fork() -> None:
        for number in (*SIGNALS_OF_THE_WORKER, signal.SIGCHLD):
            if signal.getsignal(number) is take_signal:
                signal.signal(number, signal.SIG_DFL)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=unblock_in_fork)


#: Whom the kernel kills first when no memory is left: as if it took half of it in addition.
_OOM_SCORE: Final = b"500"


def set_up(newborn: Newborn) -> None:
    """Make this process one of its own, which prints into its pipe and ends with its parent."""
    signal_at_parents_death(signal.SIGKILL)
    if os.getppid() != newborn.parent:
        os._exit(1)  # its parent ended before the signal was ordered
    os.setsid()
    adopt_orphans()
    os.dup2(newborn.output, 1)
    os.dup2(newborn.output, 2)
    os.close(newborn.output)
    if isinstance(sys.stdout, io.TextIOWrapper):  # its worker hears each line as it is printed
        sys.stdout.reconfigure(line_buffering=True)
    _be_killed_before_the_worker()
    gc.enable()


def _be_killed_before_the_worker() -> None:
    with suppress(OSError):  # no /proc
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, _OOM_SCORE)
        finally:
            os.close(descriptor)


class Entry(Protocol):
    """The module that children run; importing it loads what they need."""

    def run(self, call: socket.socket, handler: str) -> None:
        """Run a handler, `module:function`; `call` is the conversation with the worker."""

    def load(self, handlers: Sequence[str]) -> None:
        """Load handlers of one module for all who are forked from here; raise if that fails."""


#: What a process exits with that ends by an error of the engine's own code, mostly because there
#: is no memory: what a handler and its imports raise is caught, and sent to the worker.
ENGINE_ERROR: Final = 114

#: A zygote says so when it has loaded its handlers.
READY: Final = b"r"


def main(control: int, worker: int, entry: str, sources: int) -> NoReturn:
    """Serve forks for a worker; in each forked process, do what it is for.

    Args:
        control: the descriptor of the socket that requests come from.
        worker: the pid of the worker.
        entry: the module that children run.
        sources: the descriptor of a file with the sources of the project.
    """
    _ignore_signals()
    adopt_orphans()
    signal_at_parents_death(signal.SIGHUP)
    with os.fdopen(sources, "rb") as file:
        file.seek(0)
        install(load(file.read()))
    program: Entry = importlib.import_module(entry)
    _freeze()
    newborn = ForkLoop(socket.socket(fileno=control), worker).serve()
    while True:
        call, assignment = _assigned(newborn)
        if not assignment.is_zygote:
            _run(program, call, *assignment.handlers)
        _be_silent()
        _load(program, assignment)
        call.sendall(READY)
        newborn = ForkLoop(call).serve()


def _assigned(newborn: Newborn) -> tuple[socket.socket, Assignment]:
    """Set a forked process up; return the conversation with the worker, and what it is for."""
    try:
        set_up(newborn)
        call = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, newborn.call)
        assignment = Assignment.receive(call)
        if assignment is None:
            os._exit(0)
        assignment.apply()
    except BaseException:  # noqa: BLE001 - as in `_run`
        _end_by_error()
    return call, assignment


def _ignore_signals() -> None:
    """Take the signals that are for the worker: it says itself when a handler is to stop.

    They are taken and not ignored: what is ignored stays so in programs that a handler starts.
    """
    for number in SIGNALS_OF_THE_WORKER:
        signal.signal(number, take_signal)


def _freeze() -> None:
    """Have the garbage collector leave alone what is there: looking at it would copy its pages."""
    gc.disable()
    gc.collect()
    gc.freeze()


def _be_silent() -> None:
    """Print nothing: the first child has printed what the import of a module prints."""
    os.dup2(0, 1)
    os.dup2(0, 2)


def _load(program: Entry, assignment: Assignment) -> None:
    """Load handlers to fork from; this process ends if that fails, hangs or starts threads."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, assignment.load_s)
    program.load(assignment.handlers)
    signal.setitimer(signal.ITIMER_REAL, 0)
    if not is_fit_for_forking():
        os._exit(1)
    _freeze()


def _run(program: Entry, call: socket.socket, handler: str) -> NoReturn:
    """Run a handler and end: nothing of the fork server's own ending is to happen here."""
    let_signals_end_forks()
    code = 1
    try:
        program.run(call, handler)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 - it is said how it ends
        _end_by_error()
    finally:
        flush_prints()
        os._exit(code)


def _end_by_error() -> NoReturn:
    """End by the error that is being handled: print it, as the interpreter would, if there is room.

    Only that is not an end of the handler's.
    """
    try:
        sys.excepthook(*sys.exc_info())
        flush_prints()
    finally:
        os._exit(ENGINE_ERROR)


def flush_prints() -> None:
    """Have all that was printed be in the pipe, by libraries of C as well.

    Theirs comes first: they print whole lines, and Python may have kept one without an end, which
    what they printed before would go on.
    """
    flush_c()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed or replaced by the handler
            stream.flush()


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
        """Release the inherited resources of a fork; its handler of SIGCHLD is harmless."""
        signal.set_wakeup_fd(-1)
        self._control.close()
        _close(self._woken, self._waker, *self._reports.values())

    def _reap(self) -> None:
        """Report who ended, and kill whom they left behind.

        They are killed before the process is reaped: until then no other process can get its pid.
        Their ends wake this process again, and then it has all that were below them.
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
        """Kill every adopted child: the process that started it has ended."""
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
    with suppress(OSError):  # it is not read any more
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


#: What Linux does for a process that asks for it; other systems do none of it.
_SET_PDEATHSIG: Final = 1
_SET_CHILD_SUBREAPER: Final = 36


def signal_at_parents_death(number: int) -> bool:
    """Have this signal sent when the thread that forked this process ends; False: not here."""
    return _set(_SET_PDEATHSIG, number)


def adopt_orphans() -> bool:
    """Have every orphan below this process become its child; False: not here."""
    return _set(_SET_CHILD_SUBREAPER, 1)


def flush_c() -> None:
    """Have the C library write its buffered output; nothing: not here."""
    if (library := _library()) is not None:
        library.fflush(None)


def _set(option: int, value: int) -> bool:
    prctl = _prctl()
    return prctl is not None and prctl(option, value, 0, 0, 0) == 0


@functools.cache
def _prctl() -> Any:
    """Return the function of the C library, or None."""
    import ctypes  # noqa: PLC0415 - the worker, which imports this package too, never needs it

    function = getattr(_library(), "prctl", None)
    if function is None:
        return None
    function.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return function


@functools.cache
def _library() -> Any:
    """Return the C library, or None."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - as above

    try:
        return ctypes.CDLL(None)
    except OSError:
        return None
