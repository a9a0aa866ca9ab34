"""The entry of a fork server that is not root: there is no limit for the processes of root.

It has room for no process from SIGUSR1 to SIGUSR2.
"""

from __future__ import annotations

import os
import resource
import signal

from tests.chaos.sandbox.programs import load, run

__all__ = ["load", "run"]

_NOBODY = 65534

if os.getuid() == 0:
    os.setuid(_NOBODY)

_, _MOST = resource.getrlimit(resource.RLIMIT_NPROC)


def _allow(processes: int) -> None:
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, _MOST))


signal.signal(signal.SIGUSR1, lambda *_: _allow(0))
signal.signal(signal.SIGUSR2, lambda *_: _allow(_MOST))
