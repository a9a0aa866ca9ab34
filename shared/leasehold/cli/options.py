"""What several commands take."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import click

from leasehold.bootstrap import system_clock
from leasehold.client.http_calls import is_server
from leasehold.domain.json_text import unique
from leasehold.domain.spend import Budget
from leasehold.domain.status import DeadLetterReason, RunStatus
from leasehold.domain.timestamps import MOMENT, MOMENT_AHEAD, moment_of, span_of
from leasehold.domain.trouble import Trouble
from leasehold.errors import without_user
from leasehold.frozen import dataclass
from leasehold.services.read_runs import RunFilter
from leasehold.services.request_bounds import MAX_PAGE_ITEMS

F = TypeVar("F", bound=Callable[..., Any])

#: So many bytes are read of a file: four times what an output may have, room for blanks included.
_MAX_FILE_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class GivenInput:
    """The input of a run, and the words that gave it."""

    words: str
    value: Any


class InputType(click.ParamType[GivenInput]):
    """JSON text, or the name of a file that holds it."""

    name = "JSON|@FILE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> GivenInput:
        """Return the value that the JSON text stands for."""
        if isinstance(value, GivenInput):
            return value
        allowed = "allowed: JSON text, @FILE, or @- for stdin."
        try:
            return GivenInput(value, json.loads(_text(value), object_pairs_hook=unique))
        except OSError as error:
            self.fail(f"{value!r} cannot be read ({error.strerror}); {allowed}", param, ctx)
        except (ValueError, RecursionError) as error:
            self.fail(f"{value[:60]!r} is not JSON ({error}); {allowed}", param, ctx)


class BudgetType(click.ParamType[tuple[str, str]]):
    """A kind of budget and its amount: `usd=5`."""

    name = "KIND=AMOUNT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return the kind and the amount, which `_as_budget` reads."""
        if isinstance(value, tuple):
            return value
        kind, _, amount = value.partition("=")
        if kind not in ("usd", "tokens") or not amount:
            self.fail(f"{value[:60]!r}; allowed: usd=AMOUNT, tokens=NUMBER.", param, ctx)
        return kind, amount


def _as_budget(
    _: click.Context, param: click.Parameter, given: tuple[tuple[str, str], ...]
) -> Budget | None:
    """Return the budget of the kinds that are given."""
    if not given:
        return None
    kinds = dict(given)
    if len(kinds) < len(given):
        raise click.BadParameter("each kind once: usd=AMOUNT, tokens=NUMBER.", param=param)
    try:
        usd = float(kinds["usd"]) if "usd" in kinds else None
        tokens = int(kinds["tokens"]) if "tokens" in kinds else None
    except ValueError:
        words = ", ".join(map("=".join, given))[:60]
        problem = f"{words!r} has no number; allowed: usd=AMOUNT, tokens=NUMBER."
        raise click.BadParameter(problem, param=param) from None
    budget = Budget(usd=usd, tokens=tokens)
    for field, value, allowed in budget.problems():
        problem = f"{field.rpartition('.')[2]} is {value}; allowed: {allowed}."
        raise click.BadParameter(problem, param=param)
    return budget


class LabelType(click.ParamType[tuple[str, str]]):
    """A label: key and value."""

    name = "KEY:VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return key and value."""
        if isinstance(value, tuple):
            return value[0], value[1]
        key, colon, rest = value.partition(":")
        if not colon:
            self.fail(f"{value!r} has no colon; allowed: key:value.", param, ctx)
        return key, rest


class FileType(click.ParamType[tuple[str, Path]]):
    """A file of a run: its name there, and where it lies."""

    name = "NAME=@PATH"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Path]:
        """Return name and path."""
        if isinstance(value, tuple):
            return value[0], value[1]
        name, is_file, path = value.partition("=@")
        if not (name and is_file and path):
            self.fail(f"{value!r} is not allowed; allowed: name=@path.", param, ctx)
        return name, Path(path)


