"""`leasehold trace`: all that happened to a run, oldest first."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import click

from leasehold.cli.opened_client import client_at
from leasehold.cli.options import json_option, run_argument, url_option
from leasehold.cli.stdout import Row, print_block, print_json, print_table
from leasehold.domain.trace import TraceEvent
from leasehold.presentation.event_line import event_name, event_reason
from leasehold.presentation.failure_lines import headed_tracebacks
from leasehold.presentation.formatting import StyledText, duration, stamp

_COLUMNS: Final = ("AT", "AFTER", "EVENT", "STEP", "ATTEMPT", "WHY")


@click.command()
@run_argument
@url_option
@json_option
def trace(*, run_id: str, url: str | None, as_json: bool) -> None:
    """Show all that happened to a run, oldest first.

    \b
    Example:
      leasehold trace r-0123456789abcdef --json
    """  # noqa: D301
    with client_at(url) as client:
        events = client.trace(run_id)
    if as_json:
        print_json({"events": events})
    else:
        print_table(_COLUMNS, (_row(event, events[0].at) for event in events))
        for heading, lines in headed_tracebacks(events):
            print_block(heading, lines)


def _row(event: TraceEvent, start: datetime) -> Row:
    at = stamp(event.at)
    return (
        StyledText(at, "dim", short_form=at.partition("T")[2]),
        f"+{duration(event.at - start)}",
        event_name(event),
        event.step or "",
        "" if event.attempt is None else str(event.attempt),
        event_reason(event),
    )
