"""How an attempt begins: by a hint, by a sweep that finds what was lost, or by a claim."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from leasehold.domain import lifecycle
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import DeadLetterReason, Outcome, RunStatus
from leasehold.errors import (
    LeaseHeldError,
    NothingToClaimError,
)
from tests.properties.model import (
    MAX_INTERRUPTIONS,
    WAIT,
    tasks_of,
)
from tests.properties.world import World


class Deliveries(World):
    """Tasks, sweeps and claims, in time and late."""

    def current_hint(self, run_id: str) -> None:
        self.hint(run_id, self.runs[run_id].dispatch.generation)

    def old_hint(self, run_id: str) -> None:
        self.hint(run_id, self.runs[run_id].dispatch.generation - 1)

    def forged_hint(self, run_id: str) -> None:
        self.hint(run_id, self.runs[run_id].dispatch.generation + 1)

    def sweep_in_time(self, run_id: str) -> None:
        self.now = max(self.now, self.runs[run_id].alarm_at or self.now)
        self.sweep(run_id)

    def sweep(self, run_id: str) -> None:
        manifest = self.runs[run_id]
        if not manifest.is_moving or self.now < manifest.alarm_at:
            return
        if manifest.lease is None:
            generation = manifest.dispatch.generation
            in_queue = any((t.run_id, t.generation) == (run_id, generation) for t in self.tasks)
            self.redispatch(run_id, generation, in_queue=in_queue)
        else:
            self.expire(run_id, manifest.lease.lease_id, gone=False)

    def sweep_of_long_ago(self, run_id: str) -> None:
        """A sweep that read the run a while ago, and finds it moved."""
        generation = self.runs[run_id].dispatch.generation
        self.redispatch(run_id, generation - 1, in_queue=False)
        self.redispatch(run_id, generation, in_queue=False)

    def redispatch(self, run_id: str, generation: int, *, in_queue: bool) -> None:
        manifest, known = self.runs[run_id], self.known[run_id]
        lost = known.lost + (not in_queue and not known.elsewhere)
        waits = manifest.is_moving and manifest.lease is None
        late = waits and manifest.alarm_at <= self.now
        step, expected = manifest.current_step, Outcome.MOVED_ON
        if late and generation == manifest.dispatch.generation:
            expected = self.after_a_wait(run_id, in_queue=in_queue)
            lost = 0 if known.elsewhere is not self.is_away(step) else lost
        redispatch = partial(
            lifecycle.redispatch, rules=self.in_force, generation=generation, in_queue=in_queue
        )

        change = self.commit(run_id, redispatch)

        assert change.outcome is expected
        assert change.changed is (expected is not Outcome.MOVED_ON)
        if change.outcome is Outcome.REDISPATCHED:
            known.lost = lost
            owed = [] if self.is_away(step) else [self.now]
            assert [task.not_before for task in tasks_of(change)] == owed
        if change.outcome is Outcome.DEAD_LETTERED:
            assert change.manifest.dead_letter_reason is DeadLetterReason.NEVER_STARTED
            since = manifest.dispatch.not_before
            assert self.now >= since + WAIT if known.elsewhere else lost > MAX_INTERRUPTIONS

    def after_a_wait(self, run_id: str, *, in_queue: bool) -> Outcome:
        """Return what a sweep makes of a run that waited in vain until now."""
        known, step = self.known[run_id], self.runs[run_id].current_step
        if known.elsewhere and self.is_away(step):
            return Outcome.DEAD_LETTERED
        moved = known.elsewhere is not self.is_away(step)
        if moved or not (in_queue or self.is_known(step)):
            return self.blocked_or(step, Outcome.REDISPATCHED)
        if in_queue:
            return Outcome.STILL_QUEUED
        gone = known.lost == MAX_INTERRUPTIONS
        return Outcome.DEAD_LETTERED if gone else Outcome.REDISPATCHED

    def hint(self, run_id: str, generation: int) -> None:
        expected = self.answer_to_hint(run_id, generation)
        known, lease_id = self.known[run_id], self.new_id()
        cut_short = known.holder is not None and self.now >= known.ends_at
        silent = cut_short and self.is_silent(run_id)
        arrive = partial(
            lifecycle.arrive,
            rules=self.in_force,
            generation=generation,
            lease_id=lease_id,
            holder=f"worker-{lease_id}",
        )

        change = self.commit(run_id, arrive)

        assert change.outcome is expected
        if cut_short and change.changed:
            known.lapsed(silent=silent)
        if change.outcome is Outcome.ACQUIRED:
            step = change.manifest.current_step
            assert not known.elsewhere, "no hint gets a step that runs elsewhere"
            assert not self.is_away(step), "nor one that a deploy moved there"
            self.leased(run_id, change, lease_id)
        if change.outcome is Outcome.LEASE_HELD:
            assert [task.not_before for task in tasks_of(change)] == [
                known.ends_at + timedelta(seconds=2)
            ]

    def answer_to_hint(self, run_id: str, generation: int) -> Outcome:
        manifest, known = self.runs[run_id], self.known[run_id]
        if generation > manifest.dispatch.generation:
            return Outcome.REJECTED
        if manifest.cancelled or manifest.dead_lettered:
            return Outcome.CANCELLED if manifest.cancelled else Outcome.DEAD_LETTERED
        if manifest.is_terminal:
            return Outcome.ALREADY_COMPLETED
        if generation < manifest.dispatch.generation:
            return Outcome.STALE
        if known.holder is not None and self.now < known.ends_at:
            return Outcome.LEASE_HELD
        return self.answer_to_current_hint(run_id, manifest)

    def answer_to_current_hint(self, run_id: str, manifest: Manifest) -> Outcome:
        known = self.known[run_id]
        is_here = self.is_known(manifest.current_step) and not self.is_away(manifest.current_step)
        if known.holder is not None:
            expired, hung = Outcome.ACQUIRED, Outcome.RETRY_SCHEDULED
            if known.elsewhere or not is_here:
                is_away = self.is_away(manifest.current_step)
                expired = hung = Outcome.AWAITS_CLAIM if is_away else Outcome.RETRY_SCHEDULED
            if manifest.paused:
                expired = hung = Outcome.PARKED
            return self.after_lapse(run_id, expired, hung)
        if manifest.paused or manifest.status is RunStatus.BLOCKED:
            return Outcome.PARKED if manifest.paused else Outcome.BLOCKED
        if known.elsewhere:
            return Outcome.AWAITS_CLAIM
        if self.now + timedelta(seconds=2) < manifest.dispatch.not_before:
            return Outcome.RETRY_SCHEDULED
        taken = Outcome.ACQUIRED if is_here else Outcome.AWAITS_CLAIM
        return self.blocked_or(manifest.current_step, taken)

    def claim(self, run_id: str) -> None:
        """A worker elsewhere asks for the step of a run; no hint told it to."""
        manifest, known = self.runs[run_id], self.known[run_id]
        lease_id = self.new_id()
        claim = partial(
            lifecycle.claim, rules=self.in_force, lease_id=lease_id, holder=f"laptop-{lease_id}"
        )
        takes_over, silent = known.holder is not None, self.is_silent(run_id)
        rests = manifest.is_terminal or manifest.paused or manifest.status is RunStatus.BLOCKED
        is_early = self.now + timedelta(seconds=2) < manifest.dispatch.not_before
        if takes_over and self.now < known.ends_at:
            self.refused(run_id, claim, LeaseHeldError)
            return
        if rests or not self.is_known(manifest.current_step) or (is_early and not takes_over):
            self.refused(run_id, claim, NothingToClaimError)
            return
        expected = Outcome.ACQUIRED
        if takes_over:
            expected = self.after_lapse(run_id, expected, Outcome.RETRY_SCHEDULED)
        elif known.elsewhere and self.now >= manifest.dispatch.not_before + WAIT:
            is_late = self.is_away(manifest.current_step)  # if not, a deploy took it back
            expected = Outcome.DEAD_LETTERED if is_late else expected

        change = self.commit(run_id, claim)

        assert change.outcome is expected
        assert not tasks_of(change) or change.outcome is Outcome.RETRY_SCHEDULED
        if takes_over:
            known.lapsed(silent=silent)
        if change.outcome is Outcome.ACQUIRED:
            self.leased(run_id, change, lease_id)
