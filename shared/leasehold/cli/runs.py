"""`leasehold runs`: many runs, a line each."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from leasehold.cli.formatting import SKULL, Styled, ago, stamp, state_of
from leasehold.cli.run_readers import Listed, source_at
from leasehold.cli.stderr import say
from leasehold.cli.stdout import Row, answer_json, answer_table
from leasehold.domain.status import RunStatus
from leasehold.domain.summary import Summary
from leasehold.services.read_runs import RunFilter

_COLUMNS: Final = ("RUN", "PIPELINE", "STATUS", "STEP", "DONE", "CREATED", "GENERATION")


def runs(
    wanted: RunFilter, *, limit: int, page_token: str | None, url: str | None, as_json: bool
) -> None:
    """Answer with the runs that fit, newest first."""
    with source_at(url) as source:
        page = source.page(wanted, limit, page_token)
        now = source.now()
    if as_json:
        answer_json({"runs": page.runs, "nextPageToken": page.next_page_token})
    else:
        _tell(page, now)


def _tell(page: Listed, now: datetime) -> None:
    if not page.runs:
        say("no runs")
        return
    answer_table(_COLUMNS, (_row(run, now) for run in page.runs))
    if page.next_page_token is not None:
        say(f"there are more: --page-token {page.next_page_token}")


def _row(run: Summary, now: datetime) -> Row:
    progress = run.progress
    return (
        run.run_id,
        run.pipeline,
        _state_and_why(run),
        run.current_step,
        f"{progress.steps_done}/{progress.steps}",
        Styled(stamp(run.created_at), instead=ago(run.created_at, now)),
        str(run.generation),
    )


def _state_and_why(run: Summary) -> Styled:
    """Return where a run stands, and why it does not move where it does not."""
    state = state_of(run)
    if run.dead_letter_reason is not None:
        reason = run.dead_letter_reason.value
        return state._replace(text=f"{state.text} {reason}", instead=f"{SKULL} {reason}")
    if run.block_code is not None:
        return state._replace(text=f"{state.text} {run.block_code}")
    if run.status is RunStatus.ERROR and run.error_code is not None:
        return state._replace(text=f"{state.text} {run.error_code}")
    return state
