"""Trials: the steps from an author to its reviewer run again until the reviewer is content.

The trial that is under way stands in the records of the steps; those that are over stand in their
`trials`. Once there will be no further one, the best of them takes the place in the records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final

import pydantic_core

from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import StepRecord, TrialRecord, TrialVerdict
from leasehold.domain.status import RunStatus
from leasehold.domain.stored import replace
from leasehold.errors import InvalidVerdictError

#: What a record says of one trial alone; all else it says of the step.
_OF_TRIAL: Final = (
    "output",
    "output_ref",
    "output_status",
    "summary",
    "started_at",
    "completed_at",
    "handed_off_at",
    "bootstrap_seconds",
    "execution_seconds",
    "cold_start",
    "first_tool",
    "verdict",
)
_BLANK: Final[Mapping[str, Any]] = dict.fromkeys(_OF_TRIAL)


class TrialsEnd(StrEnum):
    """Why there is no further trial."""

    SETTLED = "settled"
    USED_UP = "trials_used_up"
    REFUSED = "author_output_partial"  # what is not whole is not worth another trial


def trial_at(run: Manifest, step: str) -> int:
    """Return the number of the trial that the step is in, or comes to next; without trials 1."""
    return _next_number(run.steps[step]) if step in run.looped_steps else 1


def trial_words(run: Manifest) -> str:
    """Say in which trial the run is: `trial 2 of 3`; nothing in the first, or without trials."""
    rule = run.trials
    if rule is None or run.is_terminal or run.position.step not in run.looped_steps:
        return ""
    trial = trial_at(run, run.position.step)
    return f"trial {trial} of {rule.max_trials}" if trial > 1 else ""


def reviewed_step(run: Manifest) -> str | None:
    """Return the author, where the current step is its reviewer; else None."""
    looped = run.looped_steps
    return looped[0] if looped and run.position.step == looped[-1] else None


def last_review(run: Manifest) -> KeptValue | None:
    """Return the reviewer's output of the trial before the current one; None: it is the first."""
    looped = run.looped_steps
    if run.position.step not in looped:
        return None
    before = run.steps[looped[-1]].trials
    return before[-1].kept_output if before else None


def record_with_output(run: Manifest, step: str) -> StepRecord | TrialRecord | None:
    """Return the record that has the output of a step; None: there is none.

    That of this trial counts, else that of the trial before; once the trials are over, the best.
    """
    record = run.steps.get(step)
    if record is None or record.kept_output is not None:
        return record
    before = [one for one in record.trials or () if one.kept_output is not None]
    return before[-1] if before else None


def is_reviewed(run: Manifest) -> bool:
    """Return whether the current step is a reviewer that has judged its trial."""
    return reviewed_step(run) is not None and run.steps[run.position.step].verdict is not None


def opening_words(run: Manifest) -> str:
    """Say why a further trial begins after the current step."""
    reviewer, verdict = run.position.step, run.steps[run.position.step].verdict
    score = "" if verdict is None else f", score {verdict.score:g}"
    return f"step {reviewer} did not settle{score}"


def ends_trials(run: Manifest) -> TrialsEnd | None:
    """Return why no further trial begins after a step that `is_reviewed`; None: one does."""
    rule, verdict = run.trials, run.steps[run.position.step].verdict
    assert rule is not None  # noqa: S101 - it has a reviewer
    assert verdict is not None  # noqa: S101 - the caller says so
    if verdict.settled:
        return TrialsEnd.SETTLED
    if trial_at(run, run.position.step) >= rule.max_trials:
        return TrialsEnd.USED_UP
    is_whole = run.steps[rule.author].output_status == "SUCCESS"
    return None if is_whole else TrialsEnd.REFUSED


def with_trial_filed(run: Manifest) -> Mapping[str, StepRecord]:
    """Return the records of all steps as the next trial finds them."""
    filed = {
        step: replace(
            record,
            **_BLANK,
            status=RunStatus.PENDING,
            progress=None,
            rejected=None,
            trials=tuple(trials_of(record)),
        )
        for step, record in run.steps.items()
        if step in run.looped_steps
    }
    return {**run.steps, **filed}


