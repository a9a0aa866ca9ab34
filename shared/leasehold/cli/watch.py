"""`leasehold watch`: runs as they move, one or all."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, TextIO

import click
import pydantic_core

from leasehold.cli.exit_codes import (
    DONE,
    NOT_COMPLETED,
    UNWRITTEN,
    end_on_sigterm,
    explain_interrupt,
)
from leasehold.cli.invocation import command_line, url_words
from leasehold.cli.options import json_option, url_option
from leasehold.cli.run_displays import (
    Display,
    JsonDisplay,
    LineDisplay,
    LinesOfRuns,
    LiveRuns,
    print_run_line,
)
from leasehold.cli.stdout import print_json, print_json_line, print_line
from leasehold.cli.streams import can_draw, note, print_error, warn
from leasehold.client.client import Client
from leasehold.client.run_wait import retry_unreachable
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus
from leasehold.domain.summary import Summary, summary_of
from leasehold.domain.trace import TraceEvent
from leasehold.errors import LeaseholdError
from leasehold.frozen import dataclass
from leasehold.presentation.run_state import result_of, value_in_short
from leasehold.services.read_children import with_progress_of_children
from leasehold.worker.stopping.holder import host_name, is_gone

# Watching a run until it is over, blocked or paused, with the display that its output can bear.


#: How often the display is drawn, and a run of this process looked at.
DRAW_EVERY_S: Final = 0.1
#: How often another run is read: after a twentieth of the time that it was watched, at most.
_SHARE: Final = 1 / 20
_MAX_POLL_S: Final = 1.0
#: A server that works takes a run within this time.
_SERVER_TAKES_RUN_S: Final = 1.0
_LOOK_FOR_SERVER_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class View:
    """How a run can be looked at while it moves.

    Args:
        show: the run, with what its handler last reported.
        trace: all that happened to it.
        pause: returns after a moment, or earlier when the run is over, blocked or paused.
        now: the store's time.
        worker: how leases name this process; None: it works on no run.
        look_for_server: called while no worker has the run; says why none would take it.
    """

    show: Callable[[], Manifest]
    trace: Callable[[], list[TraceEvent]]
    pause: Callable[[], None]
    now: Callable[[], datetime]
    worker: str | None = None
    look_for_server: Callable[[], None] = lambda: None


def wait_for(client: Client, run_id: str, *, quiet: bool, url: str | None = None) -> Manifest:
    """Wait until the run is over, blocked or paused."""
    view = view_of(client, run_id)
    with explain_watch_interrupt(run_id, url):
        return watch_run(view, Display() if quiet else display_on(sys.stderr, view))


def view_of(client: Client, run_id: str, *, patience: float | None = None) -> View:
    """Return how a run of a client is looked at: it is read less often the longer that takes.

    Args:
        client: a server, or a store.
        run_id: the run.
        patience: how long an outage is waited for, in seconds; None: as long as a restart takes.
    """
    get = partial(_get, client, run_id)
    show = retry_unreachable(get, seconds=patience, report=note_outage)
    trace = retry_unreachable(partial(client.trace, run_id), seconds=patience, report=note_outage)
    pause = partial(time.sleep, DRAW_EVERY_S)
    look = ServerLook(client).look
    return View(_Paced(show), trace, pause, now=client.connection.now, look_for_server=look)


def _get(client: Client, run_id: str) -> Manifest:
    """Return the run; one that waits for children with how far they are."""
    run = client.get(run_id)
    if not run.is_resting or not run.is_moving:
        return run
    read = client.children(run)
    return with_progress_of_children(run, read.fraction, read.words)


def note_outage(error: LeaseholdError | None) -> None:
    """Print that there is no answer, or, for None, that there is one again."""
    note("It answers again." if error is None else f"{error.message} Waiting for it.")


def explain_watch_interrupt(run_id: str, url: str | None) -> AbstractContextManager[None]:
    """Have an interrupt say what it means for the run that is watched, and how to see it."""
    meaning = f"run {run_id} is durable and goes on; look at it with:"
    return explain_interrupt(meaning, command_line("show", run_id, *url_words(url)))


def watch_run(view: View, display: Display) -> Manifest:
    """Show the run until it is over, blocked or paused."""
    with display:
        while True:
            run = view.show()
            display.update(run)
            if not run.is_moving:
                return run
            if not _is_held(run, view.now()):
                view.look_for_server()
            view.pause()


def _is_held(run: Manifest, now: datetime) -> bool:
    """Return whether a worker has the run that is not known to be gone."""
    lease = run.position.lease
    return (
        lease is not None and now < lease.expires_at and not is_gone(lease.holder, host=host_name())
    )


def display_on(stream: TextIO, view: View, *, known: Iterable[TraceEvent] = ()) -> Display:
    """Return the display for stdout or stderr: in place on a terminal, else line by line.

    Args:
        stream: one of the two.
        view: how the run can be looked at.
        known: events that need no line.
    """
    if can_draw(stream):
        from leasehold.cli.live_display import LiveDisplay  # noqa: PLC0415 - rich

        return LiveDisplay(view.now, view.worker, is_stderr=stream is sys.stderr)
    return LineDisplay(view.trace, stream, known)


class ServerLook:
    """Says, once, that live runs wait and no server works on their store."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._again_at = time.monotonic() + _SERVER_TAKES_RUN_S
        self._has_said = False

    def look(self) -> None:
        """Look, unless that was done a moment ago; an outage is for others to tell."""
        if self._has_said or time.monotonic() < self._again_at:
            return
        with suppress(LeaseholdError):
            if words := self._client.connection.missing_server():
                note(f"{words}. Waiting for one.")
                self._has_said = True
        self._again_at = time.monotonic() + _LOOK_FOR_SERVER_S


