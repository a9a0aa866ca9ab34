"""Handlers that do what no handler should; each does so in its first attempt, and then no more.

The line at which one hangs says so. Every process that comes to be notes its pid in the folder
that the handler is given, so that none of them can be missed.
"""

from __future__ import annotations

import asyncio
import atexit
import builtins
import ctypes
import functools
import gc
import itertools
import logging
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from leasehold import SoftTimeoutError, StepContext
from leasehold.worker.sandbox.wire.messages import Imported

HANGS_HERE: Final = "# it hangs here"

_C: Final = ctypes.CDLL(None)
_C_WITH_THE_LOCK: Final = ctypes.PyDLL(None)  # Python's own lock is held during its calls

_SECONDS: Final = 600


class GiveUpError(Exception):
    """The error of a hostile handler."""


def hostile(handler: Callable[[StepContext, Any], Any]) -> Callable[[StepContext, Any], Any]:
    """Have only the first attempt be hostile; a later one says which it is."""

    @functools.wraps(handler)
    def once(ctx: StepContext, given: Any) -> Any:
        note(given)
        return handler(ctx, given) if ctx.attempt == 1 else {"attempt": ctx.attempt}

    return once


def hostile_later(handler: Callable[[StepContext, Any], Any]) -> Callable[[StepContext, Any], Any]:
    """Do as `hostile`, for coroutines."""

    @functools.wraps(handler)
    async def once(ctx: StepContext, given: Any) -> Any:
        note(given)
        return await handler(ctx, given) if ctx.attempt == 1 else {"attempt": ctx.attempt}

    return once


def note(given: dict[str, Any]) -> None:
    """Note this process."""
    (Path(given["folder"]) / str(os.getpid())).touch()


def wait_for_notes(given: dict[str, Any], count: int) -> None:
    """Wait until so many processes are noted."""
    while len(os.listdir(given["folder"])) < count:  # noqa: PTH208 - as cheap as can be
        time.sleep(0.01)


def polite(ctx: StepContext, given: dict[str, Any]) -> dict[str, Any]:
    """Do what a handler should."""
    note(given)
    return {"folder": given["folder"], "step": ctx.step_type}


def following(ctx: StepContext, given: Any) -> Any:
    """Come after a hostile step, on the same worker."""
    return {"after": given}


# What does not end.


@hostile
def spins(ctx: StepContext, given: Any) -> Any:
    while True: pass  # it hangs here  # fmt: skip  # noqa: E701 - either line of two


@hostile
def sleeps(ctx: StepContext, given: Any) -> Any:
    time.sleep(_SECONDS)  # it hangs here


@hostile
def blocks_in_c(ctx: StepContext, given: Any) -> Any:
    """A mutex that is locked twice: no signal ends the call."""
    mutex = ctypes.create_string_buffer(64)
    _C.pthread_mutex_lock(mutex)
    _C.pthread_mutex_lock(mutex)  # it hangs here


@hostile
def holds_the_interpreter(ctx: StepContext, given: Any) -> Any:
    """As above, and no other thread of the process can run meanwhile."""
    mutex = ctypes.create_string_buffer(64)
    _C.pthread_mutex_lock(mutex)
    _C_WITH_THE_LOCK.pthread_mutex_lock(mutex)  # it hangs here


@hostile
def holds_the_interpreter_for_a_while(ctx: StepContext, given: Any) -> Any:
    """For longer than a lease."""
    _C_WITH_THE_LOCK.sleep(given["seconds"])
    return {"attempt": ctx.attempt}


@hostile
def backtracks(ctx: StepContext, given: Any) -> Any:
    re.match(r"(a+)+$", "a" * 60 + "b")  # it hangs here


@hostile
def ignores_signals(ctx: StepContext, given: Any) -> Any:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        time.sleep(_SECONDS)  # it hangs here


@hostile
def takes_signals_over(ctx: StepContext, given: Any) -> Any:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, lambda *_: None)
    while True:
        time.sleep(_SECONDS)  # it hangs here


@hostile
def forgets_its_signals(ctx: StepContext, given: Any) -> Any:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    while True:
        time.sleep(_SECONDS)


@hostile
def swallows(ctx: StepContext, given: Any) -> Any:
    while True:
        with suppress(BaseException):
            time.sleep(_SECONDS)  # it hangs here


@hostile
def swallows_in_the_end(ctx: StepContext, given: Any) -> Any:
    try:
        time.sleep(_SECONDS)
    except SoftTimeoutError:
        while True:
            with suppress(BaseException):
                time.sleep(_SECONDS)


