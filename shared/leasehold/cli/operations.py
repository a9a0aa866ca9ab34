"""`leasehold pause`, `resume`, `cancel`, `retry`, `approve`, `recreate`: change one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from leasehold.api.operations import ContinuedRun
from leasehold.cli.commands import COMMANDS
from leasehold.cli.invocation import command_line, hint_for_run
from leasehold.cli.opened import client_at
from leasehold.cli.options import (
    GivenInput,
    anew_option,
    budget_option,
    from_step_option,
    generation_option,
    input_option,
    json_option,
    keep_partial_option,
    labels_option,
    note_option,
    output_option,
    reason_option,
    run_argument,
    step_option,
    url_option,
)
from leasehold.cli.stdout import print_json, print_line
from leasehold.cli.streams import note
from leasehold.domain.lifecycle import Operation
from leasehold.domain.summary import Summary
from leasehold.presentation.run_state import kept_line, state_line


def _operation(
    operation: Operation, example: str, *own: Callable[[Any], Any], further: str = ""
) -> click.Command:
    """Return the command of an operation.

    Args:
        operation: what it does.
        example: a reason to do it.
        own: its own options.
        further: an example of them.
    """
    name = operation.value
    words = [f"--reason '{example}'", *([further] if further else [])]
    lines = "\n  ".join(f"leasehold {name} r-0123456789abcdef {each}" for each in words)
    title = "Examples" if further else "Example"

    @click.command(name, help=f"{COMMANDS[name].summary}\n\n\b\n{title}:\n  {lines}")
    @run_argument
    @generation_option
    @step_option
    @reason_option
    @url_option
    @json_option
    def command(*, run_id: str, url: str | None, as_json: bool, **words: Any) -> None:
        if (edited := words.pop("edited", None)) is not None:
            words["output"] = edited.value
        _operate(operation, run_id, words, url=url, as_json=as_json)

    for option in own:
        command = option(command)
    return command


pause = _operation(Operation.PAUSE, "the provider is down")
resume = _operation(
    Operation.RESUME, "the provider is back", budget_option, further="--budget usd=10"
)
cancel = _operation(Operation.CANCEL, "wrong folder")
retry = _operation(
    Operation.RETRY,
    "the prompt is corrected",
    note_option,
    anew_option,
    further="--note 'make it shorter'",
)
approve = _operation(
    Operation.APPROVE, "looked at it", output_option, further="--output @edited.json"
)


@click.command()
@run_argument
@from_step_option
@keep_partial_option
@anew_option
@input_option("Another input: JSON, @FILE, or @- for stdin.  [default: as before]")
@labels_option("In place of the labels of RUN; may be given up to 16 times.")
@generation_option
@step_option
@reason_option
@url_option
@json_option
def recreate(
    *,
    run_id: str,
    given: GivenInput | None,
    labels: dict[str, str],
    url: str | None,
    as_json: bool,
    **words: Any,
) -> None:
    """Make a new run of RUN, which is completed, cancelled or given up.

    It goes on at the step where RUN stopped, with all that the step has kept; that of a completed
    run, or one with another input, begins at the first step.

    \b
    Examples:
      leasehold recreate r-0123456789abcdef --from-step report
      leasehold recreate r-0123456789abcdef --input '{"folder": "docs"}'
    """  # noqa: D301
    if given is not None:
        words["input"] = given.value
    words["labels"] = labels or None
    _operate(Operation.RECREATE, run_id, words, url=url, as_json=as_json)


def _operate(
    operation: Operation, run_id: str, words: dict[str, Any], *, url: str | None, as_json: bool
) -> None:
    """Do it; answer with the run afterwards, after a recreate with the new one."""
    with client_at(url) as client:
        run: Summary = getattr(client, operation.value)(run_id, **words)
        left = None if client.connection.delivers() else client.get(run)
    _print_run(run_id, run, as_json=as_json)
    if as_json:
        return
    if url is not None:
        note("look at it with:", command_line("show", run_id, "--url", url))
    elif left is not None:
        hint_for_run(left)


def _print_run(run_id: str, run: Summary, *, as_json: bool) -> None:
    if as_json:
        print_json(run)
        return
    print_line(state_line(run))
    if run.run_id != run_id:
        note(f"It is made of run {run_id}, and begins at step {run.current_step}.")
    if isinstance(run, ContinuedRun) and run.kept is not None:
        note(kept_line(run.kept))
