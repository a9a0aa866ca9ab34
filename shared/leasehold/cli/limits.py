"""`leasehold registry` and `override`: limits of steps, and those that people set for a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import click

from leasehold.api.overrides import OverrideReport, OverridesResponse
from leasehold.api.registry import (
    ChannelReport,
    LoweredLimitReport,
    PipelineReport,
    RegistryResponse,
    RetryInForce,
    SettingInForce,
    StepReport,
)
from leasehold.cli.opened import client_at
from leasehold.cli.options import MomentType, json_option, url_option
from leasehold.cli.settings_files import note_settings_files
from leasehold.cli.stdout import Row, print_json, print_table
from leasehold.cli.streams import note, warn
from leasehold.domain.manifest_parts import step_type_at
from leasehold.domain.override import OVERRIDE
from leasehold.domain.printable import counted
from leasehold.domain.timestamps import moment_text
from leasehold.presentation.formatting import StyledText

# An override in one line: whose it is, what it says, until when, and why.


def override_line(override: OverrideReport) -> str:
    """Return the line; what the document does not say is left out."""
    limits = [
        f"{name} {seconds:g} s"
        for name, seconds in (("timeout", override.timeout_s), ("deadline", override.deadline_s))
        if seconds is not None
    ]
    parts = [
        f"override of {override.step_type}",
        f"by {override.set_by}" if override.set_by else "",
        ", ".join(limits),
        "" if override.until is None else f"until {moment_text(override.until)}",
    ]
    why = f": {override.why}" if override.why else ""
    return " ".join(filter(None, parts)) + why


def lowered_line(lowered: LoweredLimitReport) -> str:
    """Return the line of a limit that is lowered."""
    since, grows_from = moment_text(lowered.lowered_at), moment_text(lowered.grows_from)
    return (
        f"limit {lowered.key} is lowered to {lowered.share:.1%}, as its provider took no more at "
        f"{since}; from {grows_from} on it grows again"
    )


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
@click.option("--why", metavar="WORDS", help="The reason; it is shown with the override.")
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
    """Set limits for STEP until a time; without options, show all overrides.

    They hold from the next dispatch of STEP on, also for retries, in every process within 10 s. An
    attempt that is dispatched already keeps its limits. An override replaces the one before it.

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


# `leasehold registry`: the effective limits of each step type, and which overrides are refused.


_STEP_COLUMNS: Final = ("STEP", "HANDLER", "TIMEOUT", "DEADLINE", "RETRIES", "WAITS", "HEARTBEAT")
_COLUMNS_OF_PROCESSES: Final = ("STEP", "ISOLATION", "CLEANUP", "MEMORY")
_COLUMNS_OF_CHANNELS: Final = ("CHANNEL", "KIND", "EVENTS", "PIPELINES", "VARIABLES")
_MIB: Final = 1024**2


@click.command()
@url_option
@json_option
def registry(*, url: str | None, as_json: bool) -> None:
    """Show the effective limits of each step type.

    Each value is shown with its source: the step's entry in the catalog, a threshold
    (PIPELINE_MAX_RETRIES), an override of `leasehold override`, or the variable that comes before
    all of these. A warning names each value that was refused.

    \b
    Example:
      PIPELINE_EXTRACTION_TIMEOUT_MS=60000 leasehold registry
    """  # noqa: D301
    with client_at(url) as client:
        report = client.registry()
    if as_json:
        print_json(report)
        return
    print_table(_STEP_COLUMNS, map(_step_row, report.steps))
    click.echo()
    print_table(_COLUMNS_OF_PROCESSES, map(_row_of_process, report.steps))
    options = [row for step in report.steps for row in _rows_of_options(step)]
    if options:
        click.echo()
        print_table(("STEP", "OPTION", "VALUE"), options)
    click.echo()
    print_table(("PIPELINE", "STEPS"), map(_row_of_pipeline, report.pipelines))
    if report.channels:
        click.echo()
        print_table(_COLUMNS_OF_CHANNELS, map(_row_of_channel, report.channels))
    if url is None:
        note_settings_files()
    for line in _lines_of_what_differs(report):
        note(line)
    for step in report.steps:
        for sentence in step.refused:
            warn(sentence)
    if report.overrides_problem:
        warn(f"overrides are not shown as they are now: {report.overrides_problem}")


def _lines_of_what_differs(report: RegistryResponse) -> Iterator[str]:
    """Yield a line for each limit that is not as the catalog has it now."""
    for step in report.steps:
        if step.override is not None and step.override.state == "in_force":
            yield override_line(step.override)
    yield from map(lowered_line, report.lowered_limits)


def _row_of_pipeline(pipeline: PipelineReport) -> Row:
    steps, rule = (
        " → ".join(_place_words(pipeline, name) for name in pipeline.steps),
        pipeline.trials,
    )
    if rule is not None:
        steps += f" ({rule.author} to {rule.reviewer} in up to {counted(rule.max_trials, 'trial')})"
    return pipeline.name, steps


def _place_words(pipeline: PipelineReport, name: str) -> str:
    """Return the name of a place, with the type of its step where that is another."""
    step = step_type_at(pipeline.places, name)
    return name if step == name else f"{name} ({step})"


def _row_of_channel(channel: ChannelReport) -> Row:
    variables = (f"{one.name} ({'set' if one.is_set else 'not set'})" for one in channel.variables)
    return (
        channel.name,
        channel.kind,
        ", ".join(channel.events) or "all",
        ", ".join(channel.pipelines) or "all",
        StyledText(
            ", ".join(variables), "" if all(v.is_set for v in channel.variables) else "yellow"
        ),
    )


def _step_row(step: StepReport) -> Row:
    return (
        step.step_type,
        step.handler,
        _value(step.agent_timeout_ms, " s", per_unit=1000),
        _value(step.dispatch_deadline_s, " s"),
        _value(step.max_retries),
        _waits(step.retry),
        _value(step.heartbeat_s, " s"),
    )


def _row_of_process(step: StepReport) -> Row:
    return (
        step.step_type,
        _from(_isolation(step), step.isolation_source),
        _value(step.cleanup_ms, " s", per_unit=1000),
        _value(step.memory_limit_bytes, " MiB", per_unit=_MIB),
    )


def _rows_of_options(step: StepReport) -> Iterator[Row]:
    """Yield a row for each option that no other table has."""
    for name, value in step.options.items():
        text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        yield step.step_type, name, text


def _isolation(step: StepReport) -> str:
    is_reused = step.reuse > 1 and step.isolation == "process"
    return f"{step.isolation}, for {step.reuse} attempts" if is_reused else step.isolation


def _waits(retry: RetryInForce) -> str:
    """Return the waits in short: `10 s, x2 up to 300 s`, and the errors that are not retried."""
    words = f"{retry.first_s:g} s, x{retry.factor:g} up to {retry.max_s:g} s"
    never = f", never {', '.join(retry.non_retryable)}" if retry.non_retryable else ""
    return f"{words}{never} ({retry.source})"


def _value(setting: SettingInForce, unit: str = "", *, per_unit: int = 1) -> StyledText:
    value = "none" if setting.value is None else f"{setting.value / per_unit:g}{unit}"
    return _from(value, setting.source)


def _from(value: str, source: str) -> StyledText:
    """Return a value with its source; those that do not come from the entry stand out."""
    return StyledText(f"{value} ({source})", "cyan" if _stands_out(source) else "")


def _stands_out(source: str) -> bool:
    return source.isupper() or source == OVERRIDE
