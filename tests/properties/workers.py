"""The calls of workers with their lease, also of those that lost it."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition
from leasehold.domain.checkpoint import CallResult, KeptValue
from leasehold.domain.kept_checkpoint import MAX_PHASES
from leasehold.domain.notes import Notes
from leasehold.domain.status import Outcome
from leasehold.errors import (
    InvalidRequestError,
    LeaseLostError,
)
from tests.properties.model import (
    TTL,
    Call,
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
        is_told_apart = kept.phase in known.furthest or len(known.furthest) < MAX_PHASES
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

    def call_once(self, worker: Worker, key: str = "model") -> None:
        """Record the result of a call, or find that it is recorded and spare one."""
        known, manifest = self.known[worker.run_id], self.runs[worker.run_id]
        step, trial, keep = manifest.current_step, manifest.position.trial, key == "kept"
        found = [
            call
            for call in known.calls
            if (call.step, call.key) == (step, key) and (call.keep or call.trial == trial)
        ]
        result = CallResult(
            step=step, trial=trial, key=key, type="str", inline=text_of(worker), keep=keep
        )
        record = partial(
            lifecycle.record_call, rules=self.in_force, fence=worker.fence, call=result
        )

        change = self.keep_on(worker, record, Outcome.RENEWED, advances=not found)

        if change is not None and not found:
            known.calls.append(Call(step, trial, key, text_of(worker), keep))
            known.made[step] += 1

    def call_that_is_kept(self, worker: Worker) -> None:
        self.call_once(worker, "kept")

    def spare_a_call(self, worker: Worker) -> None:
        """Tell of one more call that was spared, with the next write."""
        known, step = self.known[worker.run_id], self.runs[worker.run_id].current_step
        notes = Notes(calls_spared=known.spared[step] + 1)
        renew = partial(lifecycle.renew, rules=self.in_force, fence=worker.fence, notes=notes)

        change = self.keep_on(worker, renew, Outcome.RENEWED)

        if change is not None:
            known.spared[step] += 1

    def lease_is_over(self, worker: Worker) -> None:
        self.expire(worker.run_id, worker.fence.lease_id, gone=False)

    def holder_is_gone(self, worker: Worker) -> None:
        self.expire(worker.run_id, worker.fence.lease_id, gone=True)

    def holds(self, worker: Worker, at: datetime) -> bool:
        known = self.known[worker.run_id]
        return known.holder == worker.fence.lease_id and at < known.ends_at
