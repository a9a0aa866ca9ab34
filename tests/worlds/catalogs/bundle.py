"""A pipeline whose handlers run in the processes of the dev server, and tell the tests in files."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from leasehold import (
    AgentClientError,
    GateContext,
    GateEntry,
    GatePolicyFailure,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
)
from leasehold.adapters.clock import SystemClock
from leasehold.worker.sandbox.forking.forker import MARK
from tests.worlds.processes import parent_of


def worker() -> int:
    """Return the process that holds the lease: the server's, also where the handler has its own."""
    pid, mark = os.getpid(), os.environ.get(MARK)
    while mark and mark.encode() in Path(f"/proc/{pid}/environ").read_bytes():
        pid = parent_of(pid)
    return pid


def note(ctx: StepContext, given: Any) -> Any:
    """Write down the call, wait while the test holds the step, add the step to the output."""
    ctx.log.info("noted")
    folder = Path(os.environ["BUNDLE_TEST_FOLDER"])
    with (folder / "calls").open("a") as calls:
        calls.write(f"{ctx.run_id} {ctx.step_type} {ctx.attempt} {worker()}\n")
    while (folder / f"hold-{ctx.step_type}").exists() and not ctx.shutdown_requested:
        time.sleep(0.05)
    if given.get("fail") == ctx.step_type and ctx.attempt == 1:
        raise AgentClientError("not now", code="busy")
    return {**given, "done": [*given.get("done", []), ctx.step_type]}


class AskedToStopError(Exception):
    """The handler was asked to stop, and does."""


def _tell(ctx: StepContext, word: str) -> None:
    """Write down when the attempt began or ended, and for which worker."""
    folder, now = Path(os.environ["BUNDLE_TEST_FOLDER"]), SystemClock().now()
    with (folder / "told").open("a") as log:
        log.write(f"{ctx.run_id} {ctx.attempt} {word} {worker()} {now.isoformat()}\n")


def listens(ctx: StepContext, given: Any) -> Any:
    """Wait at the first attempt until it is asked to stop; the second one ends at once."""
    _tell(ctx, "began")
    if ctx.attempt == 1 and ctx.wait_or_shutdown(300):
        _tell(ctx, "ended")
        raise AskedToStopError
    return given


async def listens_later(ctx: StepContext, given: Any) -> Any:
    """Do as `listens`, in a coroutine."""
    _tell(ctx, "began")
    if ctx.attempt == 1 and await ctx.await_or_shutdown(300):
        _tell(ctx, "ended")
        raise AskedToStopError
    return given


def polls(ctx: StepContext, given: Any) -> Any:
    """Count to five; keep each number, and at the first attempt look whether to stop at 3."""
    counted = ctx.resume.partial_results if ctx.resume else []
    begun_at = len(counted)
    _tell(ctx, "began")
    while len(counted) < 5:
        counted.append(len(counted) + 1)
        while ctx.attempt == 1 and len(counted) == 3:
            if ctx.shutdown_requested:
                _tell(ctx, "ended")
                ctx.checkpoint(len(counted), counted)
                raise AskedToStopError
            time.sleep(0.05)
        ctx.checkpoint(len(counted), counted)
    return {**given, "counted": counted, "begun_at": begun_at}


def ignores(ctx: StepContext, given: Any) -> Any:
    """Wait at the first attempt until the test has it go on, and ignore every stop."""
    folder = Path(os.environ["BUNDLE_TEST_FOLDER"])
    _tell(ctx, "began")
    while ctx.attempt == 1 and not (folder / "go-on").exists():
        time.sleep(0.05)
    _tell(ctx, "ended")
    return given


def waits_for_child(ctx: StepContext, given: Any) -> Any:
    """Wait at the first attempt for a process, which ends well when the test has it go on."""
    _tell(ctx, "began")
    if ctx.attempt == 1:
        file = Path(os.environ["BUNDLE_TEST_FOLDER"]) / "child-may-end"
        words = f'while [ ! -e "{file}" ]; do sleep 0.1; done'
        subprocess.run(["sh", "-c", words], check=True)  # noqa: S607 - of the PATH
        _tell(ctx, "ended")
    return given


