"""`leasehold dev`: serve the bundle until it is stopped."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leasehold.cli.exit_codes import DONE
from leasehold.cli.stop_signals import StopSignals, leave
from leasehold.cli.streams import note, noted_if_slow, warn
from leasehold.logs.stderr_log import log_to_stderr
from leasehold.registry.extras import require_extra

if TYPE_CHECKING:
    from leasehold.devserver.loopback_server import LoopbackServer
    from leasehold.devserver.server import DevServer


@click.command()
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8080,
    show_default=True,
    metavar="PORT",
    help="Where the runs API listens, on the loopback interface.",
)
@click.option(
    "--lease-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Where the API of leases listens, if a step is remote.  [default: a free one]",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    metavar="N",
    help="Server processes that run steps.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".leasehold"),
    show_default=True,
    metavar="DIR",
    help="The folder of store and artifacts, unless the environment says otherwise.",
)
@click.option(
    "--allow-target",
    "targets",
    multiple=True,
    metavar="HOST",
    help="A host beyond this machine that tasks may be delivered to; may be repeated.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="Load the code again when it changes; attempts that run may end.",
)
def dev(
    *,
    port: int,
    lease_port: int | None,
    workers: int,
    data: Path,
    targets: tuple[str, ...],
    reload: bool,
) -> int:
    """Serve the whole bundle on this machine, until Ctrl-C.

    The real functions under the real framework's server, with stand-ins for Cloud Tasks and Cloud
    Scheduler. Prints `ready URL` when it is ready; other commands reach it with --url.

    \b
    Example:
      leasehold dev --port 8080
      leasehold start summary --input '{"text": "One. Two."}' --url http://127.0.0.1:8080 --wait
    """  # noqa: D301
    require_extra("functions", "`leasehold dev`")
    log_to_stderr()
    signals = StopSignals()
    try:
        with _answering(port) as until_ready:
            with noted_if_slow("starting: the catalog and its handlers are imported"):
                server = _make_server(
                    until_ready,
                    port=port,
                    workers=workers,
                    data=data,
                    lease_port=lease_port,
                    targets=targets,
                    reload=reload,
                )
            return _serve(signals, server)
    except (KeyboardInterrupt, Exception):
        if not signals.cut_start:
            raise
        note("stopped before it was ready")
        leave(DONE)  # Python remembers a KeyboardInterrupt inside `exec`, and ends by SIGINT for it


@contextlib.contextmanager
def _answering(port: int) -> Iterator[LoopbackServer]:
    """Answer `/health` before all that takes long to import."""
    from leasehold.devserver.loopback_server import (  # noqa: PLC0415 - an extra has it
        LoopbackServer,
        check_free,
    )
    from leasehold.server.startup import answer  # noqa: PLC0415 - as above

    check_free(port, "--port")
    until_ready = LoopbackServer(answer, "starting")
    until_ready.start(port)
    try:
        yield until_ready
    finally:
        until_ready.stop()


def _make_server(until_ready: LoopbackServer, **options: Any) -> DevServer:
    """Import the catalog and handlers; say what of them does not resolve, or is not read."""
    from leasehold.deploy.tables import read_tables  # noqa: PLC0415 - as above
    from leasehold.devserver.server import DevOptions, DevServer  # noqa: PLC0415 - as above
    from leasehold.doctor.variables import unread_lines  # noqa: PLC0415 - it takes long
    from leasehold.static_check import unresolved_lines  # noqa: PLC0415 - as above

    for line in (*unresolved_lines(), *unread_lines(os.environ)):
        warn(line)
    table = read_tables(Path.cwd()).functions
    return DevServer(DevOptions(**options), note, table=table, until_ready=until_ready)


def _serve(signals: StopSignals, server: DevServer) -> int:
    """Serve; return when it was stopped in order, or at once at a second signal."""
    try:
        with noted_if_slow("starting: each function imports them in its own process"):
            server.start()
        signals.ready()
        click.echo(f"ready {server.url}")
        signals.wait()
        note("stopping: running attempts may end; once more to kill them")
    finally:
        signals.ready()
        server.stop(at_once=lambda: signals.is_at_once)
    if signals.is_at_once:
        note("killed: what was running goes on at the next start")
    return DONE