class _Paced:
    """Reads a run, less often the longer it is watched; in between it is as it was read last."""

    def __init__(self, read: Callable[[], Manifest]) -> None:
        self._read = read
        self._began = time.monotonic()
        self._again_at = 0.0
        self._last: Manifest | None = None

    def __call__(self) -> Manifest:
        if self._last is None or self._again_at <= time.monotonic():
            self._last = self._read()
            now = time.monotonic()
            self._again_at = now + min(_MAX_POLL_S, _SHARE * (now - self._began))
        return self._last


# Watching all live runs, until it is interrupted.


if TYPE_CHECKING:
    from leasehold.cli.live_display import LiveTable

#: So many runs are shown.
MAX_RUNS_SHOWN: Final = 100
#: As often as progress is stored; less often where it takes long to read the runs.
READ_EVERY_S: Final = 2.0
_PAUSE_SHARE: Final = 10

#: The statuses of live runs, in the order in which they are shown.
_LIVE: Final = (RunStatus.IN_PROGRESS, RunStatus.ERROR, RunStatus.PENDING, RunStatus.BLOCKED)


def watch_runs(
    client: Client, display: LinesOfRuns | LiveTable, pause: Callable[[float], object] = time.sleep
) -> None:
    """Show all live runs, until an interrupt.

    Args:
        client: a server or a store. It has to answer at first; later outages are waited for.
        display: shows them.
        pause: waits for so many seconds.
    """
    with suppress(KeyboardInterrupt):
        live, took = live_runs(client), 0.0
        read = retry_unreachable(partial(live_runs, client), seconds=inf, report=note_outage)
        servers = ServerLook(client)
        with display:
            while True:
                display.update(live)
                servers.look()
                pause(max(READ_EVERY_S, _PAUSE_SHARE * took))
                began = time.monotonic()
                live = read()
                took = time.monotonic() - began


def live_runs(client: Client) -> LiveRuns:
    """Return the live runs, those that are worked on first, of each status the newest first."""
    runs: dict[str, Summary] = {}
    has_more = False
    for status in _LIVE:
        given_up = False if status is RunStatus.ERROR else None
        room = MAX_RUNS_SHOWN + 1 - len(runs)  # one more tells whether there are more
        page = client.page(limit=room, status=status, dead_lettered=given_up)
        runs |= {run.run_id: run for run in page.runs if run.run_id not in runs}
        has_more |= page.next_page_token is not None or len(runs) > MAX_RUNS_SHOWN
        if len(runs) > MAX_RUNS_SHOWN:
            break
    return LiveRuns(list(runs.values())[:MAX_RUNS_SHOWN], has_more)


