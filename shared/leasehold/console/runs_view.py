"""`leasehold runs`: many runs, a line each."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from leasehold.console.answers import Row, answer_json, answer_table
from leasehold.console.opening import to_read
from leasehold.console.says import say
from leasehold.console.words import SKULL, Styled, ago, stamp, state_of
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus
from leasehold.domain.summary import progress_of, summary_of
from leasehold.services.read_runs import RunFilter, RunPage, list_runs

_COLUMNS: Final = ("RUN", "PIPELINE", "STATUS", "STEP", "DONE", "CREATED")


def runs(wanted: RunFilter, *, limit: int, page_token: str | None, as_json: bool) -> None:
    """Answer with the runs that fit, newest first."""
    with to_read() as bundle:
        page = list_runs(bundle.engine, wanted, limit=limit, page_token=page_token)
        now = bundle.engine.clock.now()
    if as_json:
        summaries = [summary_of(run) for run in page.runs]
        answer_json({"runs": summaries, "nextPageToken": page.next_page_token})
    else:
        _tell(page, now)


def _tell(page: RunPage, now: datetime) -> None:
    if not page.runs:
        say("no runs")
        return
    answer_table(_COLUMNS, (_row(run, now) for run in page.runs))
    if page.next_page_token is not None:
        say(f"there are more: --page-token {page.next_page_token}")


def _row(run: Manifest, now: datetime) -> Row:
    progress = progress_of(run)
    return (
        run.run_id,
        run.pipeline,
        _state_and_why(run),
        run.current_step,
        f"{progress.steps_done}/{progress.steps}",
        Styled(stamp(run.created_at), instead=ago(run.created_at, now)),
    )


def _state_and_why(run: Manifest) -> Styled:
    """Return where a run stands, and why it does not move where it does not."""
    state = state_of(run)
    if run.dead_letter_reason is not None:
        reason = run.dead_letter_reason.value
        return state._replace(text=f"{state.text} {reason}", instead=f"{SKULL} {reason}")
    if run.block is not None:
        return state._replace(text=f"{state.text} {run.block.code}")
    if run.status is RunStatus.ERROR and run.error is not None:
        return state._replace(text=f"{state.text} {run.error.code}")
    return state
