"""The effective limits of each step type at this moment, with the source of each value."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pydantic.alias_generators import to_camel

from leasehold.domain.dispatch import StepSettings
from leasehold.domain.manifest import to_document
from leasehold.domain.manifest_parts import RetryRule
from leasehold.domain.spend import SpendLimit
from leasehold.errors import LeaseholdError
from leasehold.registry.channels import ChannelEntry
from leasehold.registry.dispatch import RetryPolicy, StepDispatchEntry
from leasehold.services.engine import Engine
from leasehold.services.lowered_limits import lowered_now
from leasehold.services.overrides import override_report


def registry_report(engine: Engine) -> dict[str, Any]:
    """Return steps, pipelines and channels as JSON values; overrides are read at once."""
    problem = _read_overrides(engine)
    return {
        "steps": [
            _step(engine, entry, engine.rules.known_settings(entry.step_type))
            for entry in engine.catalog.steps
        ],
        "pipelines": [
            {
                "name": entry.name,
                "steps": entry.plan,
                "places": entry.places,
                "trials": entry.trial_rule,
                "budget": entry.spend_limit,
            }
            for entry in engine.catalog.pipelines
        ],
        "channels": [_channel(engine, entry) for entry in engine.catalog.channels],
        "loweredLimits": [] if problem else _lowered(engine),
        "overridesProblem": problem,
    }


def _read_overrides(engine: Engine) -> str | None:
    """Read the overrides anew; return why that failed: what was read before is shown then."""
    try:
        engine.overrides.read()
    except LeaseholdError as error:
        return error.message
    return None


def _lowered(engine: Engine) -> list[dict[str, Any]]:
    try:
        return [*lowered_now(engine)]
    except LeaseholdError as error:
        engine.listeners.log(f"limits that are lowered are not shown: {error}")
        return []


def _step(engine: Engine, entry: StepDispatchEntry, settings: StepSettings) -> dict[str, Any]:
    override = engine.overrides.find(entry.step_type)
    return {
        "stepType": entry.step_type,
        "handler": entry.handler,
        "isolation": engine.handlers.isolation_of(entry),
        "isolationSource": "LEASEHOLD_ISOLATION" if engine.handlers.isolation else "entry",
        "reuse": entry.reuse,
        "queue": settings.queue,
        **{
            name: {"value": value, "source": settings.sources.get(source, "entry")}
            for name, (value, source) in _values(settings).items()
        },
        "retry": _retry(engine, settings),
        "options": {to_camel(name): _plain(it) for name, it in entry.listed_options().items()},
        "override": None if override is None else override_report(engine, override),
        "refused": settings.refused,
    }


def _plain(value: Any) -> Any:
    return to_document(value) if isinstance(value, SpendLimit) else value


def _channel(engine: Engine, entry: ChannelEntry) -> dict[str, Any]:
    """Return a channel with the names of its variables; no value of one leaves the environment."""
    return {
        "name": entry.name,
        "kind": entry.kind,
        "events": entry.events,
        "pipelines": entry.pipelines,
        "variables": [
            {"name": name, "isSet": engine.channels.is_variable_set(name)}
            for name in entry.variables
        ],
    }


def _retry(engine: Engine, settings: StepSettings) -> dict[str, Any]:
    rule = _waits_of(engine, settings)
    return {**to_document(rule), "source": settings.sources.get("retry", "threshold")}


def _waits_of(engine: Engine, settings: StepSettings) -> RetryRule:
    """Return the waits of a step; of one without a policy, those of all steps as a policy."""
    return settings.retry or RetryPolicy().in_force(engine.rules.backoff)


def _values(settings: StepSettings) -> Mapping[str, tuple[float | None, str]]:
    """Return each value with its unit in the name, and the name of its source."""
    heartbeat = settings.heartbeat
    return {
        "agentTimeoutMs": (settings.agent_timeout // timedelta(milliseconds=1), "agentTimeout"),
        "dispatchDeadlineS": (settings.dispatch_deadline.total_seconds(), "dispatchDeadline"),
        "cleanupMs": (settings.options["cleanup_ms"], "cleanupTtl"),
        "memoryLimitBytes": (settings.options["memory_limit_bytes"], "memoryLimit"),
        "maxRetries": (settings.max_retries, "maxRetries"),
        "heartbeatS": (None if heartbeat is None else heartbeat.total_seconds(), "heartbeat"),
    }
