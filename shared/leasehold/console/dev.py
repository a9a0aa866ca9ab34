"""`leasehold dev`: serve the bundle until somebody stops it."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click

from leasehold.console.exits import DONE
from leasehold.console.says import say
from leasehold.devserver.server import DevOptions, DevServer


def dev(*, port: int, workers: int, data: Path) -> int:
    """Serve the bundle; return when it was stopped in order."""
    stop, ready = threading.Event(), threading.Event()

    def asked_to_stop(*_: object) -> None:
        stop.set()
        if not ready.is_set():
            raise KeyboardInterrupt  # whatever the start waits for

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, asked_to_stop)
    server = DevServer(DevOptions(port=port, workers=workers, data=data), say)
    try:
        server.start()
        ready.set()
        click.echo(f"ready {server.url}")
        stop.wait()
        say("stopping: running attempts may end")
    except KeyboardInterrupt:
        say("stopped before it was ready")
    finally:
        ready.set()
        server.stop()
    return DONE
