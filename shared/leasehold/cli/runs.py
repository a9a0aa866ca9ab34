"""`leasehold runs`: many runs, a line each."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Final

import click

from leasehold.api.runs import RunsResponse
from leasehold.cli.opened_client import client_at
from leasehold.cli.options import filter_options, json_option, limit_option, url_option
from leasehold.cli.stderr import note
from leasehold.cli.stdout import Row, print_json, print_table
from leasehold.domain.summary import Summary
from leasehold.presentation.formatting import StyledText, ago, stamp
from leasehold.presentation.run_state import state_and_reason
from leasehold.services.limits import DEFAULT_PAGE
from leasehold.services.read_runs import RunFilter

_COLUMNS: Final = ("RUN", "PIPELINE", "STATUS", "STEP", "DONE", "CREATED", "GENERATION")


@click.command()
@filter_options
@limit_option(default=DEFAULT_PAGE)
@click.option("--page-token", metavar="TOKEN", help="Continue behind an earlier answer.")
@url_option
@json_option
def runs(
    *, wanted: RunFilter, limit: int, page_token: str | None, url: str | None, as_json: bool
) -> None:
    """List runs, newest first; of several filters, all must match.

    \b
    Example:
      leasehold runs --dead-lettered --pipeline review
    """  # noqa: D301
    with client_at(url) as client:
        page = client.page(limit=limit, page_token=page_token, **asdict(wanted))
        now = client.source.now()
    if as_json:
        print_json({"runs": page.runs, "nextPageToken": page.next_page_token})
    else:
        _print_page(page, now)


def _print_page(page: RunsResponse, now: datetime) -> None:
    if not page.runs:
        note("no runs")
        return
    print_table(_COLUMNS, (_row(run, now) for run in page.runs))
    if page.next_page_token is not None:
        note(f"there are more: --page-token {page.next_page_token}")


def _row(run: Summary, now: datetime) -> Row:
    progress = run.progress
    return (
        run.run_id,
        run.pipeline,
        state_and_reason(run),
        run.current_step,
        f"{progress.steps_done}/{progress.steps}",
        StyledText(stamp(run.created_at), short_form=ago(run.created_at, now)),
        str(run.generation),
    )
