"""A function under the real framework's own server, which ends when the dev server does.

Run as `python -m leasehold.devserver.function_server PARENT[,LISTENER,STATES] --target …`: PARENT
is the process that must be there, LISTENER a socket of it that listens already, STATES a pipe that
it reads; the rest is as for functions-framework. It serves this machine only, and bounds what a
request may be while it comes.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Final

from functions_framework import create_app
from functions_framework._http import create_server
from gunicorn.arbiter import Arbiter

from leasehold.devserver.loopback_only import LoopbackOnly
from leasehold.devserver.server_process import DRAIN_S, ENDS, SERVES
from leasehold.log_lines import print_printable_logs

_PR_SET_PDEATHSIG: Final = 1

#: What the framework leaves open: how long a request line may be; headers by which a caller of
#: this machine says where the application is mounted; a socket in the home folder, the same for
#: every server of the machine, by which gunicorn can be told to do things; how long to drain.
_BOUNDS: Final = {
    "limit_request_line": 8190,
    "forwarder_headers": "",
    "control_socket_disable": True,
    "graceful_timeout": DRAIN_S,
}

#: How often workers that drain are asked to end.
_ASK_AGAIN_S: Final = 0.5

#: In place of the worker that gunicorn takes for threads. One that has none has its own way.
_THREADED: Final = {"worker_class": "leasehold.devserver.function_worker.FunctionWorker"}


def main() -> None:
    """Serve the function until told to stop."""
    parent, *descriptors = map(int, sys.argv.pop(1).split(","))
    die_with_parent()
    if os.getppid() != parent:
        sys.exit("the dev server is gone")
    os.register_at_fork(after_in_child=die_with_parent)  # gunicorn's workers with their master
    print_printable_logs()
    outlive_workers()
    arguments = _arguments()
    options: dict[str, Any] = _BOUNDS | (_THREADED if os.environ.get("THREADS") != "1" else {})
    if descriptors:
        listener, states = descriptors
        options["bind"] = f"fd://{listener}"
        tell_states(states)
    app = create_app(arguments.target, arguments.source)  # type: ignore[no-untyped-call] # it has no types
    app.wsgi_app = LoopbackOnly(app.wsgi_app)
    server = create_server(app, debug=False, **options)  # type: ignore[no-untyped-call] # as above
    server.run(arguments.host, arguments.port)


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


def tell_states(states: int) -> None:
    """Write to the pipe when the server begins and ends to take requests."""
    start, stop = Arbiter.start, Arbiter.stop

    def start_and_tell(self: Any) -> None:
        start(self)
        _write(states, SERVES)

    def stop_and_tell(self: Any, *args: Any, **options: Any) -> None:
        _write(states, ENDS)
        threading.Thread(target=_ask_again, args=(self,), daemon=True).start()
        stop(self, *args, **options)

    os.set_inheritable(states, False)
    Arbiter.start, Arbiter.stop = start_and_tell, stop_and_tell


def _ask_again(arbiter: Any) -> None:
    """Ask the workers to end until they do: one that is just forked has no handler, and forgets."""
    while arbiter.WORKERS:
        time.sleep(_ASK_AGAIN_S)
        arbiter.kill_workers(signal.SIGTERM)


def _write(states: int, state: bytes) -> None:
    with suppress(OSError):  # nobody reads it any more
        os.write(states, state)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("--target", "--source", "--host"):
        parser.add_argument(name, required=True)
    parser.add_argument("--port", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
