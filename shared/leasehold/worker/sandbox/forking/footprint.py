"""Whether a process may be used for more: forked after an import, or kept for a further attempt.

A footprint lists what a user's code may leave or change. The functions that ask the system are
taken when this is imported: a handler may put something else in their place.
"""

# ruff: noqa: PTH208 - no pathlib here

from __future__ import annotations

import _locale
import _signal  # type: ignore[import-not-found] # of CPython itself
import atexit
import gc
import logging
import os
import resource
import signal
import stat
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from os import fstat, listdir, umask
from signal import getitimer, pthread_sigmask
from typing import Any, Final

from leasehold.worker.sandbox.wire.assignment import environment, working_directory

#: What wakes the child's main thread at its soft limit. SIGALRM, SIGUSR1 and SIGUSR2 are the
#: handler's.
LIMIT_SIGNAL: Final[int] = getattr(signal, "SIGRTMAX", signal.SIGUSR2) - 1
#: That of the conversation with the worker.
_OWN_SOCKETS: Final = 1
_WAITID: Final[Callable[..., Any] | None] = getattr(os, "waitid", None)  # not on macOS
_LIMITS: Final = sorted({getattr(resource, it) for it in dir(resource) if it.startswith("RLIMIT_")})
_SIGNALS: Final = sorted(signal.valid_signals() - {LIMIT_SIGNAL})
#: One that was joined may not be gone yet.
_THREADS: Final = "threads"
_LOOKS_AT_THREADS: Final = 25
_BETWEEN_LOOKS_S: Final = 0.002
#: What `signal.getsignal` calls: to look for a name of each handler takes longer than all other
#: looks.
_GETSIGNAL: Final = _signal.getsignal
_TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class Footprint:
    """Compares a process with what it was when its first attempt began."""

    def __init__(self) -> None:
        self._before: Mapping[str, object] = {}

    def take(self) -> None:
        """Note how the process is, the first time; a module that is imported belongs to it."""
        if not self._before:
            weakref.finalize(self, int).detach()  # the first one registers an exit function
            gc.collect()
            gc.freeze()  # looking at it again after each attempt would take time
            self._before = _now()

    def is_same(self) -> bool:
        """Return whether all is as it was, as far as a short look tells."""
        return bool(self._before) and _now() == self._before

    def difference(self) -> str:
        """Return what is not as it was: a few words for each; empty: nothing."""
        gc.collect()  # what is in a cycle is closed by that
        for _ in range(_LOOKS_AT_THREADS):
            found = ", ".join(what for what, how in _now().items() if self._before[what] != how)
            if found != _THREADS:
                break
            time.sleep(_BETWEEN_LOOKS_S)
        return found


def what_runs_on() -> str:
    """Return what keeps a process from being killed at once when its attempt is over."""
    left = (("exit functions", bool(atexit._ncallbacks())), ("processes", _has_children()))  # noqa: SLF001 - there is no other way to ask
    return ", ".join(what for what, is_left in left if is_left)


def _now() -> Mapping[str, object]:
    return {what: _seen(look) for what, look in _LOOKS.items()}


def _seen(look: Callable[[], object]) -> object:
    try:
        return look()
    except Exception as error:  # noqa: BLE001 - it cannot be compared any more: it is like nothing else
        return error


def _threads() -> object:
    """Return the threads of Python, and how many there are of any kind."""
    return frozenset(threading.enumerate()), len(listdir("/proc/self/task"))


def _has_children() -> bool:
    if _WAITID is None:
        return True  # perhaps
    try:
        _WAITID(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _descriptors() -> object:
    """Return what each open descriptor is of."""
    found = {}
    for name in listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the list itself
            of = fstat(int(name))
            found[name] = (of.st_dev, of.st_ino, of.st_mode)
    return found


def _umask() -> int:
    before = umask(0o77)
    umask(before)
    return before


def _rights() -> object:
    return (
        os.getresuid(),
        os.getresgid(),
        os.getpriority(os.PRIO_PROCESS, 0),
        os.sched_getaffinity(0),
    )


def _hooks() -> object:
    """Return what Python calls or looks at in every program."""
    return (
        *(sys.excepthook, threading.excepthook, sys.unraisablehook, sys.breakpointhook),
        *(sys.gettrace(), sys.getprofile(), sys.getrecursionlimit(), gc.isenabled()),
        *(tuple(sys.path), tuple(sys.meta_path), _locale.setlocale(_locale.LC_ALL)),
    )


def _logging() -> object:
    root = logging.root
    return root.manager.disable, tuple(root.handlers), logging.getLogRecordFactory()


#: Each is as it was, or the process is used no more.
_LOOKS: Final[Mapping[str, Callable[[], object]]] = {
    _THREADS: _threads,
    "processes": _has_children,
    "open files": _descriptors,
    "exit functions": atexit._ncallbacks,  # noqa: SLF001 - as above
    "resource limits": lambda: [resource.getrlimit(limit) for limit in _LIMITS],
    "the working folder": working_directory,
    "the umask": _umask,
    "environment variables": environment,
    "signal handlers": lambda: list(map(_GETSIGNAL, _SIGNALS)),
    "blocked signals": lambda: pthread_sigmask(signal.SIG_BLOCK, ()),
    "timers": lambda: [getitimer(which) for which in _TIMERS],
    "its user or its priority": _rights,
    "standard streams": lambda: (sys.stdin, sys.stdout, sys.stderr),
    "hooks of sys": _hooks,
    "the set-up of logging": _logging,
}


def is_fit_for_forking() -> bool:
    """Return whether a fork of this process works as it does itself.

    Python's threads are not forked, and neither are those of gRPC, which are missed; those of other
    C libraries that wait for work (a matrix library's) do no harm. A connection that was opened
    would be shared by all forks.
    """
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        return False
    if "grpc._cython.cygrpc" in sys.modules and _native_threads() > 1:
        return False
    return _open_sockets() <= _OWN_SOCKETS


def _native_threads() -> int:
    """Return how many threads this process has, of any kind; 0: it is not known."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


def _open_sockets() -> int:
    """Return how many sockets this process has; 0: it is not known."""
    count = 0
    with suppress(OSError):  # no /proc
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            with suppress(OSError):  # that of the list itself
                count += stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    return count
