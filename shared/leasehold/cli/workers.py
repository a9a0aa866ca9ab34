"""`leasehold workers`: who works on the store now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import click

from leasehold.api.upkeep import WorkerReport
from leasehold.cli.bundle import on_this_store
from leasehold.cli.opened_client import client_at
from leasehold.cli.options import json_option, url_option
from leasehold.cli.stderr import note
from leasehold.cli.stdout import Row, print_json, print_table
from leasehold.presentation.formatting import StyledText, ago, stamp

_COLUMNS: Final = ("PROCESS", "KIND", "STARTED", "SEEN", "CODE", "STEPS")
_CODE: Final = 8  # characters of a hash, enough to tell two from each other


@click.command()
@url_option
@json_option
def workers(*, url: str | None, as_json: bool) -> None:
    """List who works on the store: processes that noted within three minutes that they live.

    Deployed functions are among them only while they work.

    \b
    Example:
      leasehold workers
    """  # noqa: D301
    with client_at(url) as client:
        answer = client.workers()
    if as_json:
        print_json(answer)
    elif answer.workers:
        _print(answer.workers)
    else:
        note("no workers" if url is not None else on_this_store("no workers"))


def _print(found: Sequence[WorkerReport]) -> None:
    now = max(one.seen_at for one in found)
    print_table(_COLUMNS, (_row(one, now) for one in found))


def _row(one: WorkerReport, now: datetime) -> Row:
    return (
        one.process,
        one.kind,
        StyledText(stamp(one.started_at), short_form=ago(one.started_at, now)),
        StyledText(stamp(one.seen_at), short_form=ago(one.seen_at, now)),
        one.code_hash[:_CODE],
        ", ".join(one.steps),
    )
