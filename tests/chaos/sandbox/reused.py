"""Handlers whose process is used again, and what they may leave in it."""

from __future__ import annotations

import atexit
import ctypes
import gc
import logging
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from leasehold import SoftTimeoutError, StepContext
from leasehold.worker.sandbox.forking import footprint
from leasehold.worker.sandbox.wire.frames import encoded
from leasehold.worker.sandbox.wire.messages import LogLine

_kept: list[Any] = []


def _leave_a_process() -> None:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def _leave_an_orphan() -> None:
    subprocess.run(["/bin/sh", "-c", "setsid sleep 600 &"], check=True)


def _hide_a_process() -> None:
    def none(*_: object) -> None:
        raise ChildProcessError

    _leave_a_process()
    footprint._WAITID = none  # noqa: SLF001 - the process then says that nothing is left in it


def _change_a_limit() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 1000))
    _kept.append(most)


def _ignore(_signal: int, _frame: Any) -> None: ...


LEAVES: Final[dict[str, Callable[[], object]]] = {
    "threads": lambda: threading.Thread(target=time.sleep, args=(600,), daemon=True).start(),
    "processes": _leave_a_process,
    "processes (an orphan)": _leave_an_orphan,
    "processes (that are hidden)": _hide_a_process,
    "open files": lambda: _kept.append(os.dup(0)),
    "exit functions": lambda: atexit.register(int),
    "resource limits": _change_a_limit,
    "the working folder": lambda: os.chdir("/"),
    "the umask": lambda: os.umask(0o777),
    "environment variables": lambda: os.environ.update(LEFT="1"),
    "signal handlers": lambda: signal.signal(signal.SIGALRM, _ignore),
    "blocked signals": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1}),
    "timers": lambda: signal.setitimer(signal.ITIMER_REAL, 500),
    "its user or its priority": lambda: os.nice(1),
    "standard streams": lambda: setattr(sys, "stdout", sys.stderr),
    "hooks of sys": lambda: setattr(sys, "excepthook", print),
    "the set-up of logging": lambda: logging.disable(logging.CRITICAL),
    "memory": lambda: _kept.append(b"x" * (80 * 2**20)),
}


def leaves(ctx: StepContext, given: str) -> int:
    """Leave something in the process, and return which it is."""
    if given:
        LEAVES[given]()
    return os.getpid()


def uses_much(ctx: StepContext, given: Any) -> int:
    """Do much that leaves nothing, and return which process it is."""
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/a", "w") as file:  # noqa: PTH123
        subprocess.run(["/bin/echo", "said"], stdout=file, check=True)
    thread = threading.Thread(target=ctx.progress, args=(0.5, "half"))
    thread.start()
    thread.join()
    ctx.on_stop(int)
    return os.getpid()


def counts(ctx: StepContext, given: Any) -> list[int]:
    """Return how many attempts the module has seen, and in which process."""
    _kept.append(1)
    return [len(_kept), os.getpid()]


def ends_as_told(ctx: StepContext, given: str) -> int:
    """Return, raise, or come to a limit."""
    if given == "raise":
        raise ValueError("as told")
    if given == "exit":
        os._exit(3)
    if given == "stop":
        ctx.progress(0.5, "begun")
        ctx.wait_or_shutdown(600)
    if given == "soft":
        try:
            time.sleep(600)
        except SoftTimeoutError:
            return os.getpid()
    while given == "hard":
        try:
            time.sleep(600)
        except BaseException:  # noqa: BLE001, S112 - it hears nobody
            continue
    return os.getpid()


def says(ctx: StepContext, given: str) -> int:
    """Print and log what is given."""
    sys.stdout.write(f"printed {given}\n")
    sys.stdout.flush()
    ctypes.CDLL(None).printf(b"of C %s\n", given.encode())
    sys.stdout.write(f"without an end {given}")
    ctx.log.warning("logged %s", given)
    logging.getLogger("shop").warning("logged elsewhere %s", given)
    return os.getpid()


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


class _SaysMuchAtItsEnd:
    """Waits in a cycle with an open file, so that it ends when the attempt is over."""

    def __init__(self) -> None:
        self._itself, self._file = self, os.dup(0)
        line = LogLine(logger="shop", level=30, message="much", created=0.0)
        self._lines = encoded(line) * 4000
        (self._call,) = (it for it in range(3, 60) if _is_socket(it))

    def __del__(self) -> None:
        with socket.socket(fileno=os.dup(self._call)) as call:
            call.sendall(self._lines)  # the worker still reads them when it is all said
        os.write(1, b"the very last\n")
        os.close(self._file)


def says_much_at_its_end(ctx: StepContext, given: Any) -> int:
    """Log more than the worker reads at once, and print, when the attempt has said its last."""
    _SaysMuchAtItsEnd()
    return os.getpid()


def keeps(ctx: StepContext, given: str) -> list[Any]:
    """Keep a checkpoint, and make a call once; return what there was, and the process."""
    resumed = None if ctx.resume is None else ctx.resume.partial_results
    made = ctx.once(f"call {given}", str.upper, given)
    ctx.checkpoint(len(given), given)
    ctx.artifacts.put(f"{given}.txt", given.encode())
    return [resumed, made, ctx.output_of("before"), os.getpid()]


def meets_others(ctx: StepContext, given: Any) -> int:
    """Wait until so many attempts are here, each with its own file."""
    folder, count = given
    os.close(os.open(f"{folder}/{os.getpid()}", os.O_CREAT))
    while len(os.listdir(folder)) < count:  # noqa: PTH208 - as cheap as can be
        time.sleep(0.01)
    return os.getpid()


def finds(ctx: StepContext, given: dict[str, Any]) -> list[Any]:
    """Return whether the values of the attempt with this mark can still be reached."""
    mark = given["mark"][::-1]
    if given["first"]:
        return [os.getpid()]
    found = [type(of).__name__ for of, text in _texts() if mark in text and text != mark]
    return [os.getpid(), found]


def _texts() -> Iterator[tuple[Any, str]]:
    for one in gc.get_objects(0) + gc.get_objects(1) + gc.get_objects(2):
        for inner in gc.get_referents(one):
            if type(inner) is str:
                yield one, inner
            elif type(inner) is bytes:
                yield one, inner.decode("latin-1")
    for frame in sys._current_frames().values():  # noqa: SLF001 - there is no other way
        caller: Any = frame
        while caller is not None:
            for value in caller.f_locals.values():
                yield caller, str(value) if isinstance(value, str | bytes | tuple) else ""
            caller = caller.f_back
