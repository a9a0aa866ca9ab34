"""`leasehold serve`: API, workers and timer in this process, until it is stopped."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from leasehold.cli.exit_codes import BAD_INPUT, DONE
from leasehold.cli.stop_signals import StopSignals, leave
from leasehold.cli.streams import note, noted_if_slow, print_error, warn
from leasehold.imports import without_looks_for_garbage
from leasehold.logs.stderr_log import log_to_stderr
from leasehold.registry.extras import require_extra

if TYPE_CHECKING:
    from leasehold.server.http_server import HttpServer

_BY_HEADER: Final = (
    "LEASEHOLD_IDENTITY_HEADER is believed of every caller that reaches {host}: let only the proxy "
    "reach it"
)
#: Variable, option and value: two arenas for all threads, and blocks of 128 KiB or more are given
#: back at once. Python has one thread at a time ask for memory, but for what libraries do alone.
_MALLOC: Final = (("MALLOC_ARENA_MAX", -8, 2), ("MALLOC_MMAP_THRESHOLD_", -3, 128 * 1024))
_AT_ONCE: Final = b"killed: what was running goes on at the next start\n"


@click.command()
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="The address to listen on. Any other one needs LEASEHOLD_TOKEN, or a proxy that says who "
    "signed in (LEASEHOLD_IDENTITY_HEADER).",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8080,
    show_default=True,
    metavar="PORT",
    help="The port of the runs API and the API of leases.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    metavar="N",
    help="How many steps run at once.",
)
@click.option(
    "--allow-broken",
    is_flag=True,
    help="Start even if a handler, gate or model does not resolve; those steps block.",
)
def serve(*, host: str, port: int, workers: int, allow_broken: bool) -> int:
    """Run the HTTP API, the workers and the timer in one process, until Ctrl-C.

    For production on one machine, with the store of LEASEHOLD_STORE. After a restart it continues
    every run; several servers on one store share the work. Prints `ready URL` when it is ready. If
    the catalog names something that does not resolve, it says so and does not start.

    \b
    Example:
      leasehold serve --port 8080 --workers 8
      leasehold start summary --input '{"text": "One. Two."}' --url http://127.0.0.1:8080 --wait
    """  # noqa: D301
    require_extra("serve", "`leasehold serve`")
    _bound_free_memory()
    log_to_stderr()
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # it warns of each call that waits
    signals = StopSignals(_leave)
    try:
        with _answering(host, port, workers) as http:
            with (
                noted_if_slow("starting: the catalog and its handlers are imported"),
                without_looks_for_garbage(),
            ):
                is_broken = _is_broken()
            if is_broken and not allow_broken:
                note("not started: put that right, or let those steps block with --allow-broken")
                return BAD_INPUT
            return _serve(signals, http, host, port, workers, allow_broken=allow_broken)
    except (KeyboardInterrupt, Exception):
        if not signals.cut_start:
            raise
        note("stopped before it was ready")
        leave(DONE)  # Python remembers a KeyboardInterrupt inside `exec`, and ends by SIGINT for it


def _bound_free_memory() -> None:
    """Let glibc keep little of the memory that is free, before there are threads.

    It keeps some for each thread, and there are many here; other C libraries do not.

    Source:
        mallopt(3). Both settings have variables, which are left to who sets them.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for variable, option, value in _MALLOC:
        if mallopt is not None and variable not in os.environ:
            mallopt(option, value)


@contextlib.contextmanager
def _answering(host: str, port: int, workers: int) -> Iterator[HttpServer]:
    """Answer `/health` before all that takes long to import."""
    with without_looks_for_garbage():
        from leasehold.server.startup import begin_to_answer  # noqa: PLC0415 - an extra has it

    with _explaining(workers):
        http = begin_to_answer(host, port)
    try:
        yield http
    finally:
        http.stop()


def _is_broken() -> bool:
    """Say what the catalog names and does not resolve, a line each; return whether there is any.

    Variables that look like settings and are none are warned of.
    """
    from leasehold.doctor.variables import unread_lines  # noqa: PLC0415 - it takes long
    from leasehold.static_check import unresolved_lines  # noqa: PLC0415 - as above

    lines = unresolved_lines()
    for line in unread_lines(os.environ):
        warn(line)
    for line in lines:
        print_error(line)
    return bool(lines)


def _serve(
    signals: StopSignals,
    http: HttpServer,
    host: str,
    port: int,
    workers: int,
    *,
    allow_broken: bool,
) -> int:
    """Serve until the first signal, then stop in order."""
    with without_looks_for_garbage():
        from leasehold.server.server import ServeOptions, Server  # noqa: PLC0415 - an extra has them

    with _explaining(workers):
        server = Server(ServeOptions(host, port, workers, allow_broken), note, http=http)
    try:
        with _explaining(workers), noted_if_slow("starting: the runs of the store are taken up"):
            server.start()  # it answers and works, for as long as the store is away
        gc.freeze()  # a look for garbage goes through no module again: it took 60 ms
        signals.ready()
        if server.believes_header:
            note(_BY_HEADER.format(host=host))
        click.echo(f"ready {server.url}")
        signals.wait()
        note("stopping: running attempts may end; once more to leave at once")
    finally:
        signals.ready()
        server.stop(signals.name)
    leave(DONE)


@contextlib.contextmanager
def _explaining(workers: int) -> Iterator[None]:
    """Say what to do where the system has no threads to start with."""
    try:
        yield
    except RuntimeError as error:
        if "new thread" not in str(error):  # as Python says it
            raise
        message = f"the system has no threads for --workers {workers} ({error}); try fewer."
        raise click.ClickException(message) from error


def _leave() -> None:
    """End this process whatever its threads do; inside a handler of a signal."""
    os.write(2, _AT_ONCE)
    os._exit(DONE)
