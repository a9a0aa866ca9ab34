"""What a dead worker leaves behind: processes of its server's session that the server lost.

A server leads a session of its own, and whatever is started below it stays in that session,
unless it asks for another one. When a worker dies, the kernel gives its children to a process
outside: then they are still of the session, and do not descend from the server any more.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

#: What is killed may have just started something more: it is looked for again, so many times.
_LOOKS: Final = 20
_BETWEEN_S: Final = 0.005


class Process(NamedTuple):
    """A process that runs.

    Args:
        started: ticks since boot: a pid alone may be given to another process later.
    """

    pid: int
    parent: int
    session: int
    started: str


def kill_left_behind(server: int) -> int:
    """Kill what is of the server's session but not below it; return how many that were.

    All of the session where the server itself is gone; nothing on a system without /proc.

    Args:
        server: the pid of the master, which leads the session.
    """
    killed: set[tuple[int, str]] = set()
    for _ in range(_LOOKS):
        found = left_behind(processes(), server)
        if not found:
            break
        # /proc is no snapshot: only what is seen so twice is killed, right after the second look
        for process in found & left_behind(processes(), server):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)
                killed.add((process.pid, process.started))
        time.sleep(_BETWEEN_S)
    return len(killed)


def left_behind(running: Mapping[int, Process], server: int) -> set[Process]:
    """Return the processes of the server's session that do not descend from it."""
    return {
        process
        for process in running.values()
        if process.session == server and not _descends(running, process, server)
    }


def processes() -> dict[int, Process]:
    """Return what runs on this machine, by pid; a zombie does not, and has no children."""
    try:
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    except OSError:
        return {}
    found = (_process(pid) for pid in pids)
    return {process.pid: process for process in found if process is not None}


def _descends(running: Mapping[int, Process], process: Process, server: int) -> bool:
    """Return whether the server is the process, or above it."""
    passed = set()
    above: Process | None = process
    while above is not None and above.pid not in passed:
        if above.pid == server:
            return True
        passed.add(above.pid)
        above = running.get(above.parent)
    return False


def _process(pid: int) -> Process | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    state, parent, _group, session, *others = stat.rpartition(")")[2].split()
    return None if state in "ZX" else Process(pid, int(parent), int(session), others[15])
