"""What a recreated run keeps of the old one: the outputs before the step that it begins at."""

from __future__ import annotations

from collections.abc import Mapping

from leasehold.domain.lifecycle.start import NewRun
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import StepRecord
from leasehold.domain.status import RunStatus
from leasehold.domain.trials import with_finished_trial
from leasehold.errors import InvalidRequestError, PartialOutputError


def kept_steps(
    old: Manifest, new: NewRun, from_step: str, *, keep_partial: bool
) -> dict[str, StepRecord]:
    """Return the records that the new run begins with.

    Trials stay with the old run: what is kept of them is the one that counts. Where it was given up
    before there was one, the new run can begin behind them with the best of those that were over.

    Raises:
        InvalidRequestError: the plan has no such step, or an output before it is missing.
        PartialOutputError: an output before it is PARTIAL, and is not to be kept.
    """
    plan = new.plan
    earlier = plan[: plan.index(from_step)] if from_step in plan else plan
    done = {
        step: record
        for step, record in _records(old, from_step).items()
        if record.status is RunStatus.COMPLETED  # not one whose output a gate refused
    }
    if from_step not in plan or any(step not in done for step in earlier):
        whole = done if keep_partial else {s: r for s, r in done.items() if not _is_partial(r)}
        possible = [s for i, s in enumerate(plan) if all(e in whole for e in plan[:i])]
        raise InvalidRequestError(field="fromStep", value=from_step, allowed=", ".join(possible))
    for step in earlier:
        if _is_partial(done[step]) and not keep_partial:
            raise PartialOutputError(run_id=old.run_id, from_step=from_step, step=step)
    fresh = StepRecord(status=RunStatus.PENDING)
    return {
        step: done[step].with_(trial=None, trials=None) if step in earlier else fresh
        for step in plan
    }


def _records(old: Manifest, from_step: str) -> Mapping[str, StepRecord]:
    looped = old.looped_steps
    is_behind = from_step in old.plan and looped and from_step not in looped
    return with_finished_trial(old) if is_behind else old.steps


def _is_partial(record: StepRecord) -> bool:
    return record.output_status == "PARTIAL"
