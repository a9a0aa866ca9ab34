"""`leasehold batch`: one operation on many runs."""

from __future__ import annotations

from typing import Any, Final

import click

from leasehold.bootstrap import delivers_tasks
from leasehold.console.actor import actor, actor_header
from leasehold.console.answers import answer_json, answer_line, answer_table
from leasehold.console.opening import to_change
from leasehold.console.runs_api import RunsApi
from leasehold.console.who_runs_it import tell_who_runs_them
from leasehold.domain.lifecycle import Operation
from leasehold.services import batch as service
from leasehold.services.operate import OperationRequest
from leasehold.services.read_runs import RunFilter

#: A thousand runs, each with a commit of its own.
_TIMEOUT_S: Final = 900.0

#: What leaves a run to a worker.
_MOVING: Final = frozenset(
    {Operation.RESUME, Operation.RETRY, Operation.APPROVE, Operation.RECREATE}
)


def batch(
    action: str,
    *,
    wanted: RunFilter,
    limit: int,
    step: str | None,
    from_step: str | None,
    dry_run: bool,
    reason: str,
    url: str | None,
    as_json: bool,
) -> None:
    """Do it, or with `dry_run` find out what would be done; answer with the counts."""
    if wanted == RunFilter():
        raise click.UsageError(
            "no runs are named; allowed: at least one of --status, --dead-lettered, --pipeline, "
            "--label (--pipeline NAME alone means all runs of a pipeline)."
        )
    asked = OperationRequest(Operation(action), actor(), reason, from_step=from_step, step=step)
    if url is not None:
        done = _there(RunsApi(url), asked, wanted, limit=limit, dry_run=dry_run)
        is_left = False
    else:
        with to_change() as bundle:
            done = service.batch(bundle.engine, asked, wanted, limit=limit, dry_run=dry_run)
        is_left = (
            done.changed > 0 and asked.operation in _MOVING and not delivers_tasks(bundle.engine)
        )
    if as_json:
        refused = [{"runId": run_id, "code": code} for run_id, code in done.refused]
        answer_json({"matched": done.matched, "changed": done.changed, "refused": refused})
        return
    _tell(done, dry_run=dry_run)
    if is_left:
        tell_who_runs_them()


def _there(
    api: RunsApi, asked: OperationRequest, wanted: RunFilter, *, limit: int, dry_run: bool
) -> service.BatchResult:
    fitting = {
        "status": wanted.status,
        "pipeline": wanted.pipeline,
        "deadLettered": wanted.dead_lettered,
        "label": wanted.label,
    }
    body: dict[str, Any] = {
        "action": asked.operation.value,
        "filter": {name: value for name, value in fitting.items() if value is not None},
        "limit": limit,
        "dryRun": dry_run,
        "reason": asked.reason,
    }
    if asked.from_step is not None:
        body["fromStep"] = asked.from_step
    if asked.step is not None:
        body["step"] = asked.step
    _, answer = api.call("/runs:batch", body, headers=actor_header(), timeout=_TIMEOUT_S)
    return api.read(
        lambda found: service.BatchResult(
            found["matched"],
            found["changed"],
            [(run["runId"], run["code"]) for run in found["refused"]],
        ),
        answer,
    )


def _tell(done: service.BatchResult, *, dry_run: bool) -> None:
    refused = len(done.refused)
    changed = f"{done.matched - refused} would be changed" if dry_run else f"{done.changed} changed"
    answer_line(f"{done.matched} matched, {changed}, {refused} refused")
    if done.refused:
        answer_table(("RUN", "REFUSED"), done.refused)
