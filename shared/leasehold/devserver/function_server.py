"""A function under the real framework's own server, which ends when the dev server does.

Run as `python -m leasehold.devserver.function_server PARENT[,LISTENER,STATES] --target …`: PARENT
is the process that must be there, LISTENER a socket of it that listens already, STATES a pipe that
it reads; the rest is for functions-framework.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from contextlib import suppress
from typing import Any, Final

from functions_framework._http.gunicorn import GunicornApplication
from gunicorn.arbiter import Arbiter  # type: ignore[import-untyped]

from leasehold.adapters.log_lines import print_printable_logs
from leasehold.devserver.server_process import DRAIN_S, ENDS, SERVES

_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Serve the function until told to stop."""
    parent, *descriptors = map(int, sys.argv.pop(1).split(","))
    die_with_parent()
    if os.getppid() != parent:
        sys.exit("the dev server is gone")
    os.register_at_fork(after_in_child=die_with_parent)  # gunicorn's workers with their master
    print_printable_logs()
    outlive_workers()
    if descriptors:
        listener, states = descriptors
        serve_on(listener)
        tell_states(states)
    runpy.run_module("functions_framework", run_name="__main__", alter_sys=True)


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that made it dies, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def outlive_workers() -> None:
    """Have gunicorn replace each worker that ends, whatever its code.

    It takes 3 and 4 for a function that cannot be loaded, and ends. But the framework loads the
    function before there are workers, so these are codes of a handler, as of `os._exit(3)`. No
    process ends with more than 255.
    """
    Arbiter.WORKER_BOOT_ERROR = 256 + Arbiter.WORKER_BOOT_ERROR
    Arbiter.APP_LOAD_ERROR = 256 + Arbiter.APP_LOAD_ERROR


def serve_on(listener: int) -> None:
    """Have the framework's server listen on this socket, and drain for DRAIN_S at most."""
    load: Any = GunicornApplication.load_config

    def load_with_listener(self: Any) -> None:
        load(self)
        self.cfg.set("bind", f"fd://{listener}")
        self.cfg.set("graceful_timeout", DRAIN_S)

    GunicornApplication.load_config = load_with_listener  # type: ignore[method-assign]


def tell_states(states: int) -> None:
    """Write to the pipe when the server begins and ends to take requests."""
    start, stop = Arbiter.start, Arbiter.stop

    def start_and_tell(self: Any) -> None:
        start(self)
        _write(states, SERVES)

    def stop_and_tell(self: Any, *args: Any, **options: Any) -> None:
        _write(states, ENDS)
        stop(self, *args, **options)

    os.set_inheritable(states, False)
    Arbiter.start, Arbiter.stop = start_and_tell, stop_and_tell


def _write(states: int, state: bytes) -> None:
    with suppress(OSError):  # nobody reads it any more
        os.write(states, state)


if __name__ == "__main__":
    main()
