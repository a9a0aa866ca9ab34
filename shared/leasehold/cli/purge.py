"""`leasehold purge`: delete runs that ended long ago, with all there is of them."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, Final

import click

from leasehold.bootstrap import system_clock
from leasehold.cli.exit_codes import DONE, NOT_COMPLETED, explain_interrupt
from leasehold.cli.invocation import command_line
from leasehold.cli.opened import bundle_to_purge
from leasehold.cli.options import (
    MomentType,
    at_step_option,
    filter_options,
    json_option,
)
from leasehold.cli.stdout import print_json, print_line, print_table
from leasehold.cli.streams import note
from leasehold.domain.printable import counted
from leasehold.domain.status import RunStatus
from leasehold.domain.timestamps import moment_text
from leasehold.presentation.filter_words import filter_words
from leasehold.services import purge as service
from leasehold.services.read_runs import RunFilter

#: In these a run is live, unless it was cancelled.
_LIVE: Final = (RunStatus.PENDING, RunStatus.IN_PROGRESS, RunStatus.BLOCKED)


@click.command()
@click.option(
    "--older-than",
    "ended_before",
    required=True,
    type=MomentType(),
    metavar="AGE|TIME",
    help="Only runs that ended before then.",
)
@filter_options
@at_step_option
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask, also on a terminal.")
@json_option
def purge(
    *,
    ended_before: datetime,
    wanted: RunFilter,
    at_step: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Delete runs that ended long ago, with their traces, values and files.

    Live runs stay, whatever their age, and so does a run from which one that stays was recreated.
    Repeat a purge that was interrupted. With LEASEHOLD_RETENTION_DAYS, the sweep purges by itself.

    \b
    Examples:
      leasehold purge --older-than 30d --dry-run
      leasehold purge --older-than 30d --pipeline summary --yes
    """  # noqa: D301
    wanted = replace(wanted, step=at_step)
    _check(ended_before, wanted)
    again = _command(ended_before, wanted)
    with bundle_to_purge() as bundle:
        if not (dry_run or yes) and sys.stdin.isatty():
            seen = service.purge(bundle.engine, wanted, ended_before=ended_before, dry_run=True)
            if not _is_confirmed(seen, ended_before):
                note("nothing was deleted")
                return NOT_COMPLETED
        with explain_interrupt("what was deleted is gone, the rest stays; go on with:", again):
            result = service.purge(
                bundle.engine, wanted, ended_before=ended_before, dry_run=dry_run
            )
    if as_json:
        print_json(_as_json(result, ended_before, dry_run=dry_run))
        return DONE
    _print_result(result, dry_run=dry_run)
    if dry_run and result.matched > len(result.kept):
        note("this deletes no other run than these:", again)
    return DONE


def _check(ended_before: datetime, wanted: RunFilter) -> None:
    """Refuse what could only be a slip: nothing would fit, or another run than was meant."""
    if ended_before > system_clock().now():
        raise click.UsageError("--older-than is a time to come; allowed: one that is past.")
    if wanted.paused or (wanted.status in _LIVE and not wanted.cancelled):
        name = "--paused" if wanted.paused else f"--status {wanted.status}"
        raise click.UsageError(
            f"{name} means live runs, and those are never deleted; allowed: --status COMPLETED, "
            "--cancelled, --dead-lettered."
        )


def _command(ended_before: datetime, wanted: RunFilter) -> str:
    """Return the command that deletes these runs, whenever it is given."""
    return command_line(
        "purge", "--older-than", moment_text(ended_before), *filter_words(asdict(wanted))
    )


def _is_confirmed(seen: service.PurgeResult, ended_before: datetime) -> bool:
    count = seen.matched - len(seen.kept)
    if not count:
        return True
    question = (
        f"Delete {counted(count, 'run')} that ended before {moment_text(ended_before)}, "
        "with all data?"
    )
    try:
        return click.confirm(question, err=True)
    except click.Abort:  # Ctrl-C, or Ctrl-D
        return False


def _print_result(result: service.PurgeResult, *, dry_run: bool) -> None:
    kept = len(result.kept)
    deleted = f"{result.matched - kept} would be deleted" if dry_run else f"{result.purged} deleted"
    print_line(f"{result.matched} matched, {deleted}, {kept} kept")
    if result.kept:
        print_table(("RUN", "KEPT"), result.kept)


def _as_json(
    result: service.PurgeResult, ended_before: datetime, *, dry_run: bool
) -> dict[str, Any]:
    return {
        "endedBefore": ended_before,
        "matched": result.matched,
        "purged": result.purged,
        "kept": [{"runId": run_id, "code": code} for run_id, code in result.kept],
        "dryRun": dry_run,
    }
