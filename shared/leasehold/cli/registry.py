"""`leasehold registry`: the effective limits of each step type, and which overrides are refused."""

from __future__ import annotations

from typing import Final

import click

from leasehold.api.registry import RegistryResponse, RetryInForce, SettingInForce, StepReport
from leasehold.bootstrap import Purpose
from leasehold.cli.bundle import open_bundle
from leasehold.cli.options import json_option, url_option
from leasehold.cli.stderr import warn
from leasehold.cli.stdout import Row, print_json, print_table
from leasehold.client.server_upkeep import ServerUpkeep
from leasehold.presentation.formatting import StyledText
from leasehold.services.registry_report import registry_report

_COLUMNS: Final = ("STEP", "HANDLER", "TIMEOUT", "DEADLINE", "RETRIES", "WAITS", "HEARTBEAT")
_COLUMNS_OF_PROCESSES: Final = ("STEP", "ISOLATION", "CLEANUP", "MEMORY")
_MIB: Final = 1024**2


@click.command()
@url_option
@json_option
def registry(*, url: str | None, as_json: bool) -> None:
    """Show the effective limits of each step type.

    Each value is shown with where it comes from: the step's entry in the catalog, a threshold
    (PIPELINE_MAX_RETRIES), or the variable that overrides it. A warning names each override that
    was refused.

    \b
    Example:
      PIPELINE_EXTRACTION_TIMEOUT_MS=60000 leasehold registry
    """  # noqa: D301
    if url is not None:
        report = ServerUpkeep(url).registry()
    else:
        with open_bundle(purpose=Purpose.PREVIEW) as bundle:  # no store is needed
            report = RegistryResponse.model_validate(registry_report(bundle.engine))
    if as_json:
        print_json(report)
        return
    print_table(_COLUMNS, map(_row, report.steps))
    click.echo()
    print_table(_COLUMNS_OF_PROCESSES, map(_row_of_process, report.steps))
    click.echo()
    pipelines = [(entry.name, " → ".join(entry.steps)) for entry in report.pipelines]
    print_table(("PIPELINE", "STEPS"), pipelines)
    for step in report.steps:
        for sentence in step.refused:
            warn(sentence)


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
        _from(step.isolation, step.isolation_source),
        _value(step.cleanup_ms, " s", per_unit=1000),
        _value(step.memory_limit_bytes, " MiB", per_unit=_MIB),
    )


def _waits(retry: RetryInForce) -> str:
    """Return the waits in short: `10 s, x2 up to 300 s`, and the errors that are not retried."""
    words = f"{retry.first_s:g} s, x{retry.factor:g} up to {retry.max_s:g} s"
    never = f", never {', '.join(retry.non_retryable)}" if retry.non_retryable else ""
    return f"{words}{never} ({retry.source})"


def _value(setting: SettingInForce, unit: str = "", *, per_unit: int = 1) -> StyledText:
    value = "none" if setting.value is None else f"{setting.value / per_unit:g}{unit}"
    return _from(value, setting.source)


def _from(value: str, source: str) -> StyledText:
    """Return a value with its source; those of a variable stand out."""
    return StyledText(f"{value} ({source})", "cyan" if source.isupper() else "")
