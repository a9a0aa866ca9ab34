"""`leasehold registry`: the effective limits of each step type, and which overrides are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from leasehold.api.registry import (
    ChannelReport,
    PipelineReport,
    RetryInForce,
    SettingInForce,
    StepReport,
)
from leasehold.cli.opened import client_at
from leasehold.cli.options import json_option, url_option
from leasehold.cli.override_line import override_line
from leasehold.cli.settings_files import note_settings_files
from leasehold.cli.stdout import Row, print_json, print_table
from leasehold.cli.streams import note, warn
from leasehold.domain.override import OVERRIDE
from leasehold.domain.printable import counted
from leasehold.presentation.formatting import StyledText

_COLUMNS: Final = ("STEP", "HANDLER", "TIMEOUT", "DEADLINE", "RETRIES", "WAITS", "HEARTBEAT")
_COLUMNS_OF_PROCESSES: Final = ("STEP", "ISOLATION", "CLEANUP", "MEMORY")
_COLUMNS_OF_CHANNELS: Final = ("CHANNEL", "KIND", "EVENTS", "PIPELINES", "VARIABLES")
_MIB: Final = 1024**2


@click.command()
@url_option
@json_option
def registry(*, url: str | None, as_json: bool) -> None:
    """Show the effective limits of each step type.

    Each value is shown with where it comes from: the step's entry in the catalog, a threshold
    (PIPELINE_MAX_RETRIES), an override of `leasehold override`, or the variable that goes over all.
    A warning names each of them that was refused.

    \b
    Example:
      PIPELINE_EXTRACTION_TIMEOUT_MS=60000 leasehold registry
    """  # noqa: D301
    with client_at(url) as client:
        report = client.registry()
    if as_json:
        print_json(report)
        return
    print_table(_COLUMNS, map(_row, report.steps))
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
    for step in report.steps:
        if step.override is not None and step.override.state == "in_force":
            note(override_line(step.override))
    for step in report.steps:
        for sentence in step.refused:
            warn(sentence)
    if report.overrides_problem:
        warn(f"overrides are not shown as they are now: {report.overrides_problem}")


def _row_of_pipeline(pipeline: PipelineReport) -> Row:
    steps, rule = " → ".join(pipeline.steps), pipeline.trials
    if rule is not None:
        steps += f" ({rule.author} to {rule.reviewer} in up to {counted(rule.max_trials, 'trial')})"
    return pipeline.name, steps


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


def _row(step: StepReport) -> Row:
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