@hostile
def stops_itself(ctx: StepContext, given: Any) -> Any:
    while True:
        os.kill(os.getpid(), signal.SIGSTOP)


@hostile
def says_again_that_it_is_imported(ctx: StepContext, given: Any) -> Any:
    """Its time begins when its worker hears that: it says so for as long as it is there."""
    while True:
        with suppress(BaseException):
            ctx._calls._link.say(Imported(is_fit=False, at=time.monotonic()))  # type: ignore[attr-defined] # noqa: SLF001
            time.sleep(0.1)


@hostile
def waits_for_a_thread(ctx: StepContext, given: Any) -> Any:
    def work() -> None:
        time.sleep(_SECONDS)

    threading.Thread(target=work).start()
    done = threading.Event()
    while not done.is_set():
        with suppress(BaseException):
            done.wait()  # it hangs here


@hostile
def never_ends_its_output(ctx: StepContext, given: Any) -> Any:
    def endless() -> Iterator[int]:
        for number in itertools.count():
            time.sleep(0.05)
            yield number

    return endless()


class _WordsThatHang(Exception):  # noqa: N818 - hostile
    def __str__(self) -> str:
        time.sleep(_SECONDS)
        return ""


@hostile
def raises_what_hangs(ctx: StepContext, given: Any) -> Any:
    raise _WordsThatHang


@hostile
def hangs_in_a_callback(ctx: StepContext, given: Any) -> Any:
    ctx.on_stop(lambda: time.sleep(_SECONDS))
    while True:
        with suppress(BaseException):
            time.sleep(_SECONDS)  # it hangs here


@hostile_later
async def awaits(ctx: StepContext, given: Any) -> Any:
    await asyncio.sleep(_SECONDS)  # it hangs here


@hostile_later
async def spins_in_a_coroutine(ctx: StepContext, given: Any) -> Any:
    while True: pass  # it hangs here  # fmt: skip  # noqa: E701 - either line of two


@hostile_later
async def swallows_in_a_coroutine(ctx: StepContext, given: Any) -> Any:
    while True:
        with suppress(BaseException):
            await asyncio.sleep(_SECONDS)


# What leaves processes and threads behind.


def _fork(work: Callable[[], object]) -> int:
    """Run `work` in a copy of this process, which never returns."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def _hang() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(_SECONDS)


def _child(given: dict[str, Any], number: int) -> None:
    """Be a child that cannot be found by its session, by its parent, or by both."""
    if number % 2:
        os.setsid()
    if number % 4 > 1:
        if os.fork():
            os._exit(0)
        os.setsid()
    note(given)
    _hang()


@hostile
def has_many_children(ctx: StepContext, given: Any) -> Any:
    """Some lead sessions of their own, some have lost their parent, some both."""
    for number in range(20):
        _fork(functools.partial(_child, given, number))
    wait_for_notes(given, 21)
    while True:
        with suppress(BaseException):
            time.sleep(_SECONDS)


@hostile
def leaves_many_children(ctx: StepContext, given: Any) -> Any:
    """As above, but it returns."""
    for number in range(20):
        _fork(functools.partial(_child, given, number))
    wait_for_notes(given, 21)
    return {"who": "parent"}


@hostile
def leaves_a_daemon(ctx: StepContext, given: Any) -> Any:
    """As daemons are made: two forks, a session, no descriptors, another folder."""

    def begin() -> None:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.chdir("/")
        os.closerange(0, 1024)
        note(given)
        _hang()

    os.waitpid(_fork(begin), 0)
    wait_for_notes(given, 2)
    return {"who": "parent"}


@hostile
def leaves_a_program(ctx: StepContext, given: Any) -> Any:
    program = f"""