class MomentType(click.ParamType[datetime]):
    """A moment: how long ago, a time, or a date.

    Args:
        ahead: a span is from now on, in place of ago.
    """

    name = "AGE|TIME"

    def __init__(self, *, ahead: bool = False) -> None:
        self._ahead = ahead

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Return the moment."""
        if isinstance(value, datetime):
            return value
        try:
            return moment_of(value, system_clock().now(), ahead=self._ahead)
        except ValueError:
            allowed = MOMENT_AHEAD if self._ahead else MOMENT
            self.fail(f"{value[:60]!r}; allowed: {allowed}.", param, ctx)


class SpanType(click.ParamType[timedelta]):
    """How long something takes.

    Args:
        longest: no longer one is allowed.
        in_words: the same, as people write it.
    """

    name = "SPAN"

    def __init__(self, longest: timedelta, in_words: str) -> None:
        self._longest, self._in_words = longest, in_words

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Return the span."""
        if isinstance(value, timedelta):
            return value
        span = span_of(value)
        if span is None or not timedelta() < span <= self._longest:
            allowed = f"a span such as 90s, 15m or 2h, up to {self._in_words}"
            self.fail(f"{value[:60]!r}; allowed: {allowed}.", param, ctx)
        return span


def _text(words: str) -> str:
    if words == "@-":
        return _bounded(sys.stdin.buffer)
    if words.startswith("@"):
        with Path(words[1:]).open("rb") as file:
            return _bounded(file)
    return words


def _bounded(file: BinaryIO) -> str:
    """Return the text of a file, which may have no end."""
    content = file.read(_MAX_FILE_BYTES + 1)
    if len(content) > _MAX_FILE_BYTES:
        raise ValueError(f"it is larger than {_MAX_FILE_BYTES // 1024**2} MiB")
    return content.decode("utf-8-sig")


def _as_mapping(
    context: click.Context, param: click.Parameter, given: tuple[tuple[str, str], ...]
) -> dict[str, str]:
    """Return the pairs, of labels or of files, by name; one that is given twice is refused."""
    pairs: dict[str, str] = {}
    for name, value in given:
        if name in pairs:
            words = f"{param.opts[0]} gives {name!r} twice; allowed: each of them once."
            raise click.UsageError(words, context)
        pairs[name] = value
    return pairs


def _as_texts(
    _context: click.Context, _param: click.Parameter, given: tuple[tuple[str, str], ...]
) -> tuple[str, ...]:
    """Return the labels as runs have them."""
    return tuple(":".join(label) for label in given)


def _server(_context: click.Context, param: click.Parameter, given: str | None) -> str | None:
    """Refuse what is not the address of a server: any other would be read as that of a store."""
    if given is not None and not is_server(given):
        allowed = "http://HOST:PORT or https://HOST"
        shown = without_user(given)[:200]
        raise click.BadParameter(f"{shown!r}; allowed: {allowed}.", param=param)
    return given


