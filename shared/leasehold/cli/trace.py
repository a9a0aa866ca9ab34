"""`leasehold trace` and `stack`: all that happened to a run, and what its attempt does now."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import click

from leasehold.cli.exit_codes import NOT_COMPLETED
from leasehold.cli.invocation import command_line, url_words
from leasehold.cli.opened import client_at
from leasehold.cli.options import json_option, run_argument, url_option
from leasehold.cli.stdout import Row, print_block, print_json, print_line, print_lines, print_table
from leasehold.cli.streams import note
from leasehold.domain.trace import TraceEvent
from leasehold.presentation.event_line import (
    event_name,
    event_reason,
    has_trials,
    headed_failures,
    traced_failure,
)
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


@click.command()
@run_argument
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long to wait for the answer.  [default: a heartbeat of the step, and 10 s more]",
)
@url_option
@json_option
def stack(*, run_id: str, timeout: float | None, url: str | None, as_json: bool) -> None:
    """Show the call stack of the attempt of RUN that runs now; the attempt goes on.

    Its worker answers with its next heartbeat, mostly within 10 s. The trace keeps the answer.

    \b
    Example:
      leasehold stack r-0123456789abcdef
    """  # noqa: D301
    missing, event = "The attempt ended before it was asked; how, says:", None
    with client_at(url) as client:
        try:
            event = client.stack(run_id, timeout)
        except TimeoutError as error:
            missing = f"{str(error)[:1].upper()}{str(error)[1:]}. Look there with:"
    if as_json:
        print_json({"event": event})
    if event is None:
        note(missing, command_line("trace", run_id, *url_words(url)))
        click.get_current_context().exit(NOT_COMPLETED)
    if not as_json:
        print_line(f"step {event.step}, attempt {event.attempt}: {event.detail}")
        failure = traced_failure(event)
        if failure is not None and failure.lines:
            print_lines(failure.lines)


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
