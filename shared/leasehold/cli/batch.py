"""`leasehold batch`: one operation on many runs."""

from __future__ import annotations

from typing import Any, Final

import click

from leasehold.api.batch import BatchResponse
from leasehold.bootstrap import delivers_tasks
from leasehold.cli.bundle import bundle_to_change
from leasehold.cli.delivery_hint import hint_for_runs
from leasehold.cli.invocation import actor
from leasehold.cli.options import (
    filter_options,
    from_step_option,
    json_option,
    limit_option,
    reason_option,
    step_option,
    url_option,
)
from leasehold.cli.stdout import print_json, print_line, print_table
from leasehold.client.server_source import ServerSource
from leasehold.domain.lifecycle import Operation
from leasehold.services import batch as service
from leasehold.services.operate import OperationRequest
from leasehold.services.read_runs import RunFilter

#: What leaves a run to a worker.
_MOVING: Final = frozenset(
    {Operation.RESUME, Operation.RETRY, Operation.APPROVE, Operation.RECREATE}
)


@click.command()
@click.argument("action", type=click.Choice([operation.value for operation in Operation]))
@limit_option()
@filter_options
@step_option
@from_step_option
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@reason_option
@url_option
@json_option
def batch(
    *,
    action: str,
    wanted: RunFilter,
    limit: int,
    dry_run: bool,
    url: str | None,
    as_json: bool,
    **words: Any,
) -> None:
    """Apply ACTION to the runs that match, newest first.

    Runs whose state forbids it are listed and left alone. A batch that was cut off can simply be
    repeated, by the same person with the same reason: nothing is done twice, and no run passes a
    second gate.

    \b
    Examples:
      leasehold batch recreate --dead-lettered --pipeline review --limit 50 --dry-run
      leasehold batch approve --status BLOCKED --step synthesis --limit 20
    """  # noqa: D301
    request = OperationRequest(Operation(action), actor(), **words)
    _check(request, wanted)
    is_left = False
    if url is not None:
        done = ServerSource(url).batch(request, wanted, limit=limit, dry_run=dry_run)
    else:
        with bundle_to_change() as bundle:
            done = service.batch(bundle.engine, request, wanted, limit=limit, dry_run=dry_run)
        is_left = request.operation in _MOVING and not delivers_tasks(bundle.engine)
    if as_json:
        print_json(BatchResponse.of(done))
        return
    _print_result(done, dry_run=dry_run)
    if is_left and done.changed:
        hint_for_runs()


def _check(request: OperationRequest, wanted: RunFilter) -> None:
    if request.from_step is not None and request.operation is not Operation.RECREATE:
        raise click.UsageError(f"--from-step is for recreate, not for {request.operation}.")
    if wanted == RunFilter():
        raise click.UsageError(
            "no runs are named; allowed: at least one of --status, --paused, --cancelled, "
            "--dead-lettered, --pipeline, --label, --since, --until "
            "(--pipeline NAME alone means all runs of a pipeline)."
        )


def _print_result(done: service.BatchResult, *, dry_run: bool) -> None:
    refused = len(done.refused)
    changed = f"{done.matched - refused} would be changed" if dry_run else f"{done.changed} changed"
    print_line(f"{done.matched} matched, {changed}, {refused} refused")
    if done.refused:
        print_table(("RUN", "REFUSED"), done.refused)
