"""Processes of tests: their starts, and their parents and states, as the kernel has them."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from bench.bare_children import unnamed_program

#: A program that takes no CPU for so long does not go on; one that takes so much never ends.
_STILL_S: Final = 120.0
_CPU_S: Final = 120.0
_LOOK_S: Final = 0.02
_TICKS_A_S: Final = os.sysconf("SC_CLK_TCK")


def spawned(call: Callable[..., object], *given: object) -> BaseProcess:
    """Start a process that shares nothing with this one, and in which this is called."""
    process = multiprocessing.get_context("spawn").Process(target=call, args=given)
    with unnamed_program():
        process.start()
    return process


def run_to_end(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program for as long as it goes on: on a loaded machine, imports alone take minutes.

    Its progress is the CPU that it takes, and not the time of a clock: a program that takes no CPU
    for two minutes hangs, and one that takes two minutes of CPU does not end.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        ) as process:
            cpu_s, still_since = 0.0, time.monotonic()
            while process.poll() is None:
                now, before = time.monotonic(), cpu_s
                cpu_s = _cpu_of(process.pid)
                if cpu_s > before:
                    still_since = now
                if now - still_since > _STILL_S or cpu_s > _CPU_S:
                    process.kill()
                    raise AssertionError(f"{command} took {cpu_s} s of CPU, and has not ended")
                time.sleep(_LOOK_S)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, out.read(), err.read())


def _cpu_of(pid: int) -> float:
    """Return the seconds of CPU that a process and those children that have ended took."""
    try:
        return sum(map(int, _facts_of(pid)[11:15])) / _TICKS_A_S
    except OSError:  # it ended this moment
        return 0.0


def parent_of(pid: int) -> int:
    """Return the process that started another one, or that adopted it."""
    return int(_facts_of(pid)[1])


def is_running(pid: int) -> bool:
    """Return whether a process runs: one that has ended may wait to be reaped."""
    try:
        return _facts_of(pid)[0] not in "ZX"
    except OSError:
        return False


def is_stopped(pid: int) -> bool:
    """Return whether each thread of a process has stopped, as SIGSTOP has it."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(stat.read_text().rpartition(") ")[2][0] in "TXZ" for stat in threads)


def _facts_of(pid: int) -> list[str]:
    """Return what stands behind the name of a process, which may be anything."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    return stat.rpartition(")")[2].split()
