"""How a lease names its worker, and whether that worker's process is still there."""

from __future__ import annotations

from pathlib import Path


def holder_name(host: str, pid: int) -> str:
    """Return `host/pid@start`: a pid alone may be given to another process later."""
    return f"{host}/{pid}@{_started(pid) or 'unknown'}"


def is_gone(holder: str, *, host: str) -> bool:
    """Return whether the holder was a process of this host that does not run any more.

    False where it cannot be known: another host, or a system without /proc.
    """
    its_host, _, process = holder.rpartition("/")
    pid, _, started = process.partition("@")
    if its_host != host or not pid.isdigit() or started == "unknown":
        return False
    return _started(int(pid)) != started


def _started(pid: int) -> str | None:
    """Return when the process started, in ticks since boot; None where it is not there."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    state, started = fields[0], fields[19]
    return None if state in "ZX" else started
