"""`leasehold watch`: runs as they move, one or all."""

from __future__ import annotations

import sys
from math import inf

import click

from leasehold.cli.exit_codes import DONE, end_on_sigterm
from leasehold.cli.options import json_option, url_option
from leasehold.cli.run_displays import JsonDisplay
from leasehold.cli.run_watcher import (
    code_of,
    display_on,
    explain_watch_interrupt,
    print_result,
    runs_display,
    view_of,
    watch_run,
    watch_runs,
)
from leasehold.cli.stderr import warn
from leasehold.client.client import Client


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@url_option
@json_option
def watch(*, run_id: str | None, url: str | None, as_json: bool) -> int:
    """Show RUN as it moves until it is over, or without RUN all live runs until Ctrl-C.

    On a terminal it is drawn in place; elsewhere each change is a line, and with --json a line of
    JSON. Where the server or the store does not answer for a while, it waits.

    Of one run it exits with 0 when that is completed, 1 when it ended otherwise or waits for a
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
    client.get(run_id)  # who does not answer now may never have: that is no outage
    view = view_of(client, run_id, patience=inf)
    with explain_watch_interrupt(run_id, url):
        display = JsonDisplay(view.trace) if as_json else display_on(sys.stdout, view)
        ended = watch_run(view, display)
    return code_of(ended) if as_json else print_result(ended, url=url)
