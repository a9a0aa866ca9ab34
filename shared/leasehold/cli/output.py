"""`leasehold output`: what a run or a step of it gave, as JSON."""

from __future__ import annotations

import click

from leasehold.cli.opened_client import client_at
from leasehold.cli.options import json_option, run_argument, url_option
from leasehold.cli.stdout import print_json


@click.command()
@run_argument
@click.argument("step", required=False)
@url_option
@json_option
def output(*, run_id: str, step: str | None, url: str | None, as_json: bool) -> None:  # noqa: ARG001 - it is JSON anyway
    """Print the output of RUN once it is completed, or that of its STEP.

    The answer is JSON, whole, however large it is. An output that a gate holds back is its step's.

    \b
    Examples:
      leasehold output r-0123456789abcdef
      leasehold output r-0123456789abcdef extraction > extraction.json
    """  # noqa: D301
    with client_at(url) as client:
        value = client.output(run_id, step)
    print_json(value)
