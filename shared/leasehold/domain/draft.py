"""A draft: a change to a run while a transition decides it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Unpack

from leasehold.domain.alarm import OUTAGE, alarm_for, is_unattended
from leasehold.domain.announcing import announcement_of, deliveries_of
from leasehold.domain.archive import OwedArchive
from leasehold.domain.change import Change
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import leaves_artifacts
from leasehold.domain.kept_work import CallCount
from leasehold.domain.lease import Fence
from leasehold.domain.ledger import ledger_of
from leasehold.domain.life import step_folder
from leasehold.domain.manifest import Manifest, ManifestUpdate
from leasehold.domain.manifest_parts import Settlement, StepRecordUpdate
from leasehold.domain.notes import MadeOutput, Notes
from leasehold.domain.position import PositionUpdate
from leasehold.domain.status import AttemptEnd, Outcome
from leasehold.domain.stored import overwrite, trusted
from leasehold.domain.trace import TraceEvent, TraceType, event_of

_settlement = trusted(Settlement)
_owed_archive = trusted(OwedArchive)


class Draft:
    """One change in the making. A transition opens it, passes it on, and commits it once.

    The run is copied once, and the copy is changed from then on: whoever has it sees that.

    Args:
        before: the run as it is stored.
        now: the store's time.
        rules: the rules in force.
        fence: of the worker that settles its attempt; the run keeps the answer for it.

    Attributes:
        run: the run as decided so far.
        events: what is traced so far.
    """

    __slots__ = ("before", "events", "fence", "now", "rules", "run")

    def __init__(
        self, before: Manifest, now: datetime, rules: Rules, fence: Fence | None = None
    ) -> None:
        self.before = self.run = before
        self.now = now
        self.rules = rules
        self.fence = fence
        self.events: tuple[TraceEvent, ...] = ()

    def set(self, **update: Unpack[ManifestUpdate]) -> None:
        """Replace these fields of the run."""
        if self.run is self.before:
            self.run = self.before.with_(**update)
        else:
            overwrite(self.run, update)

    def set_position(self, **update: Unpack[PositionUpdate]) -> None:
        """Replace these fields of its position."""
        position = self.run.position
        if position is self.before.position:
            self.set(position=position.with_(**update))
        else:
            overwrite(position, update)

    def set_step(self, **update: Unpack[StepRecordUpdate]) -> None:
        """Replace these fields of the current step."""
        run, step = self.run, self.run.position.step
        if run.steps[step] is self.before.steps.get(step):
            self.set(steps=run.with_step(step, **update))
        else:
            overwrite(run.steps[step], update)

    def note(self, notes: Notes) -> None:
        """Keep what the attempt has to say beside its result."""
        if notes.progress is not None:
            self.set_step(progress=notes.progress)
        if notes.calls_spared is not None:
            calls = self.run.steps[self.run.position.step].calls or CallCount()
            self.set_step(calls=calls.with_(spared=notes.calls_spared))
        if notes.leaves_file:
            self.owe_folder()
        if notes.stores_files:
            self.set(has_files=True)
        if notes.output is not None and self.keep_output(notes.output):
            self.count_anew()

    def keep_output(self, made: MadeOutput) -> bool:
        """Keep the output of the current step; return whether it was not kept before."""
        run, lease = self.run, self.before.position.lease
        kept = run.steps[run.position.step].kept_output
        if kept is not None and kept == made.value:
            return False
        took = timedelta() if lease is None else self.now - lease.acquired_at
        self.set_step(
            completed_at=self.now,
            execution_seconds=max(0.0, took.total_seconds()),
            output=made.value.text,
            output_ref=made.value.ref,
            output_status=made.status,
            verdict=made.verdict,
        )
        return True

    def owe_folder(self) -> None:
        """Note that the current trial of the step may have temporary files, to be deleted later."""
        run = self.run
        folder = step_folder(run, run.position.step, run.position.trial)
        if folder not in run.owed:
            self.set(owed=(*run.owed, folder))

    def count_anew(self) -> None:
        """Count from zero what bounds attempts without progress: the step made some.

        A block that was looked at is over by that, too: a later one is another.
        """
        self.set_position(
            failures=0, interruptions=0, interrupted_at=None, silences=0, continuations=0
        )
        if self.run.position.dispatch.after_block is not None:
            self.set_position(dispatch=self.run.position.dispatch.with_(after_block=None))

    def count(self, end: AttemptEnd) -> None:
        """Count one more end of an attempt, for the step and in total."""
        run = self.run
        record = run.steps[run.position.step]
        self.set(steps=run.with_step(run.position.step, attempts=record.attempts.plus(end)))
        self.set_position(
            attempts=run.position.attempts.plus(end),
            failures=run.position.failures + (end is AttemptEnd.FAILED),
        )
        if end is AttemptEnd.EXPIRED and not self._lapsed_unattended:
            self.set_position(interruptions=run.position.interruptions + 1)
        if end is AttemptEnd.INTERRUPTED and not self._is_one_outage:
            self.set_position(interruptions=run.position.interruptions + 1, interrupted_at=self.now)

    @property
    def _lapsed_unattended(self) -> bool:
        """Whether nobody was there when the lease ran out: time off, or an outage."""
        lease = self.before.position.lease
        return lease is not None and is_unattended(lease.expires_at, self.now)

    @property
    def _is_one_outage(self) -> bool:
        """Whether a shutdown belongs to the same outage as the last one that counted."""
        last = self.run.position.interrupted_at
        return last is not None and abs(self.now - last) < OUTAGE

    def trace(self, type_: TraceType, **facts: Any) -> None:
        """Trace an event of the attempt that the run was in before."""
        self.events += (event_of(self.before, type_, self.now, **facts),)

    def trace_next(self, type_: TraceType, **facts: Any) -> None:
        """Trace an event of the attempt that the run is in by now."""
        self.events += (event_of(self.run, type_, self.now, **facts),)

    def commit(
        self,
        outcome: Outcome,
        created: Manifest | None = None,
    ) -> Change:
        """Return the change, with all that follows from it in order.

        Args:
            outcome: the answer for the caller.
            created: a further run.
        """
        told = announcement_of(self.before, self.run, self.events, self.now, self.rules)
        if told is not None:
            self.set(announcement=told)
        ends = self.run.is_terminal and not self.before.is_terminal
        if ends and leaves_artifacts(self.run):
            self.set(archive=_owed_archive(ended_at=self.now))
        if self.fence is not None:
            self.set_position(last_settlement=_answered(self.fence, outcome))
        self._index()
        rules = self.rules
        after = rules.delivery.give_up_after
        owed = () if told is None else deliveries_of(self.run, rules.grace, after)
        ledger = ledger_of(self.run) if ends else None
        return Change(outcome, self.run, self.events, created, deliveries=owed, ledger=ledger)

    def added_to(self, change: Change) -> Change:
        """Return a change that was decided before with what was drafted since, as one."""
        self._index()
        return change._replace(manifest=self.run, events=change.events + self.events)

    def _index(self) -> None:
        """Set what the run is found by, and what counts its events."""
        run = self.run
        self.set(
            current_step=run.position.step,
            updated_at=self.now,
            traced=run.traced + len(self.events),
            alarm_at=alarm_for(run, self.rules.grace, self.now),
            claimable=run.claimable_step,
        )


def _answered(fence: Fence, outcome: Outcome) -> Settlement:
    """Return the note of the answer, so that the same settlement gets it again."""
    return _settlement(lease_id=fence.lease_id, fencing_token=fence.fencing_token, outcome=outcome)