def with_best_trial(run: Manifest) -> tuple[Mapping[str, StepRecord], TrialRecord]:
    """Return the records of all steps with the best trial in place, and the reviewer's of it."""
    best = best_of(trials_of(run.steps[run.position.step]))
    chosen = {step: _with_trial(run.steps[step], best.trial) for step in run.looped_steps}
    return {**run.steps, **chosen}, best


def with_finished_trial(run: Manifest) -> Mapping[str, StepRecord]:
    """Return the records of all steps, with the best trial that is over where one is under way."""
    looped = run.looped_steps
    reviewer = run.steps[looped[-1]]
    is_judged = reviewer.kept_output is not None and not run.has_unjudged_output
    if not reviewer.trials or is_judged:
        return run.steps
    best = best_of(reviewer.trials).trial
    finished = {
        step: replace(_with_trial(run.steps[step], best), status=RunStatus.COMPLETED)
        for step in looped
    }
    return {**run.steps, **finished}


def best_of(reviews: Iterable[TrialRecord]) -> TrialRecord:
    """Return the trial that counts: one that settled, else the highest score; of equals the last.

    Args:
        reviews: the reviewer's records, of which one at least has a verdict.
    """
    judged = [review for review in reviews if review.verdict is not None]
    return max(judged, key=attrgetter("verdict.settled", "verdict.score", "trial"))


def trials_of(record: StepRecord) -> list[TrialRecord]:
    """Return all trials of a step in their order, the one that stands in the record among them."""
    filed = record.trials or ()
    ended = record.attempts.ended - sum(one.attempts_ended for one in filed)
    facts = {name: getattr(record, name) for name in _OF_TRIAL}
    trial = _next_number(record) if record.trial is None else record.trial
    own = TrialRecord(trial=trial, attempts_ended=max(0, ended), **facts)
    return sorted((*filed, own), key=attrgetter("trial"))


def _with_trial(record: StepRecord, trial: int) -> StepRecord:
    """Return the record with that trial in place, and the others filed."""
    trials = trials_of(record)
    chosen = [one for one in trials if one.trial == trial]
    if not chosen:
        return record
    facts = {name: getattr(chosen[0], name) for name in _OF_TRIAL}
    others = tuple(one for one in trials if one.trial != trial)
    return replace(record, **facts, trial=trial, trials=others or None)


def _next_number(record: StepRecord) -> int:
    return 1 + max((one.trial for one in record.trials or ()), default=0)


# The verdict of a reviewer: what its output says of the trial that it ends.


_TYPES: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
}


def verdict_in(run: Manifest, output: str) -> TrialVerdict | None:
    """Return the verdict in the output of the current step; None: it is no reviewer.

    Args:
        run: the run; its own trials count, and not those of the catalog.
        output: JSON text.

    Raises:
        InvalidVerdictError: it has none.
    """
    if reviewed_step(run) is None:
        return None
    said = pydantic_core.from_json(output)
    problems = [*_problems(said)]
    if problems:
        raise InvalidVerdictError(step=run.position.step, problem="; ".join(problems))
    return TrialVerdict(settled=said["settled"], score=float(said["score"]))


def findings_in(review: str) -> list[Any]:
    """Return what a reviewer found, from its output as JSON text."""
    said = pydantic_core.from_json(review)
    findings: list[Any] = said.get("findings", []) if isinstance(said, dict) else []
    return findings


def _is_score(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


#: What is wanted of each field, in words and as a check.
_WANTED: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "settled": ("true or false", lambda value: isinstance(value, bool)),
    "score": ("a finite number", _is_score),
    "findings": ("a list", lambda value: isinstance(value, list)),
}


def _problems(said: Any) -> Iterator[str]:
    if not isinstance(said, dict):
        yield f"it is {_TYPES[type(said)]}, and not an object with {', '.join(_WANTED)}"
        return
    for field, (wanted, fits) in _WANTED.items():
        if field not in said:
            yield f"it lacks {field!r}, which has to be {wanted}"
        elif not fits(said[field]):
            yield f"its {field!r} is {_TYPES[type(said[field])]}, and has to be {wanted}"
