"""Watching all live runs, until somebody ends that."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from leasehold.cli.run_watcher import ServerLook, note_outage
from leasehold.cli.runs_displays import LinesOfRuns, LiveRuns, print_run_line
from leasehold.cli.stdout import print_json_line
from leasehold.cli.streams import can_draw
from leasehold.client.client import Client
from leasehold.client.patience import retry_unreachable
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus
from leasehold.domain.summary import Summary

if TYPE_CHECKING:
    from leasehold.cli.live_display import LiveTable

#: So many runs are shown.
MOST_RUNS: Final = 100
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
        room = MOST_RUNS + 1 - len(runs)  # one more tells whether there are more
        page = client.page(limit=room, status=status, dead_lettered=given_up)
        runs |= {run.run_id: run for run in page.runs if run.run_id not in runs}
        has_more |= page.next_page_token is not None or len(runs) > MOST_RUNS
        if len(runs) > MOST_RUNS:
            break
    return LiveRuns(list(runs.values())[:MOST_RUNS], has_more)


def runs_display(client: Client, *, as_json: bool) -> LinesOfRuns | LiveTable:
    """Return the display for stdout: a table on a terminal, else a line a change."""
    if not as_json and can_draw(sys.stdout):
        from leasehold.cli.live_display import LiveTable  # noqa: PLC0415 - rich

        return LiveTable(client.connection.now)
    printed = print_json_line if as_json else partial(print_run_line, client.connection.now)
    return LinesOfRuns(partial(_read, client), printed)


def _read(client: Client, run_id: str) -> Manifest:
    return retry_unreachable(partial(client.get, run_id), seconds=inf, report=note_outage)()
