"""How a lease names its worker, and whether that worker's process is still there."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from pathlib import Path
from typing import Final

#: A variable that processes inherit from the worker that started them: whose they are.
HOLDER: Final = "LEASEHOLD_HOLDER"

#: As the kernel counts them; other digits than these are no pid either.
_PID: Final = re.compile(r"[1-9][0-9]{0,9}")

#: Between the name of a host and the scope of its pids; no host name has one.
_SCOPED: Final = "+"


def host_name() -> str:
    """Return `host+scope`: two processes of the same name see each other under the same pids.

    Containers may share a host's name, and each of them counts its pids from 1. Where the scope
    cannot be known, it is the host's name alone.
    """
    host, scope = socket.gethostname(), _scope_of_pids()
    return host if scope is None else f"{host}{_SCOPED}{scope}"


def holder_name(host: str, pid: int) -> str:
    """Return `host/pid@start`: a pid alone may be given to another process later."""
    return f"{host}/{pid}@{_started(pid) or 'unknown'}"


def is_gone(holder: str, *, host: str) -> bool:
    """Return whether the holder was a process of this host that does not run any more.

    False where it cannot be known: another host, another scope of pids, or a system without
    /proc.

    Args:
        holder: the name from `holder_name`.
        host: this process's `host_name()`.
    """
    its_host, _, process = holder.rpartition("/")
    pid, _, started = process.partition("@")
    if its_host != host or _SCOPED not in host or not _PID.fullmatch(pid) or started == "unknown":
        return False
    return _started(int(pid)) != started


def _scope_of_pids() -> str | None:
    """Return a short hash of this boot and this PID namespace, or None."""
    try:
        own_pid = Path("/proc/self").readlink().name
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return None
    if own_pid != str(os.getpid()):
        return None  # /proc shows the pids of another namespace
    return hashlib.sha256(f"{boot}{namespace}".encode()).hexdigest()[:12]


def _started(pid: int) -> str | None:
    """Return when the process started, in ticks since boot; None where it is not there."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    state, started = fields[0], fields[19]
    return None if state in "ZX" else started
