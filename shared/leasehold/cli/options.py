"""What several commands take."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from leasehold.cli.input_options import LabelType
from leasehold.domain.status import RunStatus

F = TypeVar("F", bound=Callable[..., Any])

_STATUSES: Final = click.Choice([status.value for status in RunStatus], case_sensitive=False)

run_argument = click.argument("run_id", metavar="RUN")
url_option = click.option(
    "--url", metavar="URL", help="A server, in place of the store of the environment."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Answer with JSON on stdout.")
reason_option = click.option(
    "--reason", default="", metavar="WORDS", help="Why, for the run's trace."
)
generation_option = click.option(
    "--generation",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only while the run is at this generation, as `show` and `why` show it.",
)
step_option = click.option("--step", metavar="STEP", help="Only while the run is at this step.")
from_step_option = click.option(
    "--from-step", metavar="STEP", help="Begin here; earlier outputs are kept.  [default: first]"
)


def _only_one(
    _context: click.Context, param: click.Parameter, given: tuple[tuple[str, str], ...]
) -> tuple[str, str] | None:
    """Refuse a filter that is given twice: the last one alone would hold, and find too many."""
    if len(given) > 1:
        said = ", ".join(":".join(label) for label in given)
        raise click.BadParameter(f"{said}; allowed: one label.", param=param)
    return given[0] if given else None


_FILTERS: Final = (
    click.option("--status", type=_STATUSES, help="Only runs in this status."),
    click.option("--dead-lettered", is_flag=True, help="Only runs that were given up."),
    click.option("--pipeline", metavar="NAME", help="Only runs of this pipeline."),
    click.option(
        "--label",
        type=LabelType(),
        metavar="KEY:VALUE",
        multiple=True,
        callback=_only_one,
        help="Only runs with this label.",
    ),
)


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what runs are found by, given to the command as `wanted`; all of it must hold."""

    @functools.wraps(command)
    def with_filter(
        *,
        status: str | None,
        dead_lettered: bool,
        pipeline: str | None,
        label: tuple[str, str] | None,
        **words: Any,
    ) -> Any:
        from leasehold.services.read_runs import RunFilter  # noqa: PLC0415 - see leasehold.cli

        wanted = RunFilter(
            status=status,
            pipeline=pipeline,
            dead_lettered=True if dead_lettered else None,
            label=None if label is None else ":".join(label),
        )
        return command(wanted=wanted, **words)

    found: Callable[..., Any] = with_filter
    for option in reversed(_FILTERS):
        found = option(found)
    return found


def limit_option(*, most: int, default: int | None = None) -> Callable[[F], F]:
    """Return the option of how many runs at most; it must be given where it has no default."""
    given: dict[str, Any] = {"required": True}  # a default of None would count as given
    if default is not None:
        given = {"default": default, "show_default": True}
    return click.option(
        "--limit", type=click.IntRange(1, most), metavar="N", help="How many at most.", **given
    )
