"""What tests begin with: settings of steps, rules, new runs, and an environment of one store.

Each gives something usable, with other values for the fields that are named.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from leasehold.domain.announcement import AnnouncedEvent, Priority
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.delivery import Delivery, DeliveryState
from leasehold.domain.dispatch import Rules, StepSettings
from leasehold.domain.event_message import EventMessage
from leasehold.domain.lifecycle import NewRun
from leasehold.domain.manifest import Manifest, manifest_of, run_ref, to_document
from leasehold.domain.manifest_parts import StepRecord
from leasehold.domain.stored import Document, Write, replace
from leasehold.ports.documents import Documents
from leasehold.testing.clock import START


def at_position(run: Manifest, **fields: Any) -> Manifest:
    """The run with these fields of its position replaced."""
    return replace(run, position=replace(run.position, **fields))


def with_step(run: Manifest, step: str, **fields: Any) -> dict[str, StepRecord]:
    """The steps of the run with these fields of one replaced."""
    return {**run.steps, step: replace(run.steps[step], **fields)}


def step_settings(step_type: str = "draft", **fields: Any) -> StepSettings:
    """A local step of 2 minutes, tried three times, whose lease is renewed every 10 s."""
    usable: dict[str, Any] = {
        "agent_timeout": timedelta(seconds=120),
        "dispatch_deadline": timedelta(seconds=180),
        "max_retries": 2,
        "heartbeat": timedelta(seconds=10),
        "queue": step_type,
        "remote": False,
        "schedule_to_start": timedelta(hours=1),
        "sources": {"agentTimeout": "entry"},
    }
    return StepSettings(step_type=step_type, **(usable | fields))


def rules_of(*steps: StepSettings, **fields: Any) -> Rules:
    """The rules of a deploy that knows these steps and no others."""
    return Rules(settings_for={step.step_type: step for step in steps}.get, **fields)


def new_run(run_id: str = "r-1", **fields: Any) -> NewRun:
    """A run of the steps draft and send."""
    usable: dict[str, Any] = {
        "pipeline": "letters",
        "plan": ("draft", "send"),
        "input": KeptValue(text='{"to":"ada"}'),
        "input_digest": "digest-1",
        "nonce": "nonce-1",
    }
    return NewRun(run_id=run_id, **(usable | fields))


def environ_of(folder: Path, **others: str) -> dict[str, str]:
    """The settings of a store and artifacts in the folder; handlers run where the test says."""
    return {
        "LEASEHOLD_ISOLATION": os.environ["LEASEHOLD_ISOLATION"],
        "LEASEHOLD_STORE": f"sqlite:///{folder}/runs.db",
        "LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts",
        **others,
    }


def message(run_id: str = "r-1", *, channel: str = "log", **fields: Any) -> EventMessage:
    """The message of a run that completed."""
    usable: dict[str, Any] = {
        "occurrence": "1",
        "pipeline": "letters",
        "event": AnnouncedEvent.RUN_COMPLETED,
        "priority": Priority.NORMAL,
        "step": "send",
        "summary": f"Run {run_id} of pipeline letters is completed.",
        "mark": "0a1b2c3d",
        "state": DeliveryState.DUE,
        "created_at": START,
        "updated_at": START,
        "shard": 0,
        "give_up_at": START + timedelta(days=1),
    }
    return EventMessage(Delivery(run_id=run_id, channel=channel, **(usable | fields)))


def let_pass(documents: Documents, run_id: str, by: timedelta) -> None:
    """Let so much time pass for a run, on a store whose time is its own: its times are earlier."""

    def decide(found: Document | None, _: datetime) -> Write[None]:
        assert found is not None
        return Write(None, _earlier(to_document(manifest_of(run_id, found)), by))

    documents.transact(run_ref(run_id), decide)


def _earlier(value: Any, by: timedelta) -> Any:
    if isinstance(value, datetime):
        return value - by
    if isinstance(value, Mapping):
        return {key: _earlier(one, by) for key, one in value.items()}
    return value
