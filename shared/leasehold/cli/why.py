"""`leasehold why`: what a run waits for, in one sentence, and what a person can do about it."""

from __future__ import annotations

import click

from leasehold.api.upkeep import WhyResponse
from leasehold.cli.invocation import command_line, command_to_run, url_words
from leasehold.cli.opened import client_at
from leasehold.cli.options import json_option, run_argument, url_option
from leasehold.cli.stdout import print_block, print_json, print_line
from leasehold.cli.streams import note
from leasehold.domain.delivery import DeliveryState
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.domain.printable import one_line
from leasehold.domain.status import RunStatus
from leasehold.presentation.event_line import failure_of
from leasehold.worker.stopping.holder import host_name, is_gone


@click.command()
@run_argument
@url_option
@json_option
def why(*, run_id: str, url: str | None, as_json: bool) -> None:
    """Say in one sentence what a run waits for, until when, and what happens then.

    \b
    Example:
      leasehold why r-0123456789abcdef
    """  # noqa: D301
    with client_at(url) as client:
        answer, run = client.why(run_id), client.get(run_id)
    hint = command_to_run(run) if url is None and _is_holder_gone(run) else None
    if as_json:
        print_json(answer)
        return
    for line in (answer.words, *answer.owed):
        print_line(one_line(line))
    _print_error(run)
    if hint is not None:
        note("this takes it up at once:", hint)
    for operation in answer.operations:
        note(f"{operation} it with:", _decision(run, answer, operation, url))
    for channel in _given_up(answer):
        words = ("deliver", run_id, "--channel", channel, *url_words(url))
        note(f"send it to {channel} once more with:", command_line(*words))


def _given_up(answer: WhyResponse) -> list[str]:
    """Return the channels whose announcement was given up, unless it is requested again."""
    return [one.channel for one in answer.deliveries if one.state is DeliveryState.GIVEN_UP]


def _is_holder_gone(run: Manifest) -> bool:
    """Return whether the process that had the run is known to work no more."""
    return run.position.lease is not None and is_gone(run.position.lease.holder, host=host_name())


def _print_error(run: Manifest) -> None:
    """Print what the last attempt failed with, where the run waits for the next one."""
    error = run.error if run.status is RunStatus.ERROR else None
    if error is not None and (lines := failure_of(error).lines):
        print_block("its error:", lines)


def _decision(run: Manifest, answer: WhyResponse, operation: Operation, url: str | None) -> str:
    """Return the command of a decision, which is bound to the run as it is now."""
    words = [operation.value, run.run_id]
    # a run that a person holds keeps its generation when it is let go, and may be held again;
    # one that heals by itself has another one after each look
    if operation is not Operation.RESUME:
        heals = run.block is not None and run.block.heals
        bound = ("--step", run.position.step) if heals else ("--generation", str(answer.generation))
        words += bound
    elif used_up := run.used_up(run.position.dispatch.budget):
        words += f"--budget {used_up.limit.more_for(used_up.spend)}".split()
    return command_line(*words, *url_words(url))
