"""`leasehold sweep`: attend to what is due, once."""

from __future__ import annotations

import click

from leasehold.bootstrap import delivers_tasks
from leasehold.cli.bundle import bundle_to_change
from leasehold.cli.delivery_hint import hint_for_runs
from leasehold.cli.options import json_option
from leasehold.cli.stderr import note
from leasehold.cli.stdout import print_facts, print_json
from leasehold.services.sweep import sweep as sweep_runs


@click.command()
@json_option
def sweep(*, as_json: bool) -> None:
    """Handle the runs whose alarm is due, once.

    Where functions are deployed, Scheduler does this each minute.

    \b
    Example:
      leasehold sweep --json
    """  # noqa: D301
    with bundle_to_change() as bundle:
        done = sweep_runs(bundle.engine)
    if as_json:
        print_json(done.counts())
        return
    reasons = ", ".join(f"{count} {reason}" for reason, count in done.by_reason.items())
    given_up = f"{done.dead_lettered} ({reasons})" if reasons else str(done.dead_lettered)
    print_facts(
        [
            ("recovered", str(done.recovered)),
            ("redispatched", str(done.redispatched)),
            ("still queued", str(done.still_queued)),
            ("dead-lettered", given_up),
            ("unattended", str(done.unattended)),
            ("purged", str(done.purged)),
            ("documents read", str(done.documents_read)),
        ]
    )
    if done.more:
        note("more runs are due: sweep again")
    if done.recovered + done.redispatched + done.still_queued and not delivers_tasks(bundle.engine):
        hint_for_runs()
