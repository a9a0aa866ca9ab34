"""The program of the fork server: it imports what every child needs, and forks children.

It imports no handlers. Those are imported by a child, or by a zygote: a child that serves forks
itself once it has imported the module of a handler.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NoReturn, Protocol

from leasehold.worker.sandbox.assignment import Assignment
from leasehold.worker.sandbox.fitness import is_fit_for_forking
from leasehold.worker.sandbox.fork_loop import ForkLoop, Newborn, take_signal
from leasehold.worker.sandbox.prctl import adopt_orphans, flush_c, signal_at_parents_death
from leasehold.worker.sandbox.source_finder import install, load

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
#: is no memory: what a handler and its imports raise is caught, and told to the worker.
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
    """Print to nobody: what a module prints when it is imported was said by the first child."""
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
    """Have all that was printed be in the pipe, by libraries of C as well."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed or replaced by the handler
            stream.flush()
    flush_c()
