"""`leasehold audit`: runs without an owner or an alarm, and their repair."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from leasehold.api.upkeep import AuditedRun, AuditResponse
from leasehold.cli.exit_codes import DONE, FOUND
from leasehold.cli.invocation import command_line
from leasehold.cli.opened_client import client_at
from leasehold.cli.options import json_option, url_option
from leasehold.cli.stderr import note
from leasehold.cli.stdout import Row, print_json, print_table
from leasehold.domain.printable import counted
from leasehold.presentation.formatting import StyledText

_COLUMNS: Final = ("RUN", "BREACH", "REPAIR")


@click.command()
@click.option("--repair", is_flag=True, help="Repair what is found.")
@url_option
@json_option
def audit(*, repair: bool, url: str | None, as_json: bool) -> int:
    """Look for runs that no one and nothing would move.

    Exits with 0 when there are none, or all are repaired; 1 when something is left.

    \b
    Example:
      leasehold audit --repair
    """  # noqa: D301
    with client_at(url) as client:
        answer = client.audit(repair=repair)
        missing = client.connection.missing_server()
    if as_json:
        print_json(answer)
    else:
        _print_audit(answer, repair=repair)
    if missing is not None:
        note(f"but {missing}")
    if answer.waiting_for_code:
        runs = counted(answer.waiting_for_code, "run waits", "runs wait")
        note(
            f"but {runs} for the code to be put right:", command_line("runs", "--status", "BLOCKED")
        )
    if answer.artifacts_problem is not None:
        note(f"but runs may wait for files: {answer.artifacts_problem}")
    return FOUND if answer.left else DONE


def _print_audit(answer: AuditResponse, *, repair: bool) -> None:
    count = len(answer.found)
    if not count:
        note("every run is in order")
        return
    print_table(_COLUMNS, [row for one in answer.found for row in _rows(one, repair=repair)])
    repaired = f"{count - answer.left} repaired, " if repair else ""
    hint = "" if repair else f"; --repair repairs {'it' if count == 1 else 'them'}"
    note(f"{counted(count, 'run is', 'runs are')} not in order: {repaired}{answer.left} left{hint}")


def _rows(one: AuditedRun, *, repair: bool) -> Iterator[Row]:
    """Yield a row for each breach: what its repair came to, or would do."""
    for breach in one.breaches:
        result = StyledText(breach.repair)
        if repair and one.outcome is None:
            result = StyledText("not repaired", "red")
        elif repair and one.outcome is not None:
            result = StyledText(f"{one.outcome}: {breach.repair}", "green")
        yield one.run_id, StyledText(f"{breach.code}: {breach.finding}", "yellow"), result
