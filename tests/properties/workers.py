"""What workers do with their lease, zombies among them."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition
from leasehold.domain.iterations import MAX_PHASES
from leasehold.domain.kept_value import KeptValue
from leasehold.domain.kept_work import CallResult
from leasehold.domain.manifest_parts import Progress
from leasehold.domain.notes import Notes
from leasehold.domain.status import Outcome
from leasehold.errors import (
    InvalidRequestError,
    LeaseLostError,
)
from tests.properties.model import (
    ERROR,
    FOUND,
    MAX_CONTINUATIONS,
    TTL,
    Call,
    Kept,
    Worker,
    output_of,
    text_of,
)
from tests.properties.world import World


class Workers(World):
    """Whoever got a lease once, and writes with it whether it still holds it or not."""

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

    def keep_on(self, worker: Worker, transition: Transition, expected: Outcome) -> Change | None:
        """Renew the lease, and return the change; None where it was refused.

        At the dispatch deadline that is a failure, whoever renews.
        """
        known, at = self.known[worker.run_id], self.decided_at(worker, transition)
        if at is None:
            return None
        if not self.holds(worker, at):
            self.refused(worker.run_id, transition, LeaseLostError, at)
            return None
        is_late = at >= known.deadline
        expected = self.after_failure(worker.run_id) if is_late else expected
        change = self.commit(worker.run_id, transition, at)
        assert change.outcome is expected
        known.heard_at = at
        if is_late:
            assert [e.reason for e in change.events][:1] == ["dispatch_deadline_exceeded"]
            known.ends["failed"] += 1
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
        change = self.keep_on(worker, checkpoint, Outcome.CHECKPOINTED)

        if change is not None:
            known.checkpoint = kept
            is_told_apart = kept.phase in known.furthest or len(known.furthest) < MAX_PHASES
            if is_told_apart and kept.iterations > known.furthest.get(kept.phase, -1):
                known.furthest[kept.phase] = kept.iterations
                known.progress()

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

    def complete_and_go_on(self, worker: Worker) -> None:
        self.complete(worker, may_continue=True)

    def complete_in_part(self, worker: Worker) -> None:
        self.complete(worker, is_partial=True)

    def complete(
        self, worker: Worker, *, may_continue: bool = False, is_partial: bool = False
    ) -> None:
        run_id, manifest = worker.run_id, self.runs[worker.run_id]
        output = output_of(worker, manifest, is_partial=is_partial)
        complete: Transition = partial(
            lifecycle.complete,
            fence=worker.fence,
            rules=self.in_force,
            output=KeptValue(text=output.text),
            output_status="PARTIAL" if is_partial else "SUCCESS",
            verdict=output.verdict,
        )
        next_lease = self.new_id()
        if may_continue:
            complete = lifecycle.then_arrive(
                complete, rules=self.in_force, lease_id=next_lease, holder="the same"
            )
        expected = self.after_output(run_id, Outcome.HANDED_OFF, output)

        change = self.settle(worker, complete, expected)

        if change is not None:
            self.went_on(run_id, manifest.current_step, output)
            if change.manifest.lease is not None:
                assert may_continue
                self.leased(run_id, change, next_lease)

    def block(self, worker: Worker) -> None:
        output = output_of(worker, self.runs[worker.run_id], is_partial=True)
        block = partial(
            lifecycle.block,
            rules=self.in_force,
            fence=worker.fence,
            output=KeptValue(text=output.text),
            output_status="PARTIAL",
            verdict=output.verdict,
            found=FOUND,
        )

        change = self.settle(worker, block, Outcome.BLOCKED)

        if change is not None:
            self.known[worker.run_id].kept = output

    def call_once(self, worker: Worker, key: str = "model") -> None:
        """Record the result of a call, or find that it is recorded and spare one."""
        known, manifest = self.known[worker.run_id], self.runs[worker.run_id]
        step, trial, keep = manifest.current_step, manifest.trial, key == "kept"
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

        change = self.keep_on(worker, record, Outcome.RENEWED)

        if change is not None and not found:
            known.calls.append(Call(step, trial, key, text_of(worker), keep))
            known.made[step] += 1
            known.progress()

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

    def fail_for_good(self, worker: Worker) -> None:
        self.fail(worker, permanent=True)

    def fail(self, worker: Worker, permanent: bool = False) -> None:
        run_id = worker.run_id
        manifest = self.runs[run_id]
        fail = partial(
            lifecycle.fail,
            rules=self.in_force,
            fence=worker.fence,
            error=ERROR,
            permanent=permanent,
        )
        expected = self.after_failure(run_id, permanent=permanent)
        self.failed(worker, self.settle(worker, fail, expected), paused=manifest.paused)

    def exceed_limit(self, worker: Worker) -> None:
        """End at a limit: a failure that the trace has one event of."""
        manifest = self.runs[worker.run_id]
        exceed = partial(
            lifecycle.exceed_limit,
            rules=self.in_force,
            fence=worker.fence,
            reason="agent_timeout_exceeded",
            error=ERROR,
            stacks="at line 7",
            notes=Notes(Progress(fraction=0.5)),
        )

        change = self.settle(worker, exceed, self.after_failure(worker.run_id))

        if change is not None:
            assert [event.type for event in change.events if event.type != "step_unknown"][:1] == [
                "step_terminated"
            ]
            record = change.manifest.steps[manifest.current_step]
            assert record.progress == Progress(fraction=0.5)
        self.failed(worker, change, paused=manifest.paused)

    def failed(self, worker: Worker, change: Change | None, *, paused: bool) -> None:
        known = self.known[worker.run_id]
        if change is not None:
            known.ends["failed"] += 1
            if change.outcome is Outcome.RETRY_SCHEDULED and not paused:
                wait = timedelta(seconds=10 * 2 ** (known.ends["failed"] - 1))
                assert change.manifest.dispatch.not_before == change.manifest.updated_at + wait

    def release(self, worker: Worker) -> None:
        release = partial(
            lifecycle.release,
            rules=self.in_force,
            fence=worker.fence,
            reason="instance_shutdown",
        )
        expected = self.after_early_end(worker.run_id, Outcome.RELEASED)

        change = self.settle(worker, release, expected)

        if change is not None:
            self.known[worker.run_id].cut_short("interrupted")

    def continue_and_go_on(self, worker: Worker) -> None:
        self.continue_later(worker, may_continue=True)

    def continue_later(self, worker: Worker, may_continue: bool = False) -> None:
        """End for the next attempt to go on: no failure, unless nothing ever goes on."""
        run_id, known = worker.run_id, self.known[worker.run_id]
        manifest, count = self.runs[run_id], known.continued + 1
        is_idle = count >= MAX_CONTINUATIONS
        expected = self.after_failure(run_id) if is_idle else Outcome.CONTINUED
        if not manifest.paused and expected is Outcome.CONTINUED:
            expected = self.blocked_or(manifest.current_step, expected)
        go_on: Transition = partial(
            lifecycle.continue_later, rules=self.in_force, fence=worker.fence
        )
        next_lease = self.new_id()
        if may_continue:
            go_on = lifecycle.then_arrive(
                go_on, rules=self.in_force, lease_id=next_lease, holder="the same"
            )

        change = self.settle(worker, go_on, expected)

        if change is None:
            return
        known.continued = count
        if is_idle:
            self.failed(worker, change, paused=manifest.paused)
            return
        known.ends["continued"] += 1
        after = change.manifest
        assert after.interruptions == manifest.interruptions
        if expected is Outcome.CONTINUED and not manifest.paused:
            assert after.dispatch.not_before == after.updated_at
            assert after.dispatch.generation == manifest.dispatch.generation + 1
        if after.lease is not None:
            assert may_continue
            self.leased(run_id, change, next_lease)

    def continue_on_and_on(self, worker: Worker) -> None:
        """Each attempt ends for the next one to go on, and none of them keeps anything."""
        for _ in range(MAX_CONTINUATIONS):
            self.continue_later(worker, may_continue=True)
            worker = self.workers[-1]

    def defer(self, worker: Worker) -> None:
        """An outage: it counts for nothing, and no number of them gives the run up."""
        run_id, known = worker.run_id, self.known[worker.run_id]
        manifest = self.runs[run_id]
        defer = partial(
            lifecycle.defer,
            rules=self.in_force,
            fence=worker.fence,
            reason="store_unavailable",
            detail="It does not answer.",
        )
        expected = Outcome.RELEASED
        if not manifest.paused and not self.is_known(manifest.current_step):
            expected = Outcome.BLOCKED

        change = self.settle(worker, defer, expected)

        if change is not None:
            known.ends["deferred"] += 1
            assert change.manifest.interruptions == manifest.interruptions
            is_dispatched = change.manifest.dispatch.generation > manifest.dispatch.generation
            if is_dispatched and change.outcome is Outcome.RELEASED:
                # one whose step is not known any more is blocked, and waits for a person
                wait = change.manifest.dispatch.not_before - change.manifest.updated_at
                in_a_row = change.manifest.dispatch.deferred
                assert in_a_row == manifest.dispatch.deferred + 1
                doubled = timedelta(seconds=10 * 2 ** (in_a_row - 1))
                assert wait == min(doubled, timedelta(minutes=5))

    def lease_is_over(self, worker: Worker) -> None:
        self.expire(worker.run_id, worker.fence.lease_id, gone=False)

    def holder_is_gone(self, worker: Worker) -> None:
        self.expire(worker.run_id, worker.fence.lease_id, gone=True)

    def holds(self, worker: Worker, at: datetime) -> bool:
        known = self.known[worker.run_id]
        return known.holder == worker.fence.lease_id and at < known.ends_at

    def settle(self, worker: Worker, transition: Transition, expected: Outcome) -> Change | None:
        """Settle, and return the change if it was one; a repetition and a zombie change nothing."""
        known, at = self.known[worker.run_id], self.decided_at(worker, transition)
        if at is None:
            return None
        if known.settled is not None and known.settled[0] == worker.fence.lease_id:
            repeated = self.commit(worker.run_id, transition, at)
            assert not repeated.changed
            assert repeated.outcome is known.settled[1]
            return None
        if not self.holds(worker, at):
            self.refused(worker.run_id, transition, LeaseLostError, at)
            return None
        change = self.commit(worker.run_id, transition, at)
        worker.seen, worker.asleep = self.seen(worker.run_id), timedelta()
        assert change.changed
        assert change.outcome is expected
        known.let_go()
        known.settled = (worker.fence.lease_id, change.outcome)
        note = change.manifest.last_settlement
        assert note is not None
        assert (note.lease_id, note.fencing_token) == (
            worker.fence.lease_id,
            worker.fence.fencing_token,
        )
        return change
