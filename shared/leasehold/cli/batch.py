"""`leasehold batch`: one operation on many runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Final, cast

import click

from leasehold.api.operations import BatchResponse
from leasehold.cli.invocation import hint_for_runs
from leasehold.cli.opened import client_at
from leasehold.cli.options import (
    anew_option,
    filter_options,
    from_step_option,
    id_prefix_option,
    json_option,
    keep_partial_option,
    limit_option,
    note_option,
    reason_option,
    step_option,
    trouble_option,
    url_option,
)
from leasehold.cli.stdout import print_json, print_line, print_table
from leasehold.client.arguments import Filters
from leasehold.domain.lifecycle import Operation
from leasehold.domain.trouble import Trouble
from leasehold.presentation.run_state import kept_line
from leasehold.services.batch import BatchResult
from leasehold.services.read_runs import RunFilter

#: What leaves a run to a worker.
_MOVING: Final = frozenset(
    {Operation.RESUME, Operation.RETRY, Operation.APPROVE, Operation.RECREATE}
)


@click.command()
@click.argument("action", type=click.Choice([operation.value for operation in Operation]))
@limit_option()
@filter_options
@id_prefix_option
@trouble_option
@step_option
@from_step_option
@keep_partial_option
@anew_option
@note_option
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@reason_option
@url_option
@json_option
def batch(
    *,
    action: str,
    wanted: RunFilter,
    id_prefix: str | None,
    trouble: Trouble | None,
    limit: int,
    dry_run: bool,
    url: str | None,
    as_json: bool,
    **words: Any,
) -> None:
    """Apply ACTION to the runs that match, newest first.

    Runs whose state forbids it are listed and left alone. An interrupted batch can be repeated, by
    the same person with the same reason: nothing is done twice, and no run passes a second gate.

    \b
    Examples:
      leasehold batch recreate --dead-lettered --pipeline summary --limit 50 --dry-run
      leasehold batch approve --status BLOCKED --step synthesis --limit 20
    """  # noqa: D301
    operation = Operation(action)
    wanted = replace(wanted, id_prefix=id_prefix, trouble=trouble)
    _check(operation, words, wanted)
    with client_at(url) as client:
        fits = cast("Filters", asdict(wanted))
        done = client.batch(operation, fits, limit=limit, dry_run=dry_run, **words)
        is_left = operation in _MOVING and not client.connection.delivers()
    if as_json:
        print_json(BatchResponse.of(done))
        return
    _print_result(done, dry_run=dry_run)
    if is_left and done.changed:
        hint_for_runs()


def _check(operation: Operation, words: Mapping[str, Any], wanted: RunFilter) -> None:
    for option, is_given, operations in (
        ("--from-step", words["from_step"] is not None, (Operation.RECREATE,)),
        ("--keep-partial", words["keep_partial"], (Operation.RECREATE,)),
        ("--anew", words["anew"], (Operation.RECREATE, Operation.RETRY)),
        ("--note", words["note"] is not None, (Operation.RETRY,)),
    ):
        if is_given and operation not in operations:
            of = " and ".join(operations)
            raise click.UsageError(f"{option} is for {of}, not for {operation}.")
    if wanted == RunFilter():
        raise click.UsageError(
            "no runs are named; allowed: at least one of --status, --paused, --cancelled, "
            "--dead-lettered, --dead-letter-reason, --pipeline, --label, --since, --until, "
            "--id-prefix, --trouble "
            "(--pipeline NAME alone means all runs of a pipeline)."
        )


def _print_result(done: BatchResult, *, dry_run: bool) -> None:
    refused = len(done.refused)
    changed = f"{done.matched - refused} would be changed" if dry_run else f"{done.changed} changed"
    print_line(f"{done.matched} matched, {changed}, {refused} refused")
    if done.kept is not None:
        print_line(kept_line(done.kept, many=True))
    if done.refused:
        print_table(("RUN", "REFUSED"), done.refused)
