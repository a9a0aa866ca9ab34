"""A function under the real framework's own server, which ends when the dev server does.

Run as `python -m leasehold.devserver.function_server PARENT --target … --source …`: PARENT is the
process that must be there; the rest is as for functions-framework. It serves this machine only, and
bounds what a request may be while it comes.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
from typing import Any, Final

from functions_framework import create_app
from functions_framework._http import create_server

from leasehold.devserver.loopback_only import LoopbackOnly

_PR_SET_PDEATHSIG: Final = 1

#: What the framework leaves open: how long a request line may be, and a socket in the home folder,
#: the same for every server of the machine, by which gunicorn can be told to do things.
_BOUNDS: Final = {"limit_request_line": 8190, "control_socket_disable": True}

#: In place of the worker that gunicorn takes for threads. One that has none has its own way.
_THREADED: Final = {"worker_class": "leasehold.devserver.function_worker.FunctionWorker"}


def main() -> None:
    """Serve the function until told to stop."""
    parent = int(sys.argv.pop(1))
    die_with_parent()
    if os.getppid() != parent:
        sys.exit("the dev server is gone")
    os.register_at_fork(after_in_child=die_with_parent)  # gunicorn's workers with their master
    asked = _arguments()
    app = create_app(asked.target, asked.source)  # type: ignore[no-untyped-call] # it has no types
    app.wsgi_app = LoopbackOnly(app.wsgi_app)
    options: dict[str, Any] = _BOUNDS | (_THREADED if os.environ.get("THREADS") != "1" else {})
    server = create_server(app, debug=False, **options)  # type: ignore[no-untyped-call] # as above
    server.run(asked.host, asked.port)


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that made it dies, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("--target", "--source", "--host"):
        parser.add_argument(name, required=True)
    parser.add_argument("--port", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
