"""`leasehold audit`: runs without an owner or an alarm, and their repair."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from leasehold.cli.bundle import bundle_to_change
from leasehold.cli.exit_codes import DONE, FOUND
from leasehold.cli.options import json_option
from leasehold.cli.stderr import note
from leasehold.cli.stdout import Row, print_json, print_table
from leasehold.presentation.formatting import StyledText
from leasehold.registry.pipelines import NO_CATALOG
from leasehold.services.audit import AuditResult
from leasehold.services.audit import audit as audit_runs

_COLUMNS: Final = ("RUN", "BREACH", "REPAIR")


@click.command()
@click.option("--repair", is_flag=True, help="Repair what is found.")
@json_option
def audit(*, repair: bool, as_json: bool) -> int:
    """Look for runs that nobody and nothing would move.

    Exits with 0 when there are none, or all are repaired; 1 when something is left.

    \b
    Example:
      leasehold audit --repair
    """  # noqa: D301
    with bundle_to_change(catalog=None if repair else NO_CATALOG) as bundle:
        results = list(audit_runs(bundle.engine, repair=repair))
    left = sum(one.outcome is None for one in results)
    if as_json:
        print_json({"found": [_as_json(one) for one in results], "left": left})
    elif results:
        print_table(_COLUMNS, [row for one in results for row in _rows(one, repair=repair)])
        repaired = f"{len(results) - left} repaired, " if repair else ""
        hint = "" if repair else "; --repair repairs them"
        note(f"{len(results)} runs are not in order: {repaired}{left} left{hint}")
    else:
        note("every run is in order")
    return FOUND if left else DONE


def _as_json(one: AuditResult) -> dict[str, Any]:
    breaches = [
        {"code": breach.code, "finding": breach.finding, "repair": breach.repair}
        for breach in one.breaches
    ]
    outcome = None if one.outcome is None else one.outcome.word
    return {"runId": one.run_id, "breaches": breaches, "outcome": outcome}


def _rows(one: AuditResult, *, repair: bool) -> Iterator[Row]:
    """Yield a row for each breach: what its repair came to, or would do."""
    for breach in one.breaches:
        result = StyledText(breach.repair)
        if repair and one.outcome is None:
            result = StyledText("not repaired", "red")
        elif repair and one.outcome is not None:
            result = StyledText(f"{one.outcome.word}: {breach.repair}", "green")
        yield one.run_id, StyledText(f"{breach.code}: {breach.finding}", "yellow"), result
