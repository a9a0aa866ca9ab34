"""The program of a server process: a function under the framework's own server, for this machine.

Run as `python -m leasehold.devserver.server_main PARENT[,LISTENER,STATES] --target …`: PARENT is
the process that must be there, LISTENER a socket of it that listens already, STATES a socket by
which it hears how far this is, and says when to accept requests; the rest is as for
functions-framework. It ends when PARENT does, and bounds what a request may be while it arrives.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Final

from functions_framework import create_app
from functions_framework._http import create_server
from gunicorn.arbiter import Arbiter

from leasehold.devserver.server_process import DRAIN_S, LOADED, READY, STOPPING
from leasehold.imports import without_looks_for_garbage
from leasehold.logs.stderr_log import log_to_stderr
from leasehold.web.loopback_guard import LoopbackGuard
from leasehold.worker.stopping.system_signals import ENDING

_PR_SET_PDEATHSIG: Final = 1

#: What the framework leaves open: how long a request line may be; headers by which a caller of
#: this machine says where the application is mounted; a socket in the home folder, the same for
#: every server of the machine, by which gunicorn accepts commands; how long to drain.
_BOUNDS: Final = {
    "limit_request_line": 8190,
    "forwarder_headers": "",
    "control_socket_disable": True,
    "graceful_timeout": DRAIN_S,
}

#: The function that serves pages, and takes their forms.
_WITH_PAGES: Final = "serve_api"

#: How often workers that drain get the signal to end.
_SIGNAL_EVERY_S: Final = 0.5

#: In place of gunicorn's worker for threads. A server with one thread has gunicorn's sync worker.
_THREADED: Final = {"worker_class": "leasehold.devserver.gunicorn_worker.RequestTimeoutWorker"}


def main() -> None:
    """Serve the function until a signal stops it."""
    parent, *descriptors = map(int, sys.argv.pop(1).split(","))
    die_with_parent()
    if os.getppid() != parent:
        sys.exit("the dev server is gone")
    os.register_at_fork(after_in_child=die_with_parent)  # gunicorn's workers with their master
    end_young_workers()
    log_to_stderr()
    replace_every_worker()
    arguments = _arguments()
    options: dict[str, Any] = _BOUNDS | (_THREADED if os.environ.get("THREADS") != "1" else {})
    if descriptors:
        listener, states = descriptors
        options["bind"] = f"fd://{listener}"
        report_states(states)
    with without_looks_for_garbage():
        app = create_app(arguments.target, arguments.source)  # type: ignore[no-untyped-call] # it has no types
    app.wsgi_app = LoopbackGuard(app.wsgi_app, has_pages=arguments.target == _WITH_PAGES)
    server = create_server(app, debug=False, **options)  # type: ignore[no-untyped-call] # as above
    if descriptors:
        wait_until_it_may_accept(states)
    server.run(arguments.host, arguments.port)


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that made it dies, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_young_workers() -> None:
    """Have a worker end by a signal to end that comes before it has its own handlers.

    Until then it has those of its master: it would note that it is to end, refuse every request,
    and not end. So these signals wait while a worker is forked, and then end it at once.
    """
    master = os.getpid()

    def hold() -> None:
        if os.getpid() == master:
            signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)

    def let_go() -> None:
        if os.getpid() == master:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)

    def let_go_in_worker() -> None:
        if os.getppid() == master:
            for number in ENDING:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)

    os.register_at_fork(before=hold, after_in_parent=let_go, after_in_child=let_go_in_worker)


def replace_every_worker() -> None:
    """Have gunicorn replace each worker that ends, whatever its code.

    It takes 3 and 4 for a function that cannot be loaded, and ends. But the framework loads the
    function before there are workers, so these are codes of a handler, as of `os._exit(3)`. No
    process ends with more than 255.
    """
    Arbiter.WORKER_BOOT_ERROR = 256 + Arbiter.WORKER_BOOT_ERROR
    Arbiter.APP_LOAD_ERROR = 256 + Arbiter.APP_LOAD_ERROR


def report_states(states: int) -> None:
    """Report when the server begins to accept requests, and when it stops."""
    start, stop = Arbiter.start, Arbiter.stop

    def start_and_report(self: Any) -> None:
        start(self)
        _write(states, READY)

    def report_and_stop(self: Any, *args: Any, **options: Any) -> None:
        _write(states, STOPPING)
        threading.Thread(target=_repeat_stop, args=(self,), daemon=True).start()
        stop(self, *args, **options)

    os.set_inheritable(states, False)
    Arbiter.start, Arbiter.stop = start_and_report, report_and_stop


def wait_until_it_may_accept(states: int) -> None:
    """Report that the function is loaded; another process may still answer in its place."""
    _write(states, LOADED)
    with socket.socket(fileno=os.dup(states)) as parent:
        if not parent.recv(1):
            sys.exit("the dev server is gone")


def _repeat_stop(arbiter: Any) -> None:
    """Signal the workers until they end: one that was just forked has no handler yet."""
    while arbiter.WORKERS:
        time.sleep(_SIGNAL_EVERY_S)
        arbiter.kill_workers(signal.SIGTERM)


def _write(states: int, state: bytes) -> None:
    with suppress(OSError):  # the reader is gone
        os.write(states, state)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("--target", "--source", "--host"):
        parser.add_argument(name, required=True)
    parser.add_argument("--port", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
