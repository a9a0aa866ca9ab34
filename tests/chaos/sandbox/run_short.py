"""The entry of a fork server that gets less than a handler needs, from SIGUSR1 to SIGUSR2.

It has its own user, because there is no limit for the processes of root. What it is short of
is in `SHORT_OF`: `nproc 2` is room for two more processes or threads, `as 1000` for 1,000 KiB more.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
from pathlib import Path

import tests.chaos.sandbox.handlers  # noqa: F401 - that user may read nothing here
from leasehold.worker.sandbox.child.handler_process import load, run

__all__ = ["load", "run"]

_KINDS = {"nproc": resource.RLIMIT_NPROC, "as": resource.RLIMIT_AS}
_KIND, _ROOM = os.environ["SHORT_OF"].split()
_, _MOST = resource.getrlimit(_KINDS[_KIND])


def _taken() -> int:
    if _KIND == "nproc":
        return 1
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (size,) = (line.split()[1] for line in lines if line.startswith("VmSize"))
    return int(size) * 1024


def _allow(room: int) -> None:
    resource.setrlimit(_KINDS[_KIND], (room, _MOST))


_SHORT = _taken() + int(_ROOM) * (1 if _KIND == "nproc" else 1024)
os.setuid(int(os.environ["SHORT_USER"]))

#: Whoever has it open is not fit for forking: all children are those of the fork server.
_OPENED = socket.socket()

signal.signal(signal.SIGUSR1, lambda *_: _allow(_SHORT))
signal.signal(signal.SIGUSR2, lambda *_: _allow(_MOST))
