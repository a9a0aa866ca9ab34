"""`leasehold sweep`: attend to what is due, once."""

from __future__ import annotations

import click

from leasehold.cli.delivery_hint import hint_for_runs
from leasehold.cli.opened_client import client_at
from leasehold.cli.options import json_option, url_option
from leasehold.cli.stderr import note
from leasehold.cli.stdout import print_facts, print_json


@click.command()
@url_option
@json_option
def sweep(*, url: str | None, as_json: bool) -> None:
    """Handle the runs whose alarm is due, once.

    Where functions are deployed, Scheduler does this each minute.

    \b
    Example:
      leasehold sweep --json
    """  # noqa: D301
    with client_at(url) as client:
        done = client.sweep()
        is_left = not client.connection.delivers()
    if as_json:
        print_json(done)
        return
    reasons = ", ".join(f"{count} {reason}" for reason, count in done.by_reason.items())
    given_up = f"{done.dead_lettered} ({reasons})" if reasons else str(done.dead_lettered)
    print_facts(
        [
            ("recovered", str(done.recovered)),
            ("redispatched", str(done.redispatched)),
            ("still queued", str(done.still_queued)),
            ("dead-lettered", given_up),
            ("reannounced", str(done.reannounced)),
            ("archived", str(done.archived)),
            ("unattended", str(done.unattended)),
            ("purged", str(done.purged)),
            ("documents read", str(done.documents_read)),
        ]
    )
    if done.more:
        note("more runs are due: sweep again")
    if is_left and done.recovered + done.redispatched + done.still_queued:
        hint_for_runs()
