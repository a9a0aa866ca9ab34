"""A run as a test says that it is: at work on one step, with the outputs before it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import pydantic_core

from leasehold.domain.dispatch import Rules, StepSettings
from leasehold.domain.json_text import check_depth
from leasehold.domain.lifecycle.start import NewRun, new_manifest
from leasehold.domain.manifest import Manifest, is_run_id
from leasehold.domain.manifest_parts import Checkpoint, KeptValue, Lease, StepRecord
from leasehold.domain.printable import printable
from leasehold.domain.status import RunStatus
from leasehold.errors import InvalidRequestError
from leasehold.ports.clock import Clock
from leasehold.worker.context import IncrementalState

_MAX_SHOWN: Final = 200
_MAX_TIME_S: Final = 86_400.0
#: Of the lease of such a run: nothing ends it.
LEASE: Final = timedelta(days=365)


def run_at_work(
    clock: Clock,
    run_id: str,
    step_type: str,
    outputs: Mapping[str, Any],
    time_left: timedelta,
) -> Manifest:
    """Return a run whose step is at work, with the outputs of the steps before it."""
    if not isinstance(run_id, str) or not is_run_id(run_id):
        allowed = "up to 128 of a-z A-Z 0-9 _ -, beginning with a letter or digit"
        raise InvalidRequestError(field="run_id", value=shown(run_id), allowed=allowed)
    if not isinstance(step_type, str) or not step_type or step_type in outputs:
        allowed = "the name of a step that is not in outputs"
        raise InvalidRequestError(field="step_type", value=shown(step_type), allowed=allowed)
    settings = StepSettings(
        step_type=step_type,
        agent_timeout=time_left,
        dispatch_deadline=LEASE,
        max_retries=5,
        heartbeat=None,
        queue=step_type,
        remote=False,
        schedule_to_start=timedelta(hours=1),
        sources={},
    )
    done = {
        name: StepRecord(status=RunStatus.COMPLETED, output=json_text(f"outputs[{name!r}]", value))
        for name, value in outputs.items()
    }
    new = NewRun(
        run_id=run_id,
        pipeline="test",
        plan=(*outputs, step_type),
        input=KeptValue(text="null"),
        input_digest="",
        nonce=clock.new_id(),
    )
    now = clock.now()
    manifest = new_manifest(
        now,
        rules=Rules(settings_for={step_type: settings}.get),
        settings=settings,
        new=new,
        steps={**done, step_type: StepRecord(status=RunStatus.IN_PROGRESS)},
    )
    ends = now + LEASE
    lease = Lease(
        lease_id=clock.new_id(),
        holder="test",
        acquired_at=now,
        expires_at=ends,
        max_expires_at=ends,
    )
    return manifest.with_(status=RunStatus.IN_PROGRESS, lease=lease, fencing_token=1)


def checkpoint_of(clock: Clock, step_type: str, resume: IncrementalState) -> Checkpoint:
    """Return what an earlier attempt kept, as a run has it."""
    fits = isinstance(resume, IncrementalState) and isinstance(resume.phase, str)
    if not fits or type(resume.iteration_count) is not int or resume.iteration_count < 0:
        allowed = "IncrementalState(phase: str, iteration_count: int, partial_results), or None"
        raise InvalidRequestError(field="resume", value=shown(resume), allowed=allowed)
    return Checkpoint(
        step=step_type,
        trial=1,
        phase=resume.phase,
        iteration_count=resume.iteration_count,
        inline=json_text("resume", resume.partial_results),
        saved_at=clock.now(),
        fencing_token=1,
    )


def json_text(field_name: str, value: Any) -> str:
    """Return the JSON text of a value, as the engine keeps it."""
    try:
        text = pydantic_core.to_json(value, inf_nan_mode="constants").decode()
        pydantic_core.from_json(text, allow_inf_nan=False)
        check_depth(text)
    except ValueError as error:
        problem = str(error)[:_MAX_SHOWN]
        raise InvalidRequestError(field=field_name, value=problem, allowed="JSON values") from None
    return text


def duration(time_left: timedelta | float) -> timedelta:
    """Return a time that is left, or raise InvalidRequestError."""
    is_number = isinstance(time_left, int | float) and not isinstance(time_left, bool)
    seconds = time_left.total_seconds() if isinstance(time_left, timedelta) else time_left
    if not (is_number or isinstance(time_left, timedelta)) or not 0 <= seconds <= _MAX_TIME_S:
        allowed = f"a timedelta or seconds from 0 to {_MAX_TIME_S:g}"
        raise InvalidRequestError(field="time_left", value=shown(time_left), allowed=allowed)
    return timedelta(seconds=seconds)


def check_number(field_name: str, value: object) -> None:
    """Raise InvalidRequestError where the value is no number that counts from 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        allowed = "a whole number from 1 on"
        raise InvalidRequestError(field=field_name, value=shown(value), allowed=allowed)


def shown(value: object) -> str:
    """Return a value as a message repeats it."""
    return printable(value if isinstance(value, str) else repr(value))[:_MAX_SHOWN]
