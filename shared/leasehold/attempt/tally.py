"""The tally of an attempt: the calls that are recorded, and what was spent."""

from __future__ import annotations

import threading
from collections.abc import Callable

from leasehold.domain.checkpoint import CallCount
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import StepRecord
from leasehold.domain.notes import Notes
from leasehold.domain.spend import NOTHING, Spend
from leasehold.errors import BudgetExceededError


class Tally:
    """What an attempt has counted so far; each is a total, so that to write it twice does no harm.

    Any thread may count.

    Args:
        run: returns the run as the attempt knows it now.
    """

    #: Of the class: many attempts count one of them alone.
    _calls: CallCount | None = None
    _recorded_calls = 0
    _recorded_spend: Spend | None = None
    _spared: Spend | None = None
    _spent: Spend | None = None

    def __init__(self, run: Callable[[], Manifest]) -> None:
        self._run = run
        self._counting = threading.Lock()

    def note_calls(self, *, made: int, spared: int, diverged: int, found: int) -> bool:
        """Count calls that are recorded; return whether the step is further than its run knows.

        Args:
            made: calls that were made and recorded now.
            spared: calls that a recorded result has spared.
            diverged: calls that are made again, as their request is another one.
            found: how many of the trial were recorded before this attempt. A worker that was
                killed had no time to say so.
        """
        with self._counting:
            before = self._calls or self._record.calls or CallCount()
            known = self._run().position.recorded_calls
            unheard = max(0, found - known)
            self._recorded_calls = max(self._recorded_calls, known) + made + unheard
            counted = CallCount(
                made=before.made + made + unheard,
                spared=before.spared + spared,
                diverged=(before.diverged or 0) + diverged or None,
            )
            self._calls = None if counted == CallCount() else counted  # a step without calls
        return bool(made or unheard) and self._counts_ends

    def note_spend(self, spend: Spend) -> None:
        """Count what was spent beside recorded calls."""
        with self._counting:
            self._spent = spend.plus(self._spent)

    def note_spared_spend(self, spend: Spend) -> None:
        """Count what calls had spent that recorded results have spared."""
        with self._counting:
            self._spared = spend.plus(self._spared or self._record.spared)

    def note_recorded_spend(self, spend: Spend) -> None:
        """Count what a recorded call has spent, or all those that earlier attempts recorded.

        Those of the attempt's own step and trial alone: what an earlier attempt recorded and did
        not live to count is counted by that.
        """
        with self._counting:
            self._recorded_spend = spend.plus(self._recorded_spend)

    def added_to(self, notes: Notes) -> Notes:
        """Return the notes with the counts."""
        return notes._replace(
            calls=self._calls,
            recorded_calls=self._recorded_calls,
            spared=self._spared,
            spent=self._spent,
            recorded_spend=self._recorded_spend,
        )

    @property
    def has_news(self) -> bool:
        """Whether the run does not know all that was spent, or how far the step is."""
        lease = self._run().position.lease
        has_spent = self._spent is not None and lease is not None and lease.spent != self._spent
        return has_spent or self.is_further

    @property
    def is_further(self) -> bool:
        """Whether calls are recorded that the run does not know of, and has to."""
        return self._recorded_calls > self._run().position.recorded_calls and self._counts_ends

    def check_budget(self) -> None:
        """Raise BudgetExceededError where the run, or its step, has spent all that it may.

        Spend that is not written yet counts. A run without a budget pays nothing for this.
        """
        run = self._run()
        if not run.has_budget:
            return
        at = run.position
        spent = (self._spent or NOTHING).beyond(None if at.lease is None else at.lease.spent)
        more = (self._recorded_spend or NOTHING).beyond(at.recorded_spend).plus(spent)
        if used_up := run.used_up(at.dispatch.budget, more):
            raise BudgetExceededError(used_up.finding)

    @property
    def _counts_ends(self) -> bool:
        """Whether ends without progress are counted, which a recorded call begins anew."""
        at = self._run().position
        return bool(at.failures or at.interruptions or at.silences or at.continuations)

    @property
    def _record(self) -> StepRecord:
        run = self._run()
        return run.steps[run.position.step]
