"""How workers end their attempt, zombies and those that got no answer among them."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.manifest_parts import Progress
from leasehold.domain.notes import Notes
from leasehold.domain.status import BlockCode, Outcome
from leasehold.errors import (
    LeaseLostError,
)
from tests.properties.model import (
    CATALOG,
    ERROR,
    FOUND,
    MAX_CONTINUATIONS,
    Worker,
    output_of,
)
from tests.properties.workers import Workers


class Settlements(Workers):
    """A former holder of a lease, which ends its attempt with or without it."""

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
        next_lease = self.lease_taken_along(worker) if may_continue else None
        if next_lease is not None:
            complete = lifecycle.then_arrive(
                complete, rules=self.in_force, lease_id=next_lease, holder="the same"
            )
        expected = self.after_output(run_id, Outcome.HANDED_OFF, output)

        change = self.settle(worker, complete, expected, next_lease)

        if change is not None:
            self.went_on(run_id, manifest.current_step, output)
            if change.manifest.position.lease is not None:
                assert next_lease is not None
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

    def unable(self, worker: Worker) -> None:
        """The code that is deployed cannot begin: no attempt failed, and nothing is lost."""
        run_id, manifest = worker.run_id, self.runs[worker.run_id]
        block = partial(
            lifecycle.block_attempt,
            rules=self.in_force,
            fence=worker.fence,
            code=BlockCode.HANDLER_UNAVAILABLE,
            error=ERROR,
        )

        change = self.settle(worker, block, Outcome.BLOCKED)

        if change is not None:  # the handler was not called: the next attempt has this number
            number = (
                run_id,
                manifest.current_step,
                manifest.position.trial,
                manifest.position.attempt,
            )
            self.attempts.remove(number)
            assert change.manifest.position.attempts == manifest.position.attempts
            assert len(change.deliveries) <= len(self.announcements.channels or ())

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
            known.failed()
            if change.outcome is Outcome.RETRY_SCHEDULED and not paused:
                wait = timedelta(seconds=10 * 2 ** (known.vain - 1))
                assert (
                    change.manifest.position.dispatch.not_before
                    == change.manifest.updated_at + wait
                )

    def release(self, worker: Worker) -> None:
        release = partial(
            lifecycle.release,
            rules=self.in_force,
            fence=worker.fence,
            reason="instance_shutdown",
        )
        known, at = self.known[worker.run_id], self.settled_at(worker, release)
        counts = known.shut_down_counts(at)
        expected = self.after_early_end(worker.run_id, Outcome.RELEASED, counts=counts)

        change = self.settle(worker, release, expected)

        if change is not None:
            known.shut_down(at)

    def continue_and_go_on(self, worker: Worker) -> None:
        self.continue_later(worker, may_continue=True)

    def continue_later(self, worker: Worker, may_continue: bool = False) -> None:
        """End for the next attempt to go on: no failure, unless nothing ever goes on."""
        run_id, known = worker.run_id, self.known[worker.run_id]
        manifest, count = self.runs[run_id], known.continued + 1
        is_idle = count >= MAX_CONTINUATIONS
        expected = self.after_failure(run_id) if is_idle else Outcome.CONTINUED
        go_on: Transition = partial(
            lifecycle.continue_later, rules=self.in_force, fence=worker.fence
        )
        next_lease = self.lease_taken_along(worker) if may_continue else None
        if next_lease is not None:
            go_on = lifecycle.then_arrive(
                go_on, rules=self.in_force, lease_id=next_lease, holder="the same"
            )

        change = self.settle(worker, go_on, expected, next_lease)

        if change is None:
            return
        known.continued = count
        if is_idle:
            self.failed(worker, change, paused=manifest.paused)
            return
        known.ends["continued"] += 1
        after = change.manifest
        assert after.position.interruptions == manifest.position.interruptions
        if expected is Outcome.CONTINUED and not manifest.paused:
            assert after.position.dispatch.not_before == after.updated_at
            assert after.position.dispatch.generation == manifest.position.dispatch.generation + 1
        if after.position.lease is not None:
            assert next_lease is not None
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
        change = self.settle(worker, defer, Outcome.RELEASED, outlasts=True)

        if change is not None:
            known.ends["deferred"] += 1
            assert change.manifest.position.interruptions == manifest.position.interruptions
            is_dispatched = (
                change.manifest.position.dispatch.generation > manifest.position.dispatch.generation
            )
            if is_dispatched and change.outcome is Outcome.RELEASED:
                # one whose step is not known any more is blocked, and waits for a person
                wait = change.manifest.position.dispatch.not_before - change.manifest.updated_at
                in_a_row = change.manifest.position.dispatch.deferred
                assert in_a_row == manifest.position.dispatch.deferred + 1
                doubled = timedelta(seconds=10 * 2 ** (in_a_row - 1))
                assert wait == min(doubled, timedelta(minutes=5))

    def lease_taken_along(self, worker: Worker) -> str:
        """Return the lease of the next step that a worker asks for with its settlement.

        It is the same one each time that it asks.
        """
        worker.next_lease = worker.next_lease or self.new_id()
        return worker.next_lease

    def settled_at(self, worker: Worker, transition: Transition) -> datetime:
        """Return the time by which a settlement is decided: the store is asked in any case."""
        return self.decided_at(worker, transition) or self.now

    def settle(
        self,
        worker: Worker,
        transition: Transition,
        expected: Outcome,
        next_lease: str | None = None,
        *,
        outlasts: bool = False,
    ) -> Change | None:
        """Settle, and return the change if it was one; a repetition and a zombie end nothing.

        An outage that `outlasts` the lease is reported after its end, before a takeover.
        """
        known, at = self.known[worker.run_id], self.settled_at(worker, transition)
        if known.settled is not None and known.settled[0] == worker.fence.lease_id:
            self.answered_again(worker, transition, at, next_lease)
            return None
        is_own = known.holder == worker.fence.lease_id if outlasts else self.holds(worker, at)
        if not is_own:
            self.refused(worker.run_id, transition, LeaseLostError, at)
            return None
        change = self.commit(worker.run_id, transition, at)
        worker.seen, worker.asleep = self.seen(worker.run_id), timedelta()
        assert change.changed
        assert change.outcome is expected
        known.let_go()
        known.settled = (worker.fence.lease_id, change.outcome)
        note = change.manifest.position.last_settlement
        assert note is not None
        assert (note.lease_id, note.fencing_token) == (
            worker.fence.lease_id,
            worker.fence.fencing_token,
        )
        return change

    def answered_again(
        self, worker: Worker, transition: Transition, at: datetime, next_lease: str | None
    ) -> None:
        """Check that the answer is the first one, with the lease that it gave, if that is free."""
        known = self.known[worker.run_id]
        assert known.settled is not None
        goes_on = next_lease is not None and known.holder == next_lease

        again = self.commit(worker.run_id, transition, at)

        assert again.outcome is known.settled[1]
        assert again.changed is goes_on
        if goes_on:
            self.lease_begins(known, CATALOG[again.manifest.current_step], at)

    def lost_answer(self, worker: Worker, what: str, late: timedelta, then: str) -> None:
        """Settle, hear nothing of it, and settle again once the lease would be over.

        Meanwhile another worker may have got the run. A write that the store refused
        because the lease was over may succeed at the second try, if the worker's clock slept.
        """
        run_id, before = worker.run_id, worker.seen
        worker.reads = True
        getattr(self, what)(worker)
        worker.seen, worker.reads = before, False
        self.now = max(self.now, self.known[run_id].ends_at + late)
        if then != "nobody":
            getattr(self, then)(run_id)
        settled, was = self.known[run_id].settled, self.runs[run_id]
        stood = settled is not None and settled[0] == worker.fence.lease_id

        getattr(self, what)(worker)

        if stood:
            assert self.known[run_id].settled == settled, "nothing is settled twice"
        is_theirs = self.known[run_id].holder in (None, worker.next_lease)
        assert is_theirs or self.runs[run_id] == was
