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
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    server = DevServer(DevOptions(port=port, workers=workers, data=data), say)
    try:
        server.start()
        click.echo(f"ready {server.url}")
        stop.wait()
        say("stopping: running attempts may end")
    finally:
        server.stop()
    return DONE
