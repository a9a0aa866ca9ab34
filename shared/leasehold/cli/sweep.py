"""`leasehold sweep`: attend to what is due, once."""

from __future__ import annotations

import click

from leasehold.api.sweep import SweepResponse
from leasehold.bootstrap import delivers_tasks
from leasehold.cli.bundle import bundle_to_change
from leasehold.cli.delivery_hint import hint_for_runs
from leasehold.cli.options import json_option, url_option
from leasehold.cli.stderr import note
from leasehold.cli.stdout import print_facts, print_json
from leasehold.client.client import Client
from leasehold.services.sweep import sweep as sweep_runs


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
    is_left = False
    if url is not None:
        done = Client(url).sweep()
    else:
        with bundle_to_change(announces_by_hand=True) as bundle:
            done = SweepResponse.model_validate(sweep_runs(bundle.engine).counts())
            bundle.deliver_due()
        is_left = not delivers_tasks(bundle.engine)
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
