"""The events that people analyse, as facts for a structured log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from leasehold.domain.change import Change
from leasehold.domain.manifest import Manifest
from leasehold.domain.trace import TraceEvent, TraceType
from leasehold.registry.dead_letters import DEAD_LETTERS

Facts = Mapping[str, Any]


def reports(change: Change) -> Iterator[Facts]:
    """Tell the facts of each event of a committed change that is to be logged."""
    if not change.changed:
        return
    for event in change.events:
        if event.type in _FACTS:
            yield {
                **_FACTS[event.type](change.manifest, event),
                "event": event.type.value.upper(),
                "runId": change.manifest.run_id,
                "pipeline": change.manifest.pipeline,
                "at": event.at.isoformat(),
            }


def _dead_letter(manifest: Manifest, event: TraceEvent) -> Facts:
    entry = DEAD_LETTERS[str(event.reason)]
    further = event.model_extra or {}
    return {
        "severity": entry.severity,
        "message": f"run {manifest.run_id} is given up, {entry.key}: {event.detail}",
        "reason": entry.key,
        "label": entry.label,
        "detail": event.detail,
        "remediation": entry.remediation,
        "lastStep": further.get("lastStep"),
        "retryCount": further.get("retryCount"),
        "sweepJobId": further.get("sweepJobId"),
    }


def _gate(manifest: Manifest, event: TraceEvent) -> Facts:
    further = event.model_extra or {}
    return {
        "severity": "WARNING",
        "message": f"run {manifest.run_id} is blocked by {further.get('checkId')}: {event.detail}",
        "step": event.step,
        "generation": manifest.dispatch.generation,
        "checkId": further.get("checkId"),
        "finding": further.get("finding"),
        "remediation": further.get("remediation"),
    }


_FACTS: Final[Mapping[TraceType, Callable[[Manifest, TraceEvent], Facts]]] = {
    TraceType.STEP_DEAD_LETTERED: _dead_letter,
    TraceType.GATE_BLOCKED: _gate,
}
