"""`leasehold registry`: the effective limits of each step type, and which overrides are refused."""

from __future__ import annotations

from typing import Final

import click

from leasehold.bootstrap import Purpose
from leasehold.cli.bundle import open_bundle
from leasehold.cli.options import json_option
from leasehold.cli.stderr import warn
from leasehold.cli.stdout import Row, print_json, print_table
from leasehold.domain.dispatch import StepSettings
from leasehold.presentation.formatting import StyledText
from leasehold.registry.dispatch import StepDispatchEntry
from leasehold.services.engine import Engine
from leasehold.services.registry_report import registry_report, waits_of

_COLUMNS: Final = ("STEP", "HANDLER", "TIMEOUT", "DEADLINE", "RETRIES", "WAITS", "HEARTBEAT")


@click.command()
@json_option
def registry(*, as_json: bool) -> None:
    """Show the effective limits of each step type.

    Each value is shown with where it comes from: the step's entry in the catalog, a threshold
    (PIPELINE_MAX_RETRIES), or the variable that overrides it. A warning names each override that
    was refused.

    \b
    Example:
      PIPELINE_EXTRACTION_TIMEOUT_MS=60000 leasehold registry
    """  # noqa: D301
    with open_bundle(purpose=Purpose.PREVIEW) as bundle:  # no store is needed
        engine = bundle.engine
    if as_json:
        print_json(registry_report(engine))
        return
    steps = [
        (entry, engine.rules.known_settings(entry.step_type)) for entry in engine.catalog.steps
    ]
    print_table(_COLUMNS, [_row(engine, entry, settings) for entry, settings in steps])
    click.echo()
    pipelines = [(entry.name, " → ".join(entry.steps)) for entry in engine.catalog.pipelines]
    print_table(("PIPELINE", "STEPS"), pipelines)
    for _, settings in steps:
        for sentence in settings.refused:
            warn(sentence)


def _row(engine: Engine, entry: StepDispatchEntry, settings: StepSettings) -> Row:
    beat = settings.heartbeat
    return (
        entry.step_type,
        entry.handler,
        _value(settings, "agentTimeout", f"{settings.agent_timeout.total_seconds():g} s"),
        _value(settings, "dispatchDeadline", f"{settings.dispatch_deadline.total_seconds():g} s"),
        _value(settings, "maxRetries", str(settings.max_retries)),
        _waits(engine, settings),
        _value(settings, "heartbeat", "none" if beat is None else f"{beat.total_seconds():g} s"),
    )


def _waits(engine: Engine, settings: StepSettings) -> str:
    """Return the waits in short: `10 s, x2 up to 300 s`, and the errors that are not retried."""
    rule = waits_of(engine, settings)
    words = f"{rule.first_s:g} s, x{rule.factor:g} up to {rule.max_s:g} s"
    never = f", never {', '.join(rule.non_retryable)}" if rule.non_retryable else ""
    return f"{words}{never} ({settings.sources.get('retry', 'threshold')})"


def _value(settings: StepSettings, name: str, value: str) -> StyledText:
    """Return a value with its source; those that do not come from the entry stand out."""
    source = settings.sources[name]
    return StyledText(f"{value} ({source})", "cyan" if source.isupper() else "")