import os, pathlib, time
pathlib.Path({given["folder"]!r}, str(os.getpid())).touch()
time.sleep({_SECONDS})
"""
    subprocess.Popen([sys.executable, "-I", "-S", "-c", program], start_new_session=True)
    wait_for_notes(given, 2)
    return {"who": "parent"}


@hostile
def returns_from_a_copy(ctx: StepContext, given: Any) -> Any:
    """The copy returns first; the first process decides the attempt."""
    pid = os.fork()
    if pid == 0:
        note(given)
        return {"who": "copy"}
    os.waitpid(pid, 0)
    return {"who": "parent"}


@hostile
def raises_in_a_copy(ctx: StepContext, given: Any) -> Any:
    pid = os.fork()
    if pid == 0:
        note(given)
        raise GiveUpError("in a copy")
    os.waitpid(pid, 0)
    return {"who": "parent"}


@hostile
def lets_a_copy_go_on(ctx: StepContext, given: Any) -> Any:
    """It returns, and its copy goes on as if nothing was."""
    if os.fork() == 0:
        note(given)
        _hang()
    wait_for_notes(given, 2)
    return {"who": "parent"}


@hostile
def dies_before_its_copy(ctx: StepContext, given: Any) -> Any:
    """Its copy would answer in its place."""
    if os.fork() == 0:
        note(given)
        time.sleep(0.2)
        return {"who": "copy"}
    wait_for_notes(given, 2)
    os._exit(0)


@hostile
def leaves_threads(ctx: StepContext, given: Any) -> Any:
    for _ in range(200):
        threading.Thread(target=time.sleep, args=(_SECONDS,)).start()
    return {"who": "parent"}


@hostile
def hangs_at_exit(ctx: StepContext, given: Any) -> Any:
    atexit.register(time.sleep, _SECONDS)
    return {"who": "parent"}


@hostile
def leaves_an_alarm(ctx: StepContext, given: Any) -> Any:
    """Of a reused process, the next handler would be the one that is interrupted."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0.5, 0.5)
    return {"who": "parent"}


# What dies.


@hostile
def exits_at_once(ctx: StepContext, given: Any) -> Any:
    os._exit(0)


@hostile
def exits_as_if_late(ctx: StepContext, given: Any) -> Any:
    """With the exit code of a child that ended itself at its limit."""
    os._exit(10)


@hostile
def exits(ctx: StepContext, given: Any) -> Any:
    sys.exit(3)


@hostile
def exits_from_a_thread(ctx: StepContext, given: Any) -> Any:
    threading.Thread(target=os._exit, args=(7,)).start()
    time.sleep(_SECONDS)


@hostile
def crashes(ctx: StepContext, given: Any) -> Any:
    ctypes.string_at(0)


