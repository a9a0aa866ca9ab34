"""The end of a trial: another one begins, or the best of them is put in place."""

from __future__ import annotations

from leasehold.domain.change import Draft
from leasehold.domain.manifest import Manifest
from leasehold.domain.trace import TraceType, event_of
from leasehold.domain.trial_record import TrialRecord
from leasehold.domain.trials import TrialsEnd, ends_trials, reviewed_step, trial_at, with_best_trial


def end_trial(draft: Draft) -> bool:
    """Return whether another trial is to begin, where a reviewer's output is handed off.

    If none is, the best trial has its place in the records of the steps by then.
    """
    run = draft.run
    author = reviewed_step(run)
    if author is None or run.steps[run.position.step].verdict is None:
        return False
    end = ends_trials(run)
    if end is None:
        return True
    if end is TrialsEnd.REFUSED:
        status = run.steps[author].output_status
        detail = f"The output of step {author} is {status}: no further trial begins."
        draft.trace(TraceType.AUTHOR_SLOT_REFUSED, reason=end.value, detail=detail)
    steps, best = with_best_trial(run)
    draft.set(steps=steps)
    _trace_choice(draft, end, best)
    return False


def opening_words(before: Manifest) -> str:
    """Say why a further trial begins after this step."""
    reviewer, verdict = before.position.step, before.steps[before.position.step].verdict
    score = "" if verdict is None else f", score {verdict.score:g}"
    return f"step {reviewer} did not settle{score}"


def _trace_choice(draft: Draft, end: TrialsEnd, best: TrialRecord) -> None:
    """Trace which trial counts, as an event of that trial."""
    run, verdict = draft.before, best.verdict
    made = trial_at(run, run.position.step)
    assert run.trials is not None  # noqa: S101 - it had trials
    assert verdict is not None  # noqa: S101 - by which it was chosen
    event = event_of(
        run.at(trial=best.trial),
        TraceType.TRIAL_CHOSEN,
        draft.now,
        reason=end.value,
        detail=f"score {verdict.score:g}, after {made} of {run.trials.max_trials} trials",
        score=verdict.score,
    )
    draft.events += (event,)
