"""Handlers that say nothing for long, or not much, and a worker that is frozen meanwhile."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from leasehold import SoftTimeoutError, StepContext
from leasehold.worker.sandbox.sandbox import Sandbox
from tests.worlds.attempts import Attempts

#: What those may say nothing for that go on; they say something much more often, and for longer.
LIMIT_S = 4.0
_EVERY_S = 0.2
_TALKS_S = 9.0


def sleeps(ctx: StepContext, given: Any) -> None:
    time.sleep(600)  # the line it hangs on


def is_deaf(ctx: StepContext, given: Any) -> None:
    while True:
        with suppress(BaseException):
            time.sleep(600)


def holds_the_interpreter(ctx: StepContext, given: Any) -> None:
    """A mutex that is locked twice, in a call of C during which no other thread can run."""
    mutex, c = ctypes.create_string_buffer(64), ctypes.PyDLL(None)
    c.pthread_mutex_lock(mutex)
    c.pthread_mutex_lock(mutex)  # it is in C here


def cleans_up(ctx: StepContext, given: Any) -> str:
    try:
        time.sleep(600)
    except SoftTimeoutError:
        left = ctx.time_left().total_seconds()
        return f"asked to stop: {ctx.shutdown_requested}, {0 < left <= 5}"
    return "never"


def prints(ctx: StepContext, given: Any) -> str:
    return _talk(lambda: print("."))  # noqa: T201 - what it is about


def has_a_child_that_prints(ctx: StepContext, given: Any) -> str:
    program = f"import time\nfor _ in range(45): print('.', flush=True); time.sleep({_EVERY_S})"
    subprocess.run([sys.executable, "-c", program], check=True)
    return "done"


def logs(ctx: StepContext, given: Any) -> str:
    return _talk(lambda: ctx.log.warning("still here"))


def progresses(ctx: StepContext, given: Any) -> str:
    return _talk(lambda: ctx.progress(0.5))


def calls(ctx: StepContext, given: Any) -> str:
    return _talk(lambda: ctx.artifacts.exists("nothing"))


def waits_for_its_worker(ctx: StepContext, given: Any) -> str:
    ctx.checkpoint(1, ["kept"])
    return "done"


def sleeps_for_some_time(ctx: StepContext, given: Any) -> str:
    Path(given).touch()
    time.sleep(LIMIT_S * 1.5)
    return "done"


def _talk(say: Callable[[], object]) -> str:
    over_at = time.monotonic() + _TALKS_S
    while time.monotonic() < over_at:
        say()
        time.sleep(_EVERY_S)
    return "done"


def run_attempt(pipe: Connection, folder: Path) -> None:
    """Be a worker of `sleeps_for_some_time`; it touches a file of the folder when it is there."""
    with closing(Sandbox()) as sandbox:
        attempts = Attempts(sandbox, folder / "artifacts")
        held = attempts.held(silence=LIMIT_S)
        given = str(folder / "there")
        pipe.send(attempts.run(f"{__name__}:sleeps_for_some_time", given, held))
