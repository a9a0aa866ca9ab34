"""`leasehold deliveries` and `deliver`: announcements of runs, sent or still due."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import click

from leasehold.api.deliveries import DeliveriesResponse, DeliveryReport
from leasehold.cli.delivery_line import delivery_detail, delivery_state
from leasehold.cli.invocation import command_line, url_words
from leasehold.cli.opened import client_at, on_this_store
from leasehold.cli.options import json_option, limit_option, reason_option, run_argument, url_option
from leasehold.cli.stdout import Row, print_json, print_line, print_table
from leasehold.cli.streams import note
from leasehold.client.client import Client
from leasehold.domain.delivery import DeliveryState
from leasehold.presentation.formatting import StyledText, ago, stamp
from leasehold.services.read_deliveries import DeliveryFilter
from leasehold.services.request_bounds import DEFAULT_PAGE_ITEMS

_COLUMNS: Final = ("RUN", "CHANNEL", "EVENT", "STATE", "TRIES", "UNKNOWN", "CREATED", "DETAIL")
_STATES: Final = click.Choice([state.value for state in DeliveryState], case_sensitive=False)


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--channel", metavar="NAME", help="Only those to this channel.")
@click.option("--state", type=_STATES, help="Only those in this state.")
@limit_option(default=DEFAULT_PAGE_ITEMS)
@click.option("--page-token", metavar="TOKEN", help="Continue after an earlier answer.")
@url_option
@json_option
def deliveries(
    *,
    run_id: str | None,
    channel: str | None,
    state: str | None,
    limit: int,
    page_token: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """List the announcements of all runs, or of RUN alone, newest first.

    \b
    Examples:
      leasehold deliveries --state given_up
      leasehold deliveries r-0123456789abcdef
    """  # noqa: D301
    if run_id is not None and page_token is not None:
        raise click.UsageError("--page-token is for the list of all runs; leave out one of them.")
    wanted = DeliveryFilter(channel, None if state is None else DeliveryState(state))
    with client_at(url) as client:
        page = _page(client, run_id, wanted, limit, page_token)
        now = client.connection.now()
    if as_json:
        print_json({"deliveries": page.deliveries, "nextPageToken": page.next_page_token})
    elif page.deliveries:
        _print(page.deliveries, now)
    else:
        _note_none(run_id, url)
    if page.next_page_token is not None and not as_json:
        note(f"there are more: --page-token {page.next_page_token}")


def _page(
    client: Client, run_id: str | None, wanted: DeliveryFilter, limit: int, page_token: str | None
) -> DeliveriesResponse:
    channel, state = wanted.channel, wanted.state
    if run_id is None:
        return client.list_deliveries(
            channel=channel, state=state, limit=limit, page_token=page_token
        )
    found = [
        one
        for one in client.deliveries(run_id)
        if channel in (None, one.channel) and state in (None, one.state)
    ]
    return DeliveriesResponse(deliveries=found[:limit], next_page_token=None)


def _note_none(run_id: str | None, url: str | None) -> None:
    if run_id is not None:
        note(f"no deliveries of run {run_id}")
    else:
        note("no deliveries" if url is not None else on_this_store("no deliveries"))


def _print(deliveries: Sequence[DeliveryReport], now: datetime) -> None:
    print_table(_COLUMNS, (_row(one, now) for one in deliveries))


def _row(one: DeliveryReport, now: datetime) -> Row:
    return (
        one.run_id,
        one.channel,
        one.event,
        delivery_state(one),
        str(one.tries),
        str(one.unknown),
        StyledText(stamp(one.created_at), short_form=ago(one.created_at, now)),
        delivery_detail(one, now),
    )


# `leasehold deliver`: send the last announcement of a run once more.


@click.command()
@run_argument
@click.option("--channel", required=True, metavar="NAME", help="A channel of the catalog.")
@reason_option
@url_option
@json_option
def deliver(*, run_id: str, channel: str, reason: str, url: str | None, as_json: bool) -> None:
    """Send the last announcement of RUN to a channel once more.

    If it is being sent now, it is not sent a second time.

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