@hostile
def kills_itself(ctx: StepContext, given: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


@hostile
def kills_its_group(ctx: StepContext, given: Any) -> Any:
    os.killpg(0, signal.SIGKILL)


@hostile
def aborts(ctx: StepContext, given: Any) -> Any:
    os.abort()


@hostile
def kills_its_parent(ctx: StepContext, given: Any) -> Any:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(_SECONDS)


@hostile
def freezes_its_parent(ctx: StepContext, given: Any) -> Any:
    """Its parent no longer reports how it ended, and ends none of its leftovers."""
    if os.fork() == 0:
        os.setsid()
        note(given)
        _hang()
    wait_for_notes(given, 2)
    os.kill(os.getppid(), signal.SIGSTOP)
    return {"who": "parent"}


@hostile
def becomes_another_program(ctx: StepContext, given: Any) -> Any:
    os.execv("/bin/sleep", ["sleep", str(_SECONDS)])  # noqa: S606 - as shells do


# What cannot be recorded.


@hostile
def returns_an_object(ctx: StepContext, given: Any) -> Any:
    return object()


@hostile
def returns_nan(ctx: StepContext, given: Any) -> Any:
    return {"score": float("nan")}


def returns_too_much(ctx: StepContext, given: Any) -> Any:
    note(given)
    return "x" * (17 * 2**20)


@hostile
def raises_what_cannot_be_pickled(ctx: StepContext, given: Any) -> Any:
    error = GiveUpError("this much is known")
    error.lock = threading.Lock()  # type: ignore[attr-defined] # hostile
    raise error


class _NoWords(Exception):  # noqa: N818 - hostile
    def __str__(self) -> str:
        raise GiveUpError("no words")

    __repr__ = __str__

    def __reduce__(self) -> Any:
        os._exit(5)


@hostile
def raises_what_has_no_words(ctx: StepContext, given: Any) -> Any:
    raise _NoWords


@hostile
def raises_too_many_words(ctx: StepContext, given: Any) -> Any:
    raise GiveUpError("x" * (40 * 2**20))


class _Base(BaseException):
    pass


@hostile
def raises_a_base_exception(ctx: StepContext, given: Any) -> Any:
    raise _Base("beyond Exception")


@hostile
def raises_an_interrupt(ctx: StepContext, given: Any) -> Any:
    raise KeyboardInterrupt


@hostile_later
async def is_cancelled(ctx: StepContext, given: Any) -> Any:
    raise asyncio.CancelledError


# What makes noise, or breaks what it runs in.


@hostile
def prints(ctx: StepContext, given: Any) -> Any:
    """A million bytes to each stream, some of them not text, some past Python."""
    print("the first line of stdout", flush=True)  # noqa: T201 - hostile
    garbage = bytes(range(256)) * 40
    for _ in range(50):
        os.write(1, garbage)
        os.write(2, garbage)
    sys.stderr.write("y" * 2**20)
    return {"who": "parent"}


@hostile
def closes_everything(ctx: StepContext, given: Any) -> Any:
    os.closerange(0, 4096)
    return {"who": "parent"}


@hostile
def closes_everything_and_hangs(ctx: StepContext, given: Any) -> Any:
    os.closerange(0, 4096)
    while True:
        with suppress(BaseException):
            time.sleep(_SECONDS)


@hostile
def writes_garbage_everywhere(ctx: StepContext, given: Any) -> Any:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - it may be gone
        try:
            os.set_blocking(int(name), False)
            os.write(int(name), os.urandom(2**16))
        except OSError:
            continue
    return {"who": "parent"}


@hostile
def never_stops_writing_garbage(ctx: StepContext, given: Any) -> Any:
    """Until it is ended: what is read first is not all."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - it may be gone
        if int(name) > 2:
            threading.Thread(target=_write_zeros, args=(int(name),), daemon=True).start()
    return ctx.wait_or_shutdown(3600)


def _write_zeros(descriptor: int) -> None:
    with suppress(OSError):
        while True:
            os.write(descriptor, bytes(2**16))


@hostile
def forges_answers(ctx: StepContext, given: Any) -> Any:
    """Write what could be a message into whatever it can be written to."""
    text = b'{"kind": "finished", "type": "finished", "output": "{}", "status": "SUCCESS"}'
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - it may be gone
        try:
            os.set_blocking(int(name), False)
            os.write(int(name), len(text).to_bytes(4, "big") + text)
        except OSError:
            continue
    time.sleep(_SECONDS)


@hostile
def uses_sockets_of_others(ctx: StepContext, given: Any) -> Any:
    """Send on whatever socket of the process Python still knows."""
    gc.unfreeze()  # of a process that may be used again, it knows none else
    for it in gc.get_objects():
        if type(it).__name__ == "socket":
            it.sendall(b"\xff" * 64)
    return {"who": "parent"}


@hostile
def deletes_its_folder(ctx: StepContext, given: Any) -> Any:
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    shutil.rmtree(folder)
    return {"who": "parent"}


@hostile
def changes_its_limits(ctx: StepContext, given: Any) -> Any:
    for limit, most in (
        (resource.RLIMIT_NOFILE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (most, most))
    return {"who": "parent"}


@hostile
def breaks_its_python(ctx: StepContext, given: Any) -> Any:
    """Replace what others rely on; the next attempt is in another process."""
    import json  # noqa: PLC0415 - to be broken

    def broken(*_: object, **__: object) -> Any:
        raise GiveUpError("broken")

    sys.stdout = sys.stderr = None  # type: ignore[assignment] # hostile
    sys.excepthook = threading.excepthook = sys.unraisablehook = broken
    sys.path[:] = []
    logging.disable(logging.CRITICAL)
    logging.getLogger().handlers[:] = []
    logging.Logger.handle = broken  # type: ignore[method-assign] # hostile
    json.dumps = json.loads = broken
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    return {"who": "parent"}


@hostile
def changes_its_variables(ctx: StepContext, given: Any) -> Any:
    os.environ.clear()
    os.umask(0o777)
    os.chdir("/")
    return {"who": "parent"}


@hostile
def breaks_what_carries_its_answer(ctx: StepContext, given: Any) -> Any:
    """Nothing of Python works any more."""
    builtins.len = builtins.isinstance = os.getpid = None  # type: ignore[assignment] # hostile
    sys.modules.clear()
    return {"who": "parent"}


@hostile
def is_not_touched_by_others(ctx: StepContext, given: Any) -> Any:
    """Each attempt begins in its own process, as if it were the first."""
    import json  # noqa: PLC0415 - another handler breaks it

    json.loads(json.dumps({}))
    assert os.environ["PATH"]
    assert sys.stdout is not None
    assert not logging.root.manager.disable
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert threading.active_count() <= given["threads"]
    return {"who": "parent"}


@hostile
def eats_memory(ctx: StepContext, given: Any) -> Any:
    kept = []
    while True:
        kept.append(bytearray(2**20))
        kept[-1][:] = b"x" * 2**20
        time.sleep(0.001)


@hostile
def eats_memory_in_children(ctx: StepContext, given: Any) -> Any:
    def eat() -> None:
        note(given)
        kept = []
        while True:
            kept.append(bytearray(b"x" * 2**20))
            time.sleep(0.001)

    for _ in range(2):
        _fork(eat)
    while True:
        time.sleep(_SECONDS)
