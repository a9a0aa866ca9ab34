"""The entry of a fork server that stops itself before it kills what runs, until SIGCONT."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from tests.chaos.sandbox.programs import load, run
from tests.worlds.processes import is_running

__all__ = ["load", "run"]

_FORK_SERVER = os.getpid()


def _stop_before_a_kill(event: str, given: tuple[Any, ...]) -> None:
    is_kill = event == "os.kill" and given[1] == signal.SIGKILL
    if is_kill and os.getpid() == _FORK_SERVER and is_running(given[0]):
        os.kill(_FORK_SERVER, signal.SIGSTOP)


sys.addaudithook(_stop_before_a_kill)
