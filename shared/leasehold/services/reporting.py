"""The events that people analyse, as facts for a structured log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from leasehold.domain.change import Change
from leasehold.domain.delivery import Delivery
from leasehold.domain.manifest import Manifest
from leasehold.domain.printable import counted
from leasehold.domain.status import Termination
from leasehold.domain.trace import TraceEvent, TraceType
from leasehold.registry.dead_letters import DEAD_LETTERS

Facts = Mapping[str, Any]

#: What tells how attempts, workers and deliveries end: as planned where its severity is INFO.
ENDS: Final = (
    "STEP_TERMINATED",
    "INSTANCE_SHUTDOWN",
    "LEASE_AT_SHUTDOWN",
    "ANNOUNCEMENT_SENT",
)

#: A run that the code which is deployed cannot run, whatever the trace calls it: a person has to
#: put that right. What a channel logs of it, or of any other block, is a `RUN_BLOCKED`.
STEP_BLOCKED: Final = "STEP_BLOCKED"


def shutdown_report(signal_name: str | None, holder: str, leases: int, at: datetime) -> Facts:
    """Return the facts of a worker that is to end.

    Args:
        signal_name: what ends it; None: it is closed.
        holder: how leases name it.
        leases: how many it holds.
        at: the time.
    """
    count = counted(leases, "lease") if leases else "no leases"
    return {
        "severity": "INFO",
        "message": f"{signal_name or 'closing'}: shutting down; {count} held",
        "event": "INSTANCE_SHUTDOWN",
        "holder": holder,
        "leases": leases,
        "at": at.isoformat(),
    }


def reports(change: Change) -> Iterator[Facts]:
    """Yield the facts of each event of a committed change that is to be logged."""
    if not change.changed:
        return
    for event in change.events:
        if event.type in _FACTS:
            yield {
                "event": event.type.upper(),
                **_FACTS[event.type](change.manifest, event),
                "runId": change.manifest.run_id,
                "pipeline": change.manifest.pipeline,
                "at": event.at.isoformat(),
            }


def delivery_report(delivery: Delivery, event: TraceEvent) -> Facts:
    """Return the facts of a delivery that came to its end.

    Args:
        delivery: the delivery.
        event: what is traced of it.
    """
    is_sent = event.type is TraceType.ANNOUNCEMENT_SENT
    what = f"{'received' if is_sent else 'did not receive'} {delivery.event}"
    why = "" if is_sent else f": {delivery.given_up_why}: {delivery.last_error}"
    return {
        "severity": "INFO" if is_sent else "ERROR",
        "message": f"run {delivery.run_id}: channel {delivery.channel} {what}{why}",
        **_of_delivery(delivery, event.type),
        "secondsSinceDue": (event.model_extra or {}).get("secondsSinceDue"),
        "reason": event.reason,
        "detail": event.detail,
    }


def unknown_send_report(delivery: Delivery) -> Facts:
    """Return the facts of a send whose result is unknown."""
    problem = f"channel {delivery.channel} may receive {delivery.event} twice"
    return {
        "severity": "WARNING",
        "message": f"run {delivery.run_id}: {problem}: {delivery.last_error}",
        **_of_delivery(delivery, "announcement_unknown"),
        "detail": delivery.last_error,
    }


def _of_delivery(delivery: Delivery, event: str) -> Facts:
    return {
        "event": event.upper(),
        "runId": delivery.run_id,
        "pipeline": delivery.pipeline,
        "runEvent": str(delivery.event),
        "occurrence": delivery.occurrence,
        "channel": delivery.channel,
        "messageId": delivery.message_id,
        "tries": delivery.tries,
        "unknown": delivery.unknown,
        "at": delivery.updated_at.isoformat(),
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
    check = further.get("checkId", event.reason)
    return {
        "severity": "WARNING",
        "message": f"run {manifest.run_id} is blocked by {check}: {event.detail}",
        "step": event.step,
        "generation": manifest.position.dispatch.generation,
        "checkId": check,
        "finding": event.detail,
        "remediation": further.get("remediation"),
    }


def _blocked(manifest: Manifest, event: TraceEvent) -> Facts:
    further = event.model_extra or {}
    return {
        "event": STEP_BLOCKED,
        "severity": "ERROR",
        "message": f"run {manifest.run_id} is blocked, {event.reason}: {event.detail}",
        "code": event.reason,
        "step": event.step,
        "reason": event.detail,
        "generation": manifest.position.dispatch.generation,
        "remediation": further.get("remediation"),
    }


def _terminated(manifest: Manifest, event: TraceEvent) -> Facts:
    further = event.model_extra or {}
    attempt = f"attempt {event.attempt} of step {event.step}"
    is_planned = event.reason in (Termination.INSTANCE_SHUTDOWN, Termination.CANCELLED)
    return {
        "severity": "INFO" if is_planned else "WARNING",
        "message": f"run {manifest.run_id}, {attempt}: {event.reason}: {event.detail}",
        "reason": event.reason,
        "step": event.step,
        "attempt": event.attempt,
        "holder": further.get("holder"),
        "detail": event.detail,
        "lastHeartbeatAt": _text(further.get("lastHeartbeatAt")),
    }


def _archive(manifest: Manifest, event: TraceEvent) -> Facts:
    return {
        "severity": "WARNING",
        "message": f"run {manifest.run_id} is not archived, {event.reason} failed: {event.detail}",
        "reason": event.reason,
        "detail": event.detail,
    }


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


_FACTS: Final[Mapping[str, Callable[[Manifest, TraceEvent], Facts]]] = {
    TraceType.STEP_DEAD_LETTERED: _dead_letter,
    TraceType.GATE_BLOCKED: _gate,
    TraceType.BUDGET_EXCEEDED: _gate,
    TraceType.CALL_UNCONFIRMED: _gate,
    TraceType.STEP_BLOCKED: _blocked,
    TraceType.STEP_UNKNOWN: _blocked,
    TraceType.STEP_TERMINATED: _terminated,
    TraceType.ARCHIVE_FAILED: _archive,
}
