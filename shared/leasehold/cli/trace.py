"""`leasehold trace`: all that happened to a run, oldest first."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import click

from leasehold.cli.opened import client_at
from leasehold.cli.options import json_option, run_argument, url_option
from leasehold.cli.stdout import Row, print_block, print_json, print_table
from leasehold.domain.trace import TraceEvent
from leasehold.presentation.event_line import event_name, event_reason, has_trials, headed_failures
from leasehold.presentation.formatting import StyledText, duration, stamp

_COLUMNS: Final = ("AT", "AFTER", "EVENT", "STEP", "ATTEMPT", "WHY")
_COLUMNS_WITH_TRIALS: Final = ("AT", "AFTER", "EVENT", "STEP", "TRIAL", "ATTEMPT", "WHY")


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
        trials = has_trials(events)
        columns = _COLUMNS_WITH_TRIALS if trials else _COLUMNS
        print_table(columns, (_row(event, events[0].at, trials=trials) for event in events))
        for heading, lines in headed_failures(events):
            print_block(heading, lines)


def _row(event: TraceEvent, start: datetime, *, trials: bool) -> Row:
    at = stamp(event.at)
    trial = "" if event.trial is None else str(event.trial)
    return (
        StyledText(at, "dim", short_form=at.partition("T")[2]),
        f"+{duration(event.at - start)}",
        event_name(event),
        event.step or "",
        *([trial] if trials else []),
        "" if event.attempt is None else str(event.attempt),
        event_reason(event),
    )