def joins(ctx: StepContext, given: Any) -> Any:
    """Wait at the first attempt for a thread that ignores its stop, until the test has it go on."""
    file = Path(os.environ["BUNDLE_TEST_FOLDER"]) / "go-on"
    _tell(ctx, "began")

    def wait() -> None:
        while ctx.attempt == 1 and not file.exists():
            time.sleep(0.05)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    _tell(ctx, "ended")
    return given


def pools(ctx: StepContext, given: Any) -> Any:
    """Wait at the first attempt for a process in a thread of a pool; neither ends by itself."""
    if ctx.attempt == 1:
        child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(300,))
        child.start()
        (Path(os.environ["BUNDLE_TEST_FOLDER"]) / "pids").write_text(str(child.pid))
        with ThreadPoolExecutor() as pool:
            pool.submit(time.sleep, 300).result()
    return given


def exits(ctx: StepContext, given: Any) -> Any:
    """End the whole process at the first attempt, as a crash in a library of C does."""
    _tell(ctx, "began")
    if ctx.attempt == 1:
        os._exit(given["code"])
    return given


def _listens(descriptor: Path) -> bool:
    """Return whether it is a socket of a server."""
    try:
        with socket.socket(fileno=os.dup(int(descriptor.name))) as one:
            return bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False


def looks(_ctx: StepContext, _given: Any) -> Any:
    """Return what its process has of the one that started it."""
    taken = [one.name for one in signal.Signals if callable(signal.getsignal(one))]
    dies_with_parent = ctypes.c_int()
    if not os.fork():
        ctypes.CDLL(None).prctl(2, ctypes.byref(dies_with_parent))
        os._exit(dies_with_parent.value)
    return {
        "signals": sorted(taken),
        "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "dies_with_parent": os.waitstatus_to_exitcode(os.wait()[1]),
        "listens": any(map(_listens, Path("/proc/self/fd").iterdir())),
        "server": [name for name in sys.modules if name.startswith("execute_step")],
        "loggers": [type(one).__name__ for one in logging.root.handlers],
        "forked": "waitress" in sys.modules,
    }


def refuse(_ctx: GateContext, _output: Any) -> None:
    """Have each run wait for a person."""
    raise GatePolicyFailure(check_id="closed", finding="It is closed.", remediation="Open it.")


#: Handlers that are in flight while their process is told to end.
SIGNALLED = ("listens", "listens_later", "polls", "ignores", "waits_for_child", "joins")

#: Step types whose handler is the function of that name; the others note their call.
HANDLERS = (*SIGNALLED, "exits", "pools", "looks")

#: Those that run in their worker's own process: one is to end it, one to be frozen with it.
INLINE = {"exits": "exits", "polls_inline": "polls"}


def handler_of(step_type: str) -> str:
    name = INLINE.get(step_type, step_type)
    return f"tests.worlds.catalogs.bundle:{name if name in HANDLERS else 'note'}"


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=name,
            handler=handler_of(name),
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
            isolation="inline" if name in INLINE else "process",
            gates=("closed",) if name == "gated" else (),
        )
        for name in ("one", "two", "three", "gated", "pools", "looks", *INLINE, *SIGNALLED)
    ],
)
GATES = Registry("gates", [GateEntry(name="closed", check="tests.worlds.catalogs.bundle:refuse")])
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="exits", steps=("exits",)),
        PipelineEntry(name="pools", steps=("pools",)),
        PipelineEntry(name="looks", steps=("looks",)),
        PipelineEntry(name="gated", steps=("gated",)),
        PipelineEntry(name="notes", steps=("one", "two", "three")),
        *(PipelineEntry(name=name, steps=(name, "three")) for name in (*SIGNALLED, "polls_inline")),
    ],
)
