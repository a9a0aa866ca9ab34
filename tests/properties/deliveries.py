"""How an attempt begins: by a hint, by a sweep that finds what was lost, or by a claim."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from leasehold.domain import lifecycle
from leasehold.domain.effect import dispatch_task
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import DeadLetterReason, Outcome, RunStatus
from leasehold.errors import (
    LeaseHeldError,
    NothingToClaimError,
)
from tests.properties.model import (
    GRACE,
    MAX_INTERRUPTIONS,
    NOBODY,
    WAIT,
    WINDOW,
    tasks_of,
)
from tests.properties.world import World


class Deliveries(World):
    """Tasks, sweeps and claims, in time and late."""

    def current_hint(self, run_id: str) -> None:
        self.hint(run_id, self.runs[run_id].position.dispatch.generation)

    def old_hint(self, run_id: str) -> None:
        self.hint(run_id, self.runs[run_id].position.dispatch.generation - 1)

    def forged_hint(self, run_id: str) -> None:
        self.hint(run_id, self.runs[run_id].position.dispatch.generation + 1)

    def sweep_in_time(self, run_id: str) -> None:
        self.now = max(self.now, self.runs[run_id].alarm_at or self.now)
        self.sweep(run_id)

    def look_on_and_on(self, run_id: str) -> None:
        """Look whenever it is time, until the run moves or is given up."""
        for _ in range(MAX_INTERRUPTIONS + 1):
            self.sweep_in_time(run_id)

    def sweep(self, run_id: str) -> None:
        manifest = self.runs[run_id]
        if manifest.look_at is not None:
            self.look_again(run_id)
        if not manifest.is_moving or self.now < manifest.alarm_at:
            return
        if manifest.position.lease is None:
            generation = manifest.position.dispatch.generation
            in_queue = any((t.run_id, t.generation) == (run_id, generation) for t in self.tasks)
            self.redispatch(run_id, generation, in_queue=in_queue)
        else:
            self.expire(run_id, manifest.position.lease.lease_id, gone=False)

    def sweep_of_long_ago(self, run_id: str) -> None:
        """A sweep that read the run a while ago, and finds it moved."""
        generation = self.runs[run_id].position.dispatch.generation
        self.redispatch(run_id, generation - 1, in_queue=False)
        self.redispatch(run_id, generation, in_queue=False)

    def redispatch(self, run_id: str, generation: int, *, in_queue: bool | None) -> None:
        manifest, known = self.runs[run_id], self.known[run_id]
        step, now = manifest.current_step, self.now
        waits = manifest.is_moving and manifest.position.lease is None
        is_due = waits and manifest.alarm_at <= now
        expected, reason = Outcome.MOVED_ON, None
        nobody_was_there = is_due and now > manifest.alarm_at + NOBODY
        lost, since = known.lost + 1, known.lost_since or now
        if nobody_was_there:
            lost, since = 0, now
        if is_due and generation == manifest.position.dispatch.generation:
            if in_queue is False and not nobody_was_there:
                reason = self.reason_after(run_id, lost, since)
            expected = self.after_a_wait(run_id, in_queue=in_queue, given_up=reason is not None)
        counted: tuple[int, datetime | None] = (lost, since)
        if not self.is_known(step):
            counted = (known.lost, known.lost_since)
        elif self.has_moved(run_id):
            counted = (0, None)
        redispatch = partial(
            lifecycle.redispatch,
            rules=self.in_force,
            generation=generation,
            in_queue=in_queue,
            known_elsewhere=self.others_know,
        )

        change = self.commit(run_id, redispatch)

        assert change.outcome is expected
        is_left = expected is Outcome.STILL_QUEUED and not self.is_known(step)
        is_taken = expected is Outcome.STILL_QUEUED and in_queue is None
        assert change.changed is not (expected is Outcome.MOVED_ON or is_left or is_taken)
        if is_taken and not is_left:
            assert [task.generation for task in tasks_of(change)] == [generation]
        if expected is Outcome.STILL_QUEUED and in_queue and not is_left:
            known.lost_since = None
        if change.outcome is Outcome.REDISPATCHED:
            known.lost, known.lost_since = counted
            owed = [] if known.elsewhere else [self.now]
            assert [task.not_before for task in tasks_of(change)] == owed
        if change.outcome is Outcome.DEAD_LETTERED:
            assert change.manifest.dead_letter_reason is reason

    def reason_after(self, run_id: str, lost: int, since: datetime) -> DeadLetterReason | None:
        """Return why the sweep gives up a run whose task is lost, or that is not claimed."""
        manifest, known = self.runs[run_id], self.known[run_id]
        dispatch, failed = manifest.position.dispatch, manifest.status is RunStatus.ERROR
        if known.elsewhere:
            since = max(dispatch.not_before, dispatch.seen_at or dispatch.not_before)
            if self.now < since + WAIT:
                return None
            return DeadLetterReason.UNRECOVERED_ERROR if failed else DeadLetterReason.NEVER_STARTED
        if failed and self.now >= since + WINDOW:
            return DeadLetterReason.UNRECOVERED_ERROR
        return DeadLetterReason.NEVER_STARTED if lost > MAX_INTERRUPTIONS else None

    def after_a_wait(self, run_id: str, *, in_queue: bool | None, given_up: bool) -> Outcome:
        """Return what a sweep makes of a run that waited in vain until now."""
        known, step = self.known[run_id], self.runs[run_id].current_step
        is_away, is_lost = self.is_away(step), in_queue is False
        if not self.is_known(step):
            left = Outcome.REDISPATCHED
            if not is_lost or known.elsewhere:
                left = Outcome.STILL_QUEUED
            return left if self.others_know else Outcome.BLOCKED
        if self.has_moved(run_id):
            return Outcome.REDISPATCHED
        if not is_lost:
            return Outcome.STILL_QUEUED
        if given_up:
            return Outcome.DEAD_LETTERED
        return Outcome.AWAITS_CLAIM if is_away else Outcome.REDISPATCHED

    def look_of_a_server(self, run_id: str, server: int) -> None:
        """One of two servers looks, which sees its own queue: what it has not may be the other's.

        It takes what it does not have as it is. So no run is given up, and none gets a further
        task, for as long as its servers come and go.
        """
        manifest = self.runs[run_id]
        if (
            not manifest.is_moving
            or manifest.position.lease is not None
            or manifest.position.dispatch.remote
        ):
            return
        self.now = max(self.now, manifest.alarm_at or self.now)
        queue, name = self.queues[server], dispatch_task(manifest).name
        has_moved = self.has_moved(run_id)

        self.redispatch(
            run_id, manifest.position.dispatch.generation, in_queue=name in queue or None
        )

        after = self.runs[run_id]
        queue.add(name)
        assert not after.dead_lettered, "a queue of its own proves nothing"
        if not (has_moved or after.block is not None):  # which nobody here knows the step of
            assert after.position.dispatch.generation == manifest.position.dispatch.generation

    def server_is_killed(self, server: int) -> None:
        """All that waits in its queue is gone with it; the other one takes it up."""
        self.queues[server].clear()

    def has_moved(self, run_id: str) -> bool:
        """Whether a deploy that knows the step dispatches it otherwise than it was."""
        known, step = self.known[run_id], self.runs[run_id].current_step
        is_other = known.provisional or known.elsewhere is not self.is_away(step)
        return self.is_known(step) and is_other

    def look_again(self, run_id: str, *, at_once: bool = False) -> None:
        """Look at a block: who knows the step tries it, who does not leaves it to those who do."""
        manifest, known = self.runs[run_id], self.known[run_id]
        block, look_at = manifest.block, manifest.look_at
        expected = Outcome.NOT_DUE
        if look_at is not None and (at_once or look_at <= self.now):
            expected = Outcome.LOOKED_AGAIN
            if not self.is_known(manifest.current_step):
                is_left = at_once or self.now < look_at + GRACE
                expected = Outcome.STEP_UNKNOWN if is_left else Outcome.ALARM_SET
        look = partial(lifecycle.look_again, rules=self.in_force, at_once=at_once)

        change = self.commit(run_id, look)

        after = change.manifest
        assert change.outcome is expected
        assert change.deliveries == (), "nobody is told that it is looked at"
        assert change.events == ()
        assert (after.position.attempts, after.position.checkpoint) == (
            manifest.position.attempts,
            manifest.position.checkpoint,
        )
        if expected is Outcome.LOOKED_AGAIN:
            assert after.position.dispatch.after_block == block
            assert (after.status, known.lost) == ("PENDING", 0)

    def look_at_once(self, run_id: str) -> None:
        """A process begins."""
        self.look_again(run_id, at_once=True)

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
            known.lapsed(self.now, silent=silent)
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
        if generation > manifest.position.dispatch.generation:
            return Outcome.REJECTED
        if manifest.cancelled or manifest.dead_lettered:
            return Outcome.CANCELLED if manifest.cancelled else Outcome.DEAD_LETTERED
        if manifest.is_terminal:
            return Outcome.ALREADY_COMPLETED
        if generation < manifest.position.dispatch.generation:
            return Outcome.STALE
        if known.holder is not None and self.now < known.ends_at:
            return Outcome.LEASE_HELD
        return self.answer_to_current_hint(run_id, manifest)

    def answer_to_current_hint(self, run_id: str, manifest: Manifest) -> Outcome:
        known = self.known[run_id]
        step = manifest.current_step
        if known.holder is not None:
            expired, hung = Outcome.ACQUIRED, Outcome.RETRY_SCHEDULED
            if known.elsewhere or self.has_moved(run_id) or not self.is_known(step):
                is_away = self.is_away(step) if self.is_known(step) else known.elsewhere
                expired = hung = Outcome.AWAITS_CLAIM if is_away else Outcome.RETRY_SCHEDULED
            if manifest.paused:
                expired = hung = Outcome.PARKED
            return self.after_lapse(run_id, expired, hung)
        if manifest.paused or manifest.status is RunStatus.BLOCKED:
            return Outcome.PARKED if manifest.paused else Outcome.BLOCKED
        if known.elsewhere:
            return Outcome.AWAITS_CLAIM
        if self.now + timedelta(seconds=2) < manifest.position.dispatch.not_before:
            return Outcome.RETRY_SCHEDULED
        if not self.is_known(step):
            return Outcome.STEP_UNKNOWN
        taken = Outcome.REDISPATCHED if known.provisional else Outcome.ACQUIRED
        return Outcome.AWAITS_CLAIM if self.is_away(step) else taken

    def claim(self, run_id: str) -> None:
        """A worker elsewhere asks for the step of a run; no hint told it to."""
        manifest, known = self.runs[run_id], self.known[run_id]
        lease_id = self.new_id()
        claim = partial(
            lifecycle.claim, rules=self.in_force, lease_id=lease_id, holder=f"laptop-{lease_id}"
        )
        takes_over, silent = known.holder is not None, self.is_silent(run_id)
        rests = manifest.is_terminal or manifest.paused or manifest.status is RunStatus.BLOCKED
        is_early = self.now + timedelta(seconds=2) < manifest.position.dispatch.not_before
        if takes_over and self.now < known.ends_at:
            self.refused(run_id, claim, LeaseHeldError)
            return
        is_for_nobody = known.provisional or not self.is_known(manifest.current_step)
        if rests or is_for_nobody or (is_early and not takes_over):
            self.refused(run_id, claim, NothingToClaimError)
            return
        expected = Outcome.ACQUIRED
        if takes_over:
            expected = self.after_lapse(run_id, expected, Outcome.RETRY_SCHEDULED)

        change = self.commit(run_id, claim)

        assert change.outcome is expected
        assert not tasks_of(change) or change.outcome is Outcome.RETRY_SCHEDULED
        if takes_over:
            known.lapsed(self.now, silent=silent)
        if change.outcome is Outcome.ACQUIRED:
            self.leased(run_id, change, lease_id)