def runs_display(client: Client, *, as_json: bool) -> LinesOfRuns | LiveTable:
    """Return the display for stdout: a table on a terminal, else a line a change."""
    if not as_json and can_draw(sys.stdout):
        from leasehold.cli.live_display import LiveTable  # noqa: PLC0415 - rich

        return LiveTable(client.connection.now)
    printed = print_json_line if as_json else partial(print_run_line, client.connection.now)
    return LinesOfRuns(partial(_read, client), printed)


def _read(client: Client, run_id: str) -> Manifest:
    return retry_unreachable(partial(client.get, run_id), seconds=inf, report=note_outage)()


# The answer of a command that waited for a run: how it ended, and what it gave.


_MAX_OUTPUT_CHARS: Final = 200


def read_result(run: Manifest, read: Callable[[str], Any]) -> Any:
    """Return the output that `read` reads, None where there is none, or the error that hides it."""
    if run.status is not RunStatus.COMPLETED:
        return None
    try:
        return retry_unreachable(partial(read, run.run_id))()
    except LeaseholdError as error:
        return error


def print_result_json(run: Manifest, output: Any, *, url: str | None = None) -> int:
    """Print the summary with the output as `read_result` returned it; return the exit code."""
    summary = pydantic_core.to_jsonable_python(summary_of(run))
    if not isinstance(output, LeaseholdError):
        print_json({**summary, "output": output})
        return code_of(run)
    print_json({**summary, "output": None})
    print_error(f"the run is completed, but its output cannot be read: {output.message}")
    note("read it later with:", command_line("output", run.run_id, *url_words(url)))
    return UNWRITTEN


def print_result(run: Manifest, *, url: str | None = None) -> int:
    """Print how the run ended and which commands show more; return the exit code."""
    words = (run.run_id, *url_words(url))
    commands = [command_line("show", *words), command_line("trace", *words)]
    print_line(result_of(run))
    if run.status is RunStatus.COMPLETED:
        short = value_in_short(run.steps[run.position.step].kept_output, _MAX_OUTPUT_CHARS)
        note(f"output: {short}")
        commands.insert(0, command_line("output", *words))
    if wait := run.waits_for:
        sent = command_line("signal", run.run_id, wait.name, "--json", "VALUE", *url_words(url))
        commands.insert(0, sent)
    note("next:", " · ".join(commands))
    return code_of(run)


def code_of(run: Manifest) -> int:
    """Return the exit code of a command that waited for the run."""
    return DONE if run.status is RunStatus.COMPLETED else NOT_COMPLETED


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@url_option
@json_option
def watch(*, run_id: str | None, url: str | None, as_json: bool) -> int:
    """Show RUN live until it ends; without RUN, show all live runs until Ctrl-C.

    On a terminal the display updates in place; elsewhere each change is a line, with --json a line
    of JSON. If the server or the store does not answer for a while, the command waits.

    With RUN, it exits with 0 if the run completes, and with 1 if it ends otherwise or waits for a
    person.

    \b
    Examples:
      leasehold watch r-0123456789abcdef
      leasehold watch --url http://127.0.0.1:8080
    """  # noqa: D301
    end_on_sigterm()
    with Client(url, warn=warn) as client:  # to read needs no catalog, which might print
        if run_id is None:
            watch_runs(client, runs_display(client, as_json=as_json))
            return DONE
        return _watch_one(client, run_id, url, as_json=as_json)


def _watch_one(client: Client, run_id: str, url: str | None, *, as_json: bool) -> int:
    client.get(run_id)  # a server that does not answer now may never have: not an outage
    view = view_of(client, run_id, patience=inf)
    with explain_watch_interrupt(run_id, url):
        display = JsonDisplay(view.trace) if as_json else display_on(sys.stdout, view)
        ended = watch_run(view, display)
    return code_of(ended) if as_json else print_result(ended, url=url)
