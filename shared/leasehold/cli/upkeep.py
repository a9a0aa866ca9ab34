"""The commands that look after the store: `audit` and `sweep`."""

# ruff: noqa: PLC0415 - see leasehold.cli

from __future__ import annotations

import click

from leasehold.cli.options import json_option


@click.command()
@click.option("--repair", is_flag=True, help="Mend what is found.")
@json_option
def audit(repair: bool, as_json: bool) -> int:
    """Look for runs that nobody and nothing would move.

    Exits with 0 when there are none, or all are repaired; 1 when something is left.

    \b
    Example:
      leasehold audit --repair
    """  # noqa: D301
    from leasehold.cli.audit import audit as answer

    return answer(repair=repair, as_json=as_json)


@click.command()
@json_option
def sweep(as_json: bool) -> None:
    """Attend to the runs whose alarm is due, once.

    Where functions are deployed, Scheduler does this each minute.

    \b
    Example:
      leasehold sweep --json
    """  # noqa: D301
    from leasehold.cli.sweep import sweep as answer

    answer(as_json=as_json)
