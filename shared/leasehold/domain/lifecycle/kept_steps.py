"""What a person's way back keeps of the work that was done: by a retry, or for a recreated run."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from leasehold.domain.checkpoint import CallResult, Checkpoint, KeptCounts
from leasehold.domain.kept_checkpoint import may_read
from leasehold.domain.lifecycle.start import NewRun
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Attempts, StepRecord
from leasehold.domain.recorded_calls import current_calls, kept_files, may_have_results, source_of
from leasehold.domain.signal import Signal, place_of
from leasehold.domain.status import RunStatus
from leasehold.domain.stored import replace
from leasehold.domain.trials import trial_at, trials_of, with_finished_trial
from leasehold.errors import InvalidRequestError, PartialOutputError


def begins_at(old: Manifest, new: NewRun, from_step: str | None) -> str:
    """Return the step that a recreated run begins at.

    Args:
        old: the run that it is made of.
        new: what it is started with.
        from_step: as a person says; None: where the old run stopped, or at the first step if it is
            completed or the new one has another input.
    """
    if from_step is not None:
        return from_step
    is_over = old.status is RunStatus.COMPLETED or new.input_digest != old.input_digest
    return new.plan[0] if is_over else old.position.step


def with_skips(old: Manifest, new: NewRun, from_step: str) -> NewRun:
    """Return a new run that leaves out what the old one skipped before the step it begins at."""
    plan, skipped = new.plan, old.skipped or ()
    before = plan[: plan.index(from_step)] if from_step in plan else ()
    kept = tuple(one for one in skipped if one.step in before and one.by in before)
    if not kept:
        return new
    gone = {one.step for one in kept}
    return new._replace(plan=tuple(name for name in plan if name not in gone), skipped=kept)


def goes_on(old: Manifest, new: NewRun, from_step: str) -> bool:
    """Return whether a recreated run goes on with the work of the step that the old one left."""
    is_same = old.status is not RunStatus.COMPLETED and from_step == old.position.step
    return is_same and new.input_digest == old.input_digest


def kept_steps(
    old: Manifest, new: NewRun, from_step: str, *, keep_partial: bool
) -> dict[str, StepRecord]:
    """Return the records of a new run that begins a step anew: the outputs before it are kept.

    Trials stay with the old run: what is kept of them is the one that counts. Where it was given up
    before there was one, the new run can begin behind them with the best of those that were over.

    Raises:
        InvalidRequestError: the plan has no such step, or an output before it is missing.
        PartialOutputError: an output before it is PARTIAL, and is not to be kept.
    """
    earlier, done = _outputs_before(old, new, from_step, keep_partial=keep_partial)
    fresh = StepRecord(status=RunStatus.PENDING)
    return {
        step: replace(done[step], trial=None, trials=None, spared=None)
        if step in earlier
        else fresh
        for step in new.plan
    }


def steps_to_go_on(
    old: Manifest, new: NewRun, from_step: str, *, keep_partial: bool
) -> dict[str, StepRecord]:
    """Return the records of a new run that goes on where the old one stopped, in the same trial.

    Raises:
        InvalidRequestError, PartialOutputError: as `kept_steps`.
    """
    _outputs_before(old, new, from_step, keep_partial=keep_partial)
    fresh = StepRecord(status=RunStatus.PENDING)
    again = replace(old.steps[from_step], status=RunStatus.PENDING)
    if from_step not in old.looped_steps:  # attempts of filed trials are counted with the step's
        again = replace(again, attempts=Attempts(), calls=None)
    if not old.has_unjudged_output:
        again = replace(again.to_run_again(), started_at=None, progress=None)
    known = {step: old.steps.get(step, fresh) for step in new.plan} | {from_step: again}
    steps = {step: replace(record, spared=None) for step, record in known.items()}
    if _loop(new.plan, new) == old.looped_steps:
        return steps
    return {step: replace(record, trial=None, trials=None) for step, record in steps.items()}


def with_work_of(old: Manifest, created: Manifest, lost: Collection[str]) -> Manifest:
    """Return a new run with trial, checkpoint and results of calls of the old one.

    Their files stay where they are: a run is purged after those that were made of it. An output
    that was not judged yet is judged, and the step not done once more.

    Args:
        old: the run that it is made of.
        created: the new run, at the step where the old one stopped.
        lost: artifacts that are not there any more: what they held is not kept.
    """
    trial = trial_at(created, created.position.step)
    gone = {name for name in kept_files(old) if name in lost or not may_read(old, name)}
    dispatch = replace(created.position.dispatch, trial=trial)
    if old.has_unjudged_output:
        block = old.block or old.position.dispatch.after_block
        dispatch = dispatch.to_be_judged(block and replace(block, looks=0))
    kept = replace(
        created,
        signals=_kept_signals(old, trial, gone),
        position=replace(
            created.position,
            trial=trial,
            dispatch=dispatch,
            checkpoint=_kept_checkpoint(old, trial, gone),
            calls=_kept_calls(old, created, trial, gone),
        ),
    )
    sources = tuple(one for one in old.call_sources or () if one.step in created.plan)
    if may_have_results(old):
        sources = (*sources, source_of(old, trial))
    others = {name.split("/")[1] for name in kept_files(kept)} | {one.run_id for one in sources}
    return replace(kept, call_sources=sources or None, shares=tuple(sorted(others)) or None)


def without_own_work(run: Manifest) -> Manifest:
    """Return the run without what its current step kept: checkpoint, results of calls, trials."""
    steps = run.steps
    if run.position.step in run.looped_steps:
        looped = {step: replace(steps[step], trial=None, trials=None) for step in run.looped_steps}
        steps = {**steps, **looped}
    step = run.position.step
    calls = tuple(call for call in run.position.calls if call.step != step)
    steps = {**steps, step: replace(steps[step], anew=(steps[step].anew or 0) + 1)}
    position = replace(
        run.position, trial=1, checkpoint=None, calls=calls, recorded_calls=0, recorded_spend=None
    )
    return replace(run, steps=steps, position=position)


def has_own_work(run: Manifest) -> bool:
    """Return whether the current step has kept something that could be dropped."""
    is_in_trials = run.position.step in run.looped_steps and trial_at(run, run.position.step) > 1
    is_begun = run.position.checkpoint is not None or run.position.children is not None
    has_results = is_begun or bool(_count_of_calls(run))
    return has_results or is_in_trials or run.has_unjudged_output


def kept_counts(run: Manifest) -> KeptCounts:
    """Return what the next attempt of a run finds of the work that was done, in numbers."""
    before = run.plan[: run.plan.index(run.position.step)]
    looped = run.looped_steps
    reviews = trials_of(run.steps[looped[-1]]) if looped else []
    is_unjudged = run.has_unjudged_output
    is_open = is_unjudged and run.position.step in looped[-1:]  # that trial is not over
    kept = run.position.checkpoint
    return KeptCounts(
        steps=sum(run.steps[step].status is RunStatus.COMPLETED for step in before),
        checkpoint=0 if kept is None else kept.iteration_count,
        calls=_count_of_calls(run),
        trials=sum(review.kept_output is not None for review in reviews) - is_open,
        unjudged=int(is_unjudged),
    )


def _count_of_calls(run: Manifest) -> int:
    """Return how many recorded calls count for the current step, as far as it was noted."""
    sources = run.call_sources or ()
    others = [one.recorded for one in sources if one.step == run.position.step]
    is_anew = run.steps[run.position.step].anew is not None
    return len(current_calls(run)) + run.position.recorded_calls + (0 if is_anew else sum(others))


def _kept_checkpoint(old: Manifest, trial: int, gone: Collection[str]) -> Checkpoint | None:
    """Return the checkpoint for another run, whose fencing tokens begin anew."""
    kept = old.position.checkpoint
    if kept is None or kept.partial_results.ref in gone:
        return None
    return replace(kept, trial=trial, fencing_token=0, reached=None)


def _kept_calls(
    old: Manifest, created: Manifest, trial: int, gone: Collection[str]
) -> tuple[CallResult, ...]:
    """Return the results that count now, and those that outlast their step."""
    own = (old.position.step, old.position.trial)
    calls = old.position.calls
    kept = [call for call in calls if call.step in created.plan and call.ref not in gone]
    of_trial = [replace(call, trial=trial) for call in kept if (call.step, call.trial) == own]
    others = [call for call in kept if call.keep and (call.step, call.trial) != own]
    return (*others, *of_trial)


def _kept_signals(old: Manifest, trial: int, gone: Collection[str]) -> tuple[Signal, ...] | None:
    """Return the signals that nothing has taken, and those of the step at hand, for its trial."""
    at, kept = old.position, []
    for one in old.signals or ():
        if one.ref in gone or one.is_missed:
            continue
        if one.taken_by is None:
            kept.append(one)
        elif one.taken_by == place_of(at.step, at.trial):
            kept.append(replace(one, taken_by=place_of(at.step, trial)))
    return tuple(kept) or None


def _outputs_before(
    old: Manifest, new: NewRun, from_step: str, *, keep_partial: bool
) -> tuple[tuple[str, ...], Mapping[str, StepRecord]]:
    """Return the steps before one, and the records of all that have an output, or refuse it."""
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
        missing = next((step for step in earlier if step not in done), "")
        why = f"step {missing} handed no output on" if from_step in plan else "no such step"
        allowed = f"{', '.join(possible)} ({why})"
        raise InvalidRequestError(field="fromStep", value=from_step, allowed=allowed)
    for step in earlier:
        if _is_partial(done[step]) and not keep_partial:
            raise PartialOutputError(run_id=old.run_id, from_step=from_step, step=step)
    return earlier, done


def _records(old: Manifest, from_step: str) -> Mapping[str, StepRecord]:
    looped = old.looped_steps
    is_behind = from_step in old.plan and looped and from_step not in looped
    return with_finished_trial(old) if is_behind else old.steps


def _loop(plan: tuple[str, ...], new: NewRun) -> tuple[str, ...]:
    """Return the steps that each trial of a new run has, as `Manifest.looped_steps`."""
    rule = new.trials
    if rule is None or rule.author not in plan or rule.reviewer not in plan:
        return ()
    return plan[plan.index(rule.author) : plan.index(rule.reviewer) + 1]


def _is_partial(record: StepRecord) -> bool:
    return record.output_status == "PARTIAL"
