"""Trials: one step of a pipeline writes, a later one reviews, until the reviewer is content."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from leasehold.domain.trial_record import TrialRule

#: A run keeps what each step did in each trial; this many fit into its document.
_MAX_TRIALS: Final = 100
_MAX_KEPT: Final = 200

#: A field, its value, and what is allowed in its place.
Problem = tuple[str, object, str]


@dataclass(frozen=True, slots=True)
class TrialPolicy:
    """The steps from `author` to `reviewer` run again until the reviewer's output is `settled`.

    The reviewer's output has the fields `settled` (whether no further trial is wanted), `score`
    (a number: of trials that did not settle, the highest counts) and `findings` (a list, which the
    next trial's author finds in `ctx.findings`). Another trial begins only where the author's
    output has the status SUCCESS.

    Args:
        author: the step that each trial begins with.
        reviewer: a later step of the pipeline, which each trial ends with.
        max_trials: how many trials there are at most, the first included; 1 to 100.
    """

    author: str
    reviewer: str
    max_trials: int

    def problems(self, steps: tuple[str, ...]) -> Iterator[Problem]:
        """Yield what keeps a pipeline of these steps from having these trials."""
        author, reviewer, count = self.author, self.reviewer, self.max_trials
        known = "a step of the pipeline: " + ", ".join(steps)
        places = []
        for field, step in (("author", author), ("reviewer", reviewer)):
            if isinstance(step, str) and step in steps:
                places.append(steps.index(step))
            else:
                yield f"trials.{field}", step, known
        if not _is_count(count):
            yield "trials.max_trials", count, f"a whole number from 1 to {_MAX_TRIALS}"
        if len(places) == 2:  # noqa: PLR2004 - author and reviewer
            yield from self._problems_of_loop(*places)

    def _problems_of_loop(self, first: int, last: int) -> Iterator[Problem]:
        if first == last:
            allowed = f"a step after {self.author!r}: no step reviews itself"
            yield "trials.reviewer", self.reviewer, allowed
        elif first > last:
            yield "trials.reviewer", self.reviewer, f"a step after the author, {self.author!r}"
        repeated = last - first + 1
        if first < last and _is_count(self.max_trials) and repeated * self.max_trials > _MAX_KEPT:
            fitting = _MAX_KEPT // repeated
            allowed = f"at most {fitting}, where a trial has {repeated} steps"
            yield "trials.max_trials", self.max_trials, allowed

    def as_rule(self) -> TrialRule:
        """Return the trials as a run keeps them."""
        return TrialRule(author=self.author, reviewer=self.reviewer, max_trials=self.max_trials)


def _is_count(value: Any) -> bool:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return is_whole and 1 <= value <= _MAX_TRIALS
