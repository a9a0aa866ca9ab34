"""`leasehold calls`: the results of calls made once that a run has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click
import pydantic_core

from leasehold.api.results import CallReport
from leasehold.cli.opened_client import client_at
from leasehold.cli.options import json_option, run_argument, url_option
from leasehold.cli.stderr import note
from leasehold.cli.stdout import Row, print_json, print_table
from leasehold.presentation.formatting import one_line

_COLUMNS: Final = ("STEP", "TRIAL", "KEY", "TYPE", "RESULT")
_LONGEST: Final = 80


@click.command()
@run_argument
@url_option
@json_option
def calls(*, run_id: str, url: str | None, as_json: bool) -> None:
    """List the results of calls made once that RUN has: no attempt makes these again.

    \b
    Example:
      leasehold calls r-0123456789abcdef
    """  # noqa: D301
    with client_at(url) as client:
        found = client.calls(run_id)
    if as_json:
        print_json({"calls": found})
    elif found:
        print_table(_COLUMNS, _rows(found))
    else:
        note(f"no results of calls in run {run_id}")


def _rows(found: list[CallReport]) -> Iterator[Row]:
    for one in found:
        result = "a file" if one.is_large else _short(one)
        yield one.step, str(one.trial), one.key, one.type, result


def _short(one: CallReport) -> str:
    return one_line(pydantic_core.to_json(one.result).decode(), _LONGEST)
