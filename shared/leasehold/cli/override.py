"""`leasehold override`: limits that people set for a step until a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

import click

from leasehold.api.overrides import OverrideReport, OverridesResponse
from leasehold.cli.opened import client_at
from leasehold.cli.options import MomentType, json_option, url_option
from leasehold.cli.override_line import override_line
from leasehold.cli.stdout import Row, print_json, print_table
from leasehold.cli.streams import note, warn
from leasehold.domain.timestamps import moment_text
from leasehold.presentation.formatting import StyledText

_COLUMNS: Final = ("STEP", "STATE", "TIMEOUT", "DEADLINE", "UNTIL", "BY", "WHY")
_STATES: Final = {
    "in_force": StyledText("in force", "cyan"),
    "over": StyledText("over", "dim"),
    "refused": StyledText("refused", "yellow"),
}


class _Words(NamedTuple):
    """What an override is given as; None: it is not."""

    timeout_s: float | None
    deadline_s: int | None
    until: datetime | None
    why: str | None


@click.command()
@click.argument("step", required=False)
@click.option("--timeout-s", type=float, metavar="N", help="Seconds that its handler may run.")
@click.option(
    "--deadline-s", type=int, metavar="N", help="Seconds that its queue waits for an attempt."
)
@click.option(
    "--until",
    type=MomentType(ahead=True),
    metavar="SPAN|TIME",
    help="When it ends by itself: 2h, or 2026-11-22T06:00:00Z.",
)
@click.option("--why", metavar="WORDS", help="The reason, shown to all who look.")
@click.option("--clear", is_flag=True, help="End it now.")
@url_option
@json_option
def override(
    *,
    step: str | None,
    timeout_s: float | None,
    deadline_s: int | None,
    until: datetime | None,
    why: str | None,
    clear: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Set other limits for STEP until a time; without options, show what is set.

    They are in force at its next dispatch, retries included, everywhere within 10 s. An attempt
    that is dispatched keeps its limits. They replace every earlier limit of STEP.

    \b
    Examples:
      leasehold override
      leasehold override summarize --timeout-s 1200 --deadline-s 1500 --until 2h --why "slow day"
      leasehold override summarize --clear
    """  # noqa: D301
    words = _Words(timeout_s, deadline_s, until, why)
    sets = any(word is not None for word in words)
    if step is None and (sets or clear):
        raise click.UsageError("STEP is missing; `leasehold registry` lists the steps.")
    if clear and sets:
        raise click.UsageError("--clear ends what is set; allowed: --clear alone, or limits.")
    if step is not None and clear:
        _clear(step, url, as_json=as_json)
    elif step is not None and sets:
        _set(step, words, url, as_json=as_json)
    else:
        _show(step, url, as_json=as_json)


def _set(step: str, words: _Words, url: str | None, *, as_json: bool) -> None:
    if words.timeout_s is None and words.deadline_s is None:
        raise click.UsageError("No limit is given; allowed: --timeout-s, --deadline-s, or both.")
    if words.until is None:
        allowed = "--until 2h, or a time such as 2026-11-22T06:00:00Z"
        raise click.UsageError(f"--until is missing: each override ends by itself; type {allowed}.")
    if words.why is None:
        raise click.UsageError('--why is missing: say it to the next person, as --why "slow day".')
    with client_at(url) as client:
        change = client.override(
            step,
            timeout_s=words.timeout_s,
            deadline_s=words.deadline_s,
            until=words.until.replace(microsecond=0),
            why=words.why,
        )
    if as_json:
        print_json(change)
    elif change.override is not None:
        _print([change.override])
        note(f"it is in force at the next dispatch of {step}, everywhere within 10 s")
        if change.replaced is not None:
            note(f"it replaces: {override_line(change.replaced)}")


def _clear(step: str, url: str | None, *, as_json: bool) -> None:
    with client_at(url) as client:
        change = client.clear_override(step)
    if as_json:
        print_json(change)
    elif change.replaced is None:
        note(f"no override is set for step {step}")
    else:
        note(f"cleared: {override_line(change.replaced)}")


def _show(step: str | None, url: str | None, *, as_json: bool) -> None:
    with client_at(url) as client:
        found = [one for one in client.overrides() if step in (None, one.step_type)]
    if as_json:
        print_json(OverridesResponse(overrides=found))
    elif found:
        _print(found)
    else:
        note("no override is set" if step is None else f"no override is set for step {step}")


def _print(overrides: Sequence[OverrideReport]) -> None:
    print_table(_COLUMNS, map(_row, overrides))
    for one in overrides:
        if one.problem:
            warn(one.problem)


def _row(one: OverrideReport) -> Row:
    until = "" if one.until is None else moment_text(one.until)
    limits = (one.timeout_s, one.deadline_s)
    timeout, deadline = ("as before" if limit is None else f"{limit:g} s" for limit in limits)
    return one.step_type, _STATES[one.state], timeout, deadline, until, one.set_by, one.why
