"""`leasehold signal`: send a run what it waits for."""

from __future__ import annotations

import click

from leasehold.api.signals import SignalResponse
from leasehold.cli.invocation import command_line, hint_for_run
from leasehold.cli.opened import client_at
from leasehold.cli.options import GivenInput, InputType, run_argument, url_option
from leasehold.cli.stdout import print_line
from leasehold.cli.streams import note
from leasehold.domain.status import Outcome
from leasehold.presentation.run_state import state_line


@click.command()
@run_argument
@click.argument("name", metavar="NAME")
@click.option(
    "--json",
    "given",
    type=InputType(),
    required=True,
    metavar="JSON|@FILE",
    help="The value: JSON, @FILE, or @- for stdin.",
)
@click.option(
    "--id",
    "signal_id",
    metavar="ID",
    help="The id of the signal: the same id counts once.  [default: a new one]",
)
@url_option
def signal(
    *, run_id: str, name: str, given: GivenInput, signal_id: str | None, url: str | None
) -> None:
    """Send RUN the signal NAME, which it waits for, or will wait for.

    One that comes before its wait is kept in the run.

    \b
    Examples:
      leasehold signal r-0123456789abcdef approval --json '{"approved": true}'
      leasehold signal r-0123456789abcdef approval --json @approval.json --id ticket-4711
    """  # noqa: D301
    with client_at(url) as client:
        sent = client.signal(run_id, name, given.value, id=signal_id)
        left = None if client.connection.delivers() else client.get(run_id)
    print_line(state_line(sent.run))
    note(_words(sent))
    if url is not None:
        note("look at it with:", command_line("show", run_id, "--url", url))
    elif left is not None:
        hint_for_run(left)


def _words(sent: SignalResponse) -> str:
    if sent.outcome == Outcome.SIGNAL_KNOWN:
        return f"The signal {sent.name} of the id {sent.id} came before, and counts once."
    if sent.outcome == Outcome.SIGNAL_KEPT:
        return f"The signal {sent.name} is kept until the run waits for it."
    return f"The run goes on with the signal {sent.name}."
