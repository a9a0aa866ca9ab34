"""Processes that carry the mark of a fork server in their environment, wherever they went."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from leasehold.worker.sandbox.process_handle import ProcessHandle

#: Set for the fork server, and inherited by all below it.
MARK: Final = "LEASEHOLD_FORK_SERVER"

#: What is killed may have just started something more: it is looked for again, this often.
_LOOKS: Final = 20
_GONE_S: Final = 1.0


def kill_marked(mark: str) -> None:
    """Kill all processes with that mark. Does nothing on a system without /proc."""
    wanted = f"{MARK}={mark}".encode()
    for _ in range(_LOOKS):
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
        process.wait(_GONE_S)
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
