"""`leasehold registry`: what is in force per step type, from where, and what was refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import click

from leasehold.cli.bundle import opened
from leasehold.cli.formatting import Styled
from leasehold.cli.stderr import warn
from leasehold.cli.stdout import Row, answer_json, answer_table
from leasehold.domain.dispatch import StepSettings
from leasehold.registry.dispatch import StepDispatchEntry
from leasehold.services.engine import Engine
from leasehold.services.registry_report import registry_report

_COLUMNS: Final = ("STEP", "HANDLER", "TIMEOUT", "DEADLINE", "RETRIES", "HEARTBEAT")


def registry(*, as_json: bool) -> None:
    """Answer with both registries as they hold at this moment. No store is needed."""
    with opened(absent=True) as bundle:
        engine = bundle.engine
    if as_json:
        answer_json(registry_report(engine))
        return
    answer_table(
        _COLUMNS, [_row(entry, _settings(engine, entry)) for entry in engine.catalog.steps]
    )
    click.echo()
    pipelines = [(entry.name, " → ".join(entry.steps)) for entry in engine.catalog.pipelines]
    answer_table(("PIPELINE", "STEPS"), pipelines)
    for entry in engine.catalog.steps:
        for sentence in _settings(engine, entry).refused:
            warn(sentence)


def _settings(engine: Engine, entry: StepDispatchEntry) -> StepSettings:
    return engine.rules.known_settings(entry.step_type)


def _row(entry: StepDispatchEntry, settings: StepSettings) -> Row:
    heartbeat = _seconds(settings.heartbeat)
    return (
        entry.step_type,
        entry.handler,
        _from(settings, f"{settings.agent_timeout.total_seconds():g} s", "agentTimeout"),
        _from(settings, f"{settings.dispatch_deadline.total_seconds():g} s", "dispatchDeadline"),
        _from(settings, str(settings.max_retries), "maxRetries"),
        _from(settings, "none" if heartbeat is None else f"{heartbeat:g} s", "heartbeat"),
    )


def _from(settings: StepSettings, value: str, source: str) -> Styled:
    """Return a value with its source; those that do not come from the entry stand out."""
    where = settings.sources[source]
    return Styled(f"{value} ({where})", "cyan" if where.isupper() else "")


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()
