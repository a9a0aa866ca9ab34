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
    all_steps_option,
    anew_option,
    budget_option,
    failed_items_option,
    from_step_option,
    generation_option,
    input_option,
    json_option,
    keep_partial_option,
    labels_option,
    note_option,
    optional_run_argument,
    output_option,
    reason_option,
    run_argument,
    step_option,
    step_or_pause_option,
    url_option,
)
from leasehold.cli.stdout import print_json, print_line
from leasehold.cli.streams import note
from leasehold.domain.lifecycle import Operation
from leasehold.domain.printable import counted
from leasehold.domain.step_pause import resume_command
from leasehold.domain.summary import Summary
from leasehold.presentation.formatting import StyledText
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


@click.command()
@optional_run_argument
@generation_option
@step_or_pause_option
@all_steps_option
@click.option("--why", metavar="WORDS", help="Why the step is paused; it is shown with the pause.")
@reason_option
@url_option
@json_option
def pause(
    *,
    run_id: str | None,
    all_steps: bool,
    why: str | None,
    url: str | None,
    as_json: bool,
    **words: Any,
) -> None:
    """Pause RUN: a running attempt may end, and no other one begins.

    Without RUN, pause a step in all runs, or with --all every step: after 10 s at most, no new
    attempt of it begins. Running attempts may end, and runs that come to the step are held.

    \b
    Examples:
      leasehold pause r-0123456789abcdef --reason 'the provider is down'
      leasehold pause --step charge --why 'the provider is down'
      leasehold pause --all --why 'the database is moved'
    """  # noqa: D301
    if run_id is None:
        _pause_steps(words, why, all_steps=all_steps, url=url, as_json=as_json)
        return
    if all_steps or why is not None:
        raise click.UsageError("--all and --why pause steps; of a RUN, give --reason.")
    _operate(Operation.PAUSE, run_id, words, url=url, as_json=as_json)


@click.command()
@optional_run_argument
@generation_option
@step_or_pause_option
@all_steps_option
@reason_option
@url_option
@json_option
@budget_option
def resume(
    *, run_id: str | None, all_steps: bool, url: str | None, as_json: bool, **words: Any
) -> None:
    """Continue RUN after a pause, at once.

    Without RUN, end the pause of a step, or with --all that of every step: the runs that it held go
    on at once. A step that was also paused by its name stays paused after --all.

    \b
    Examples:
      leasehold resume r-0123456789abcdef --reason 'the provider is back'
      leasehold resume r-0123456789abcdef --budget usd=10
      leasehold resume --step charge
      leasehold resume --all
    """  # noqa: D301
    if run_id is None:
        _resume_steps(words, all_steps=all_steps, url=url, as_json=as_json)
        return
    if all_steps:
        raise click.UsageError("--all resumes steps; allowed: RUN, or --all.")
    _operate(Operation.RESUME, run_id, words, url=url, as_json=as_json)


def _which(words: dict[str, Any], *, all_steps: bool) -> str | None:
    """Return the step type that is named, or None for all; refuse what is of runs alone."""
    step: str | None = words.pop("step")
    if (step is None) is not all_steps:
        raise click.UsageError("Give RUN, or --step STEP, or --all.")
    if of_runs := [name for name, value in words.items() if value]:
        raise click.UsageError(f"--{of_runs[0]} is for a RUN.")
    return step


def _pause_steps(
    words: dict[str, Any], why: str | None, *, all_steps: bool, url: str | None, as_json: bool
) -> None:
    step = _which(words, all_steps=all_steps)
    if why is None:
        raise click.UsageError(
            '--why is missing: say it to the next person, as --why "the provider is down".'
        )
    with client_at(url) as client:
        change = client.pause_steps(step, why=why)
    if as_json:
        print_json(change)
        return
    print_line(StyledText(f"{_named(step)} paused", "yellow"))
    note("no attempt begins, everywhere within 10 s; those that run end as they like")
    if (before := change.replaced) is not None:
        note(f"it replaces a pause by {before.set_by}: {before.why}")
    note("resume it with:", resume_command(step))


def _resume_steps(
    words: dict[str, Any], *, all_steps: bool, url: str | None, as_json: bool
) -> None:
    step = _which(words, all_steps=all_steps)
    with client_at(url) as client:
        resumed = client.resume_steps(step)
    if as_json:
        print_json(resumed)
        return
    if resumed.pause is None:
        note(f"{_named(step)} not paused")
    else:
        print_line(StyledText(f"{_named(step)} resumed", "green"))
    if resumed.released:
        note(f"{counted(resumed.released, 'run')} that it held: going on now")
    if resumed.more:
        note("further runs may be held still: the sweep releases them, or this command once more")


def _named(step: str | None) -> str:
    return "all steps are" if step is None else f"step {step} is"


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
@failed_items_option
@anew_option
@input_option("Another input: JSON, @FILE, or @- for stdin.  [default: as before]")
@labels_option("A label, in place of those of RUN; may be given up to 16 times.")
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
    """Make a new run from RUN, which is completed, cancelled or given up.

    The new run goes on at the step where RUN stopped, with its checkpoint and recorded results. If
    RUN is completed, or the input is another one, it begins at the first step.

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
