"""`leasehold runs`: many runs, a line each."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import datetime
from typing import Final

import click

from leasehold.api.runs import RunsResponse
from leasehold.cli.opened import client_at, on_this_store
from leasehold.cli.options import (
    at_step_option,
    filter_options,
    id_prefix_option,
    json_option,
    limit_option,
    trouble_option,
    url_option,
)
from leasehold.cli.stdout import Row, print_json, print_table
from leasehold.cli.streams import note
from leasehold.client.client import Client
from leasehold.domain.summary import Summary
from leasehold.domain.trouble import Trouble
from leasehold.presentation.formatting import StyledText, ago, stamp
from leasehold.presentation.run_state import state_and_reason
from leasehold.services.read_runs import RunFilter
from leasehold.services.request_bounds import DEFAULT_PAGE_ITEMS

_COLUMNS: Final = ("RUN", "PIPELINE", "STATUS", "STEP", "DONE", "CREATED", "GENERATION")


@click.command()
@filter_options
@at_step_option
@id_prefix_option
@trouble_option
@limit_option(default=DEFAULT_PAGE_ITEMS)
@click.option("--page-token", metavar="TOKEN", help="Continue after an earlier answer.")
@url_option
@json_option
def runs(
    *,
    wanted: RunFilter,
    at_step: str | None,
    id_prefix: str | None,
    trouble: Trouble | None,
    limit: int,
    page_token: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """List runs, newest first; several filters must all match.

    \b
    Examples:
      leasehold runs --dead-lettered --pipeline summary
      leasehold runs --paused --since 3d
      leasehold runs --trouble silent
    """  # noqa: D301
    wanted = replace(wanted, step=at_step, id_prefix=id_prefix, trouble=trouble)
    with client_at(url) as client:
        page = _whole_page(client, wanted, limit, page_token)
        now = client.connection.now()
    if as_json:
        print_json({"runs": page.runs, "nextPageToken": page.next_page_token})
    else:
        _print_page(page, now, url)


def _whole_page(
    client: Client, wanted: RunFilter, limit: int, page_token: str | None
) -> RunsResponse:
    """Return a page with as many runs as are wanted; an answer ends early where few runs fit."""
    page = client.page(limit=limit, page_token=page_token, **asdict(wanted))
    runs, token = page.runs, page.next_page_token
    while token is not None and len(runs) < limit:
        page = client.page(limit=limit - len(runs), page_token=token, **asdict(wanted))
        runs, token = [*runs, *page.runs], page.next_page_token
    return RunsResponse(runs=runs, next_page_token=token)


def _print_page(page: RunsResponse, now: datetime, url: str | None) -> None:
    if not page.runs:
        note("no runs" if url is not None else on_this_store("no runs"))
        return
    rows = [_row(run, now) for run in page.runs]
    if any(run.spend for run in page.runs):
        spent = ["" if run.spend is None else run.spend.words for run in page.runs]
        rows = [(*row, words) for row, words in zip(rows, spent, strict=True)]
        print_table((*_COLUMNS, "SPENT"), rows)
    else:
        print_table(_COLUMNS, rows)
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
