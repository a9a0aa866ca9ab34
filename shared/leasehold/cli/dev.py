"""`leasehold dev`: serve the bundle until somebody stops it."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click

from leasehold.cli.exit_codes import DONE
from leasehold.cli.stderr import say
from leasehold.devserver.server import DevOptions, DevServer


def dev(
    *,
    port: int,
    workers: int,
    data: Path,
    lease_port: int | None = None,
    targets: tuple[str, ...] = (),
) -> int:
    """Serve the bundle; return when it was stopped in order, or at once at a second signal."""
    stop, ready = threading.Event(), threading.Event()
    asked = 0

    def asked_to_stop(*_: object) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            return  # the stopping looks at the number
        stop.set()
        if not ready.is_set():
            raise KeyboardInterrupt  # whatever the start waits for

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, asked_to_stop)
    options = DevOptions(
        port=port, workers=workers, data=data, lease_port=lease_port, targets=targets
    )
    server = DevServer(options, say)
    try:
        server.start()
        ready.set()
        click.echo(f"ready {server.url}")
        stop.wait()
        say("stopping: running attempts may end; once more to kill them")
    except KeyboardInterrupt:
        say("stopped before it was ready")
    finally:
        ready.set()
        server.stop(at_once=lambda: asked > 1)
    if asked > 1:
        say("killed: what was running goes on at the next start")
    return DONE
