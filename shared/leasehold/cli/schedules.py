"""`leasehold schedules`: what the clock starts, and what became of its times."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import click

from leasehold.api.schedules import ScheduledRuns, ScheduleResponse, SchedulesResponse
from leasehold.cli.invocation import hint_for_runs
from leasehold.cli.opened import client_at
from leasehold.cli.options import MomentType, json_option, url_option
from leasehold.cli.stdout import Row, print_json, print_line, print_table
from leasehold.cli.streams import note, warn
from leasehold.domain.timestamps import moment_text
from leasehold.presentation.formatting import StyledText

_COLUMNS: Final = ("SCHEDULE", "STATE", "PIPELINE", "CRON", "ZONE", "NEXT", "LAST")
_LINES: Final = ("TIME", "FATE", "RUN", "REASON")
_STYLES: Final = {"active": "green", "paused": "yellow", "removed": "dim"}


@click.command()
@click.argument("name", required=False)
@click.option("--pause", is_flag=True, help="Skip its times until it is resumed; give --why.")
@click.option("--resume", is_flag=True, help="Start its runs again, from its next time on.")
@click.option("--trigger", is_flag=True, help="Start a run now, even if another one is live.")
@click.option(
    "--id",
    "order_id",
    metavar="ID",
    help="With --trigger: the same id starts one run.  [default: a new one]",
)
@click.option(
    "--backfill",
    nargs=2,
    type=MomentType(),
    metavar="FROM TO",
    help="Start the runs of past times in this span; a time that has a run gets no second one.",
)
@click.option("--why", metavar="WORDS", help="Why it is paused; it is shown with the schedule.")
@url_option
@json_option
def schedules(
    *,
    name: str | None,
    pause: bool,
    resume: bool,
    trigger: bool,
    order_id: str | None,
    backfill: tuple[datetime, datetime] | None,
    why: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """List the schedules, or show the last times of NAME and their results.

    \b
    Examples:
      leasehold schedules
      leasehold schedules nightly --pause --why "the month is closed"
      leasehold schedules nightly --resume
      leasehold schedules nightly --trigger
      leasehold schedules nightly --backfill 2026-11-20 2026-11-22
    """  # noqa: D301
    wanted = [pause, resume, trigger, backfill is not None]
    if sum(wanted) > 1 or (name is None and any(wanted)):
        raise click.UsageError(
            "Give NAME and at most one of --pause, --resume, --trigger, --backfill."
        )
    if pause is not (why is not None):
        raise click.UsageError('--pause takes --why WORDS, as --why "the month is closed".')
    if order_id is not None and not trigger:
        raise click.UsageError("--id is of --trigger alone.")
    with client_at(url) as client:
        found: SchedulesResponse | ScheduleResponse | ScheduledRuns
        if name is None:
            found = SchedulesResponse(schedules=client.schedules())
        elif trigger:
            found = client.trigger_schedule(name, id=order_id)
        elif backfill is not None:
            found = client.backfill_schedule(name, *backfill)
        elif pause and why is not None:
            found = client.pause_schedule(name, why=why)
        else:
            found = client.resume_schedule(name) if resume else client.schedule(name)
        is_started = isinstance(found, ScheduledRuns) and not client.connection.delivers()
    _print(found, as_json=as_json)
    if is_started and not as_json:
        hint_for_runs()


def _print(found: SchedulesResponse | ScheduleResponse | ScheduledRuns, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
    elif isinstance(found, ScheduledRuns):
        for run_id in found.run_ids:
            print_line(StyledText(f"run {run_id}", "cyan"))
    elif isinstance(found, ScheduleResponse):
        _print_one(found)
    elif found.schedules:
        print_table(_COLUMNS, map(_row, found.schedules))
        _warn_of(found.schedules)
    else:
        note("the catalog has no SCHEDULES")


def _print_one(one: ScheduleResponse) -> None:
    print_table(_COLUMNS, [_row(one)])
    if one.lines:
        click.echo()
        print_table(
            _LINES,
            [
                (
                    moment_text(line.time),
                    f"{line.fate} ({line.count} times)" if line.count > 1 else str(line.fate),
                    line.run_id or "",
                    line.reason,
                )
                for line in one.lines
            ],
        )
    if one.state == "paused":
        note(f"paused by {one.paused_by}: {one.why}")
    _warn_of([one])


def _row(one: ScheduleResponse) -> Row:
    return (
        one.name,
        StyledText(one.state, _STYLES[one.state]),
        one.pipeline or "",
        one.cron or "",
        one.tz or "",
        "" if one.next_at is None else moment_text(one.next_at),
        one.last_run_id or "",
    )


def _warn_of(found: list[ScheduleResponse]) -> None:
    for one in found:
        if one.problem:
            warn(f"schedule {one.name} cannot start its run: {one.problem}")