run_argument = click.argument("run_id", metavar="RUN")
optional_run_argument = click.argument("run_id", metavar="[RUN]", required=False)
url_option = click.option(
    "--url",
    metavar="URL",
    callback=_server,
    help="Use this server, and not the store of the environment.",
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
step_or_pause_option = click.option(
    "--step",
    metavar="STEP",
    help="With RUN: only while it is at this step. Without: this step, in all runs.",
)
all_steps_option = click.option("--all", "all_steps", is_flag=True, help="All steps, in all runs.")
step_option = click.option("--step", metavar="STEP", help="Only while the run is at this step.")
from_step_option = click.option(
    "--from-step",
    metavar="STEP",
    help="Begin here; earlier outputs are kept.  [default: where it stopped]",
)
keep_partial_option = click.option(
    "--keep-partial", is_flag=True, help="Keep earlier outputs of status PARTIAL, too."
)
failed_items_option = click.option(
    "--failed-items",
    is_flag=True,
    help="Begin at the last place with items, and repeat only those that failed.",
)
anew_option = click.option(
    "--anew",
    is_flag=True,
    help="Drop what the step has kept: checkpoint, results of calls, trials.",
)
note_option = click.option(
    "--note", metavar="WORDS", help="Words for the handler, which reads them as ctx.note."
)
budget_option = click.option(
    "--budget",
    type=BudgetType(),
    multiple=True,
    callback=_as_budget,
    metavar="usd=AMOUNT|tokens=NUMBER",
    help="How much RUN may spend in all; once for each kind.",
)
output_option = click.option(
    "--output",
    "edited",
    type=InputType(),
    metavar="JSON|@FILE",
    help="Hand this off in place of the output that was kept.",
)


def input_option(help: str, default: str | None = None) -> Callable[[F], F]:  # noqa: A002 - click's
    """Return the option of a run's input, given to the command as `given`."""
    return click.option(
        "--input", "given", type=InputType(), default=default, metavar="JSON|@FILE", help=help
    )


def labels_option(help: str) -> Callable[[F], F]:  # noqa: A002 - click's word
    """Return the option of a run's labels, given to the command by key."""
    return click.option(
        "--label",
        "labels",
        type=LabelType(),
        multiple=True,
        callback=_as_mapping,
        metavar="KEY:VALUE",
        help=help,
    )


def files_option(help: str) -> Callable[[F], F]:  # noqa: A002 - click's word
    """Return the option of files that a run begins with, given to the command by name."""
    return click.option(
        "--file",
        "files",
        type=FileType(),
        multiple=True,
        callback=_as_mapping,
        metavar="NAME=@PATH",
        help=help,
    )


def limit_option(*, default: int | None = None) -> Callable[[F], F]:
    """Return the option of how many runs at most; it must be given where it has no default."""
    given: dict[str, Any] = {"required": True}  # a default of None would count as given
    if default is not None:
        given = {"default": default, "show_default": True}
    return click.option(
        "--limit",
        type=click.IntRange(1, MAX_PAGE_ITEMS),
        metavar="N",
        help="How many at most.",
        **given,
    )


_STATUSES: Final = click.Choice([status.value for status in RunStatus], case_sensitive=False)

_FILTERS: Final = (
    click.option(
        "--status", type=_STATUSES, help="Only runs in this status, without the cancelled."
    ),
    click.option("--paused", is_flag=True, help="Only runs that are paused."),
    click.option("--cancelled", is_flag=True, help="Only runs that were cancelled."),
    click.option("--dead-lettered", is_flag=True, help="Only runs that were given up."),
    click.option("--pipeline", metavar="NAME", help="Only runs of this pipeline."),
    click.option(
        "--label",
        type=LabelType(),
        metavar="KEY:VALUE",
        multiple=True,
        callback=_as_texts,
        help="Only runs with this label; may be given several times.",
    ),
    click.option(
        "--since", type=MomentType(), metavar="AGE|TIME", help="Only runs that began then or later."
    ),
    click.option(
        "--until", type=MomentType(), metavar="AGE|TIME", help="Only runs that began before then."
    ),
    click.option(
        "--dead-letter-reason",
        type=click.Choice([reason.value for reason in DeadLetterReason], case_sensitive=False),
        help="Only runs that were given up for this reason.",
    ),
)


_FLAGS: Final = ("paused", "cancelled", "dead_lettered")
_VALUES: Final = ("status", "pipeline", "label", "since", "until")

id_prefix_option = click.option(
    "--id-prefix", metavar="TEXT", help="Only runs whose id begins with TEXT, sorted by id."
)

trouble_option = click.option(
    "--trouble",
    type=click.Choice([trouble.value for trouble in Trouble]),
    callback=lambda _context, _option, word: word and Trouble(word),
    help="Only runs that say they run, but do not move as they should.",
)

at_step_option = click.option(
    "--step", "at_step", metavar="STEP", help="Only runs that are at this step, or ended there."
)


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the filters of runs, given to the command as `wanted`; all of them must hold."""

    @functools.wraps(command)
    def with_filter(**options: Any) -> Any:
        flags = {name: options.pop(name) or None for name in _FLAGS}
        values = {name: options.pop(name) for name in _VALUES}
        wanted = RunFilter(**flags, **values, reason=options.pop("dead_letter_reason"))
        return command(wanted=wanted, **options)

    for option in reversed(_FILTERS):
        with_filter = option(with_filter)
    return with_filter
