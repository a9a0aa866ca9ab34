"""The commands that change runs: the six operations, on one run each, and `batch`."""

# ruff: noqa: PLC0415 - see leasehold.cli

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from leasehold.cli.input_options import GivenInput, InputType, LabelType, as_mapping
from leasehold.cli.options import (
    filter_options,
    from_step_option,
    generation_option,
    json_option,
    limit_option,
    reason_option,
    run_argument,
    step_option,
    url_option,
)

_MAX_BATCH: Final = 1000
_RECREATE: Final = "recreate"

#: What each operation does that takes no words of its own, and an example of its reason.
_PLAIN: Final[Mapping[str, tuple[str, str]]] = {
    "pause": (
        "Let RUN go no further: a running attempt may end, nothing more is dispatched.",
        "the provider is down",
    ),
    "resume": ("Let RUN go on after a pause, at once.", "the provider is back"),
    "cancel": (
        "End RUN for good; a running attempt is stopped, and what it answers is discarded.",
        "wrong folder",
    ),
    "retry": (
        "Run the step of RUN again at once, after an error or a gate.",
        "the prompt is corrected",
    ),
    "approve": (
        "Hand off the output of RUN that a gate or an approval holds back.",
        "looked at it",
    ),
}


def _operation(name: str, says: str, example: str) -> click.Command:
    @click.command(
        name,
        help=f"{says}\n\n\b\nExample:\n  leasehold {name} r-0123456789abcdef --reason '{example}'",
        short_help=says,
    )
    @run_argument
    @generation_option
    @step_option
    @reason_option
    @url_option
    @json_option
    def command(run_id: str, **words: Any) -> int:
        from leasehold.cli.operations import operate

        return operate(run_id, name, **words)

    return command


@click.command()
@run_argument
@from_step_option
@click.option(
    "--input",
    "given",
    type=InputType(),
    metavar="JSON|@FILE",
    help="Another input: JSON, @FILE, or @- for stdin.  [default: as before]",
)
@click.option(
    "--label",
    "labels",
    type=LabelType(),
    multiple=True,
    metavar="KEY:VALUE",
    help="In place of the labels of RUN; may be given up to 16 times.",
)
@generation_option
@step_option
@reason_option
@url_option
@json_option
def recreate(
    run_id: str, given: GivenInput | None, labels: tuple[tuple[str, str], ...], **words: Any
) -> int:
    """Make a new run of RUN, which is completed, cancelled or given up.

    \b
    Examples:
      leasehold recreate r-0123456789abcdef --from-step report
      leasehold recreate r-0123456789abcdef --input '{"folder": "docs"}'
    """  # noqa: D301
    from leasehold.cli.operations import operate

    if given is not None:
        words["input"] = given.value
    return operate(run_id, _RECREATE, labels=as_mapping(labels) if labels else None, **words)


OPERATIONS: Final = (*(_operation(name, *row) for name, row in _PLAIN.items()), recreate)


@click.command()
@click.argument("action", type=click.Choice([command.name or "" for command in OPERATIONS]))
@limit_option(most=_MAX_BATCH)
@filter_options
@step_option
@from_step_option
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@reason_option
@url_option
@json_option
def batch(action: str, **words: Any) -> None:
    """Do ACTION to the runs that match, newest first.

    Runs whose state forbids it are listed and left alone. A batch that was cut off can simply be
    repeated, by the same person with the same reason: nothing is done twice, and no run passes a
    second gate.

    \b
    Examples:
      leasehold batch recreate --dead-lettered --pipeline review --limit 50 --dry-run
      leasehold batch approve --status BLOCKED --step synthesis --limit 20
    """  # noqa: D301
    from leasehold.cli.batch import batch as answer

    if words["from_step"] is not None and action != _RECREATE:
        raise click.UsageError(f"--from-step is for {_RECREATE}, not for {action}.")
    answer(action, **words)
