"""A run as a test says that it is: at work on one step, with the outputs before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from leasehold.domain.calls import check_call_key
from leasehold.domain.dispatch import Rules, StepSettings
from leasehold.domain.kept_value import KeptValue
from leasehold.domain.kept_work import CallResult, Checkpoint, PhaseReached
from leasehold.domain.lifecycle.start import NewRun, new_manifest
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Lease, StepRecord
from leasehold.domain.status import RunStatus
from leasehold.domain.trial_record import TrialRecord, TrialRule
from leasehold.ports.clock import Clock
from leasehold.testing.arguments import checked_mapping, checked_run_id, json_text, refuse
from leasehold.worker.context import IncrementalState

#: Of the lease of such a run: nothing ends it.
LEASE: Final = timedelta(days=365)

#: A step whose output is an ERROR has none that is kept.
_KEPT: Final = ("SUCCESS", "PARTIAL")


class RoomyRun(Manifest):
    """A run of a test: it has room for any text. A real one keeps the large ones in files."""

    @property
    def text_bytes(self) -> int:
        """Nothing."""
        return 0


def run_at_work(
    clock: Clock,
    run_id: str,
    step_type: str,
    outputs: Mapping[str, Any],
    time_left: timedelta,
) -> Manifest:
    """Return a run whose step is at work, with the outputs of the steps before it."""
    if not isinstance(step_type, str) or not step_type or step_type in outputs:
        refuse("step_type", step_type, "the name of a step that is not in outputs")
    settings = _settings(step_type, time_left)
    done = {
        name: StepRecord(status=RunStatus.COMPLETED, output=json_text(f"outputs[{name!r}]", value))
        for name, value in outputs.items()
    }
    new = NewRun(
        run_id=checked_run_id(run_id),
        pipeline="test",
        plan=(*outputs, step_type),
        input=KeptValue(text="null"),
        input_digest="",
        nonce=run_id,  # the same run has the same life: contexts on one folder share its files
    )
    now = clock.now()
    manifest = new_manifest(
        now,
        rules=Rules(settings_for={step_type: settings}.get),
        settings=settings,
        new=new,
        steps={**done, step_type: StepRecord(status=RunStatus.IN_PROGRESS)},
    )
    run = RoomyRun.model_construct(None, **dict(manifest))
    return run.with_(status=RunStatus.IN_PROGRESS, fencing_token=1).at(lease=_lease(clock, now))


def checkpoint_of(clock: Clock, run: Manifest, resume: IncrementalState) -> Checkpoint:
    """Return what an earlier attempt kept, as the run has it."""
    fits = isinstance(resume, IncrementalState) and isinstance(resume.phase, str)
    if not fits or type(resume.iteration_count) is not int or resume.iteration_count < 0:
        allowed = "IncrementalState(phase: str, iteration_count: int, partial_results), or None"
        refuse("resume", resume, allowed)
    return Checkpoint(
        step=run.position.step,
        trial=run.position.trial,
        phase=resume.phase,
        iteration_count=resume.iteration_count,
        inline=json_text("resume", resume.partial_results),
        saved_at=clock.now(),
        fencing_token=run.fencing_token - 1,
        furthest=(PhaseReached(phase=resume.phase, iteration_count=resume.iteration_count),),
    )


def with_statuses(run: Manifest, statuses: Mapping[str, str]) -> Manifest:
    """Return the run with these statuses of the outputs that it has."""
    known = [step for step, record in run.steps.items() if record.kept_output is not None]
    for step, status in checked_mapping("statuses", statuses, str, "texts").items():
        if step not in known:
            refuse("statuses", step, ", ".join(known) or "none: no outputs are given")
        if status not in _KEPT:
            refuse(f"statuses[{step!r}]", status, ", ".join(_KEPT))
        run = run.with_(steps=run.with_step(step, output_status=status))
    return run


def after_review(run: Manifest, findings: Sequence[Any]) -> Manifest:
    """Return the run in the trial after one whose reviewer found that."""
    if not isinstance(findings, list | tuple):
        refuse("findings", findings, "a list of JSON values")
    if not findings:
        return run
    if run.position.trial == 1:
        refuse("findings", [*findings], "none in the first trial; give trial=2 as well")
    text = json_text("findings", {"findings": [*findings]})
    review = TrialRecord(trial=run.position.trial - 1, output=text, output_status="SUCCESS")
    reviewer = f"review of {run.position.step}"
    record = StepRecord(status=RunStatus.PENDING, trials=(review,))
    return run.with_(
        plan=(*run.plan, reviewer),
        steps={**run.steps, reviewer: record},
        trials=TrialRule(
            author=run.position.step, reviewer=reviewer, max_trials=run.position.trial
        ),
    )


def results_of(step_type: str, trial: int, calls: Mapping[str, Any]) -> tuple[CallResult, ...]:
    """Return the results of calls made once by earlier attempts, as a run has them."""
    for key in calls:
        check_call_key(key)
    return tuple(
        CallResult(
            step=step_type,
            trial=trial,
            key=key,
            type="",  # as the handler reads it
            inline=json_text(f"calls[{key!r}]", value),
        )
        for key, value in calls.items()
    )


def _settings(step_type: str, time_left: timedelta) -> StepSettings:
    return StepSettings(
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


def _lease(clock: Clock, now: datetime) -> Lease:
    ends = now + LEASE
    return Lease(
        lease_id=clock.new_id(),
        holder="test",
        acquired_at=now,
        expires_at=ends,
        max_expires_at=ends,
    )
