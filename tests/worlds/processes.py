"""Parents and states of processes of tests, as the kernel has them."""

from __future__ import annotations

from pathlib import Path


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
