"""The calls of workers with their lease, also of those that lost it."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition
from leasehold.domain.checkpoint import CallCount, KeptValue
from leasehold.domain.kept_checkpoint import MAX_PHASES_COUNTED
from leasehold.domain.notes import Notes
from leasehold.domain.status import Outcome
from leasehold.errors import (
    InvalidRequestError,
    LeaseLostError,
)
from tests.properties.model import (
    TTL,
    Kept,
    Worker,
    text_of,
)
from tests.properties.world import World


class Workers(World):
    """A former holder of a lease, which writes with or without it."""

    def estimate(self, worker: Worker) -> datetime:
        """Return the store's time as a worker knows it that does not ask."""
        passed = self.elapsed - worker.seen.elapsed - worker.asleep
        return worker.seen.at + max(timedelta(), passed)

    def decided_at(self, worker: Worker, transition: Transition) -> datetime | None:
        """Return the time by which a write is decided; None: its worker gives up unasked.

        A worker that does not read decides on what it has seen, and the store takes that only
        if it is still what is stored; if not, the worker reads and decides again.
        """
        if worker.reads:
            return self.now
        at = self.estimate(worker)
        if worker.seen.version == self.versions[worker.run_id]:
            return at
        try:
            transition(worker.seen.manifest, at)
        except LeaseLostError:
            return None
        return self.now

    def keep_on(
        self,
        worker: Worker,
        transition: Transition,
        expected: Outcome,
        *,
        advances: bool = False,
    ) -> Change | None:
        """Renew the lease, and return the change; None where it was refused.

        At the dispatch deadline that is a failure, whoever renews: the first one since the
        progress that it `advances` by.
        """
        known, at = self.known[worker.run_id], self.decided_at(worker, transition)
        if at is None:
            return None
        if not self.holds(worker, at):
            self.refused(worker.run_id, transition, LeaseLostError, at)
            return None
        if advances:
            known.progress()
        is_late = at >= known.deadline
        expected = self.after_failure(worker.run_id) if is_late else expected
        change = self.commit(worker.run_id, transition, at)
        assert change.outcome is expected
        known.heard_at = at
        if is_late:
            assert [e.reason for e in change.events][:1] == ["dispatch_deadline_exceeded"]
            known.failed()
            known.let_go()
        else:
            known.ends_at = max(known.ends_at, min(at + TTL, known.cap))
        worker.seen, worker.asleep = self.seen(worker.run_id), timedelta()
        return change

    def renew(self, worker: Worker) -> None:
        renew = partial(lifecycle.renew, rules=self.in_force, fence=worker.fence)

        self.keep_on(worker, renew, Outcome.RENEWED)

    def checkpoint(self, worker: Worker, phase: str | None = None, more: int = 1) -> None:
        known = self.known[worker.run_id]
        last = known.checkpoint or Kept("", 3, 0)
        kept = Kept(phase or last.phase, last.iterations + more, worker.fence.fencing_token)
        checkpoint = partial(
            lifecycle.checkpoint,
            rules=self.in_force,
            fence=worker.fence,
            iteration_count=kept.iterations,
            phase=kept.phase,
            partial_results=KeptValue(text=text_of(worker)),
        )

        goes_back = kept.fencing_token == last.fencing_token and kept < last
        if goes_back and kept.phase == last.phase:
            if self.holds(worker, self.now):
                self.refused(worker.run_id, checkpoint, InvalidRequestError, self.now)
            return
        is_told_apart = kept.phase in known.furthest or len(known.furthest) < MAX_PHASES_COUNTED
        advances = is_told_apart and kept.iterations > known.furthest.get(kept.phase, -1)
        change = self.keep_on(worker, checkpoint, Outcome.CHECKPOINTED, advances=advances)

        if change is not None:
            known.checkpoint = kept
            if advances:
                known.furthest[kept.phase] = kept.iterations

    def checkpoint_again(self, worker: Worker) -> None:
        self.checkpoint(worker, more=0)

    def checkpoint_back(self, worker: Worker) -> None:
        self.checkpoint(worker, more=-1)

    def checkpoint_of_the_next_phase(self, worker: Worker) -> None:
        self.checkpoint(worker, phase=self.new_id(), more=-1)

    def hang(self, worker: Worker) -> None:
        """Beat on and on, each time at the last moment, towards the dispatch deadline."""
        worker.reads = True
        for _ in range(3):
            if self.holds(worker, self.now):
                self.now = self.known[worker.run_id].ends_at - timedelta(microseconds=1)
            self.renew(worker)

    def call_once(self, worker: Worker) -> None:
        """Tell of one more call that is recorded beside the run, with the next write."""
        self.tell_of_calls(worker, made=1)

    def spare_a_call(self, worker: Worker) -> None:
        """Tell of one more call that was spared, with the next write."""
        self.tell_of_calls(worker, spared=1)

    def tell_of_calls(self, worker: Worker, *, made: int = 0, spared: int = 0) -> None:
        known, step = self.known[worker.run_id], self.runs[worker.run_id].current_step
        total = CallCount(made=known.made[step] + made, spared=known.spared[step] + spared)
        notes = Notes(calls=total, recorded_calls=known.recorded + made)
        renew = partial(lifecycle.renew, rules=self.in_force, fence=worker.fence, notes=notes)

        change = self.keep_on(worker, renew, Outcome.RENEWED, advances=made > 0)

        if change is not None:
            known.recorded += made
            known.made[step] += made
            known.spared[step] += spared

    def lease_is_over(self, worker: Worker) -> None:
        self.expire(worker.run_id, worker.fence.lease_id, gone=False)

    def holder_is_gone(self, worker: Worker) -> None:
        self.expire(worker.run_id, worker.fence.lease_id, gone=True)

    def holds(self, worker: Worker, at: datetime) -> bool:
        known = self.known[worker.run_id]
        return known.holder == worker.fence.lease_id and at < known.ends_at
