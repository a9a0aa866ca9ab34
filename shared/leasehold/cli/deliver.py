"""`leasehold deliver`: have a channel told of a run once more."""

from __future__ import annotations

import click

from leasehold.cli.delivery_line import delivery_detail, delivery_state
from leasehold.cli.invocation import command_line, url_words
from leasehold.cli.opened_client import client_at
from leasehold.cli.options import json_option, reason_option, run_argument, url_option
from leasehold.cli.stderr import note
from leasehold.cli.stdout import print_json, print_line
from leasehold.domain.delivery import DeliveryState


@click.command()
@run_argument
@click.option("--channel", required=True, metavar="NAME", help="A channel of the catalog.")
@reason_option
@url_option
@json_option
def deliver(*, run_id: str, channel: str, reason: str, url: str | None, as_json: bool) -> None:
    """Have a channel told of RUN once more, as it was announced last.

    A delivery that is on its way already is left as it is, and not doubled.

    \b
    Example:
      leasehold deliver r-0123456789abcdef --channel slack --reason "the token is renewed"
    """  # noqa: D301
    with client_at(url) as client:
        delivery = client.deliver(run_id, channel, reason=reason)
        is_sent_here = client.connection.announces()
        now = client.connection.now()
    if as_json:
        print_json(delivery)
        return
    state = delivery_state(delivery)
    words = f"run {run_id} channel {delivery.channel} {state.on_screen}"
    detail = delivery_detail(delivery, now)
    print_line(state._replace(text=f"{words}: {detail}" if detail else words, short_form=None))
    if delivery.state is DeliveryState.DUE and not is_sent_here:
        line = "It is due. Unless a server of this store runs, and sends it, do so with:"
        note(line, command_line("dev"))
    note("look at it with:", command_line("deliveries", run_id, *url_words(url)))
