"""The lifecycle against a model: hints, workers, time, people and deploys in any order.

The world below has one run (and the runs that are recreated from it), a bag of tasks that come
late, twice, reordered or never, and workers that go on after their lease is over. The model is
told nothing but the answers; what it expects is compared with each next answer, and what must
always hold is checked after each step.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pydantic_core
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition, as_write, owed_tasks
from leasehold.domain.dispatch import Rules, StepSettings
from leasehold.domain.lease import Fence, held_lease
from leasehold.domain.lifecycle import NewRun
from leasehold.domain.manifest import Block, ErrorRecord, KeptValue, Manifest, to_document
from leasehold.domain.status import DeadLetterReason, Outcome, RunStatus
from leasehold.domain.task import Task
from leasehold.errors import (
    InvalidRequestError,
    LeaseholdError,
    LeaseLostError,
    NotAllowedError,
    UnknownKeyError,
)

PLAN = ("draft", "check", "send")
MAX_RETRIES = 1
MAX_INTERRUPTIONS = 2
TTL = timedelta(seconds=150)
GRACE = timedelta(seconds=60)
START = datetime(2026, 1, 1, tzinfo=UTC)
FOUND = Block(code="TOO_SHORT", finding="3 words", remediation="Approve or retry.")
ERROR = ErrorRecord(type="AgentClientError", code="overloaded", message="try later")

#: The fields of a run that has ended which a recreation may still write.
LINEAGE = ("recreated_as", "updated_at", "traced", "alarm_at")


def _weighted(**weights: int) -> st.SearchStrategy[str]:
    """Draw one of the names, the likelier the heavier; examples shrink towards the first."""
    return st.sampled_from([name for name, weight in weights.items() for _ in range(weight)])


#: How long ago something began: mostly the latest counts.
RECENT = st.sampled_from([0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5])


def _settings(step: str, *, deadline_s: int, heartbeat_s: int | None) -> StepSettings:
    return StepSettings(
        step_type=step,
        agent_timeout=timedelta(seconds=deadline_s - 5),
        dispatch_deadline=timedelta(seconds=deadline_s),
        max_retries=MAX_RETRIES,
        heartbeat=None if heartbeat_s is None else timedelta(seconds=heartbeat_s),
        queue=step,
        remote=False,
        sources={"agentTimeout": "entry"},
    )


#: One short-lived step, one whose lease is never renewed, and one with a long deadline.
CATALOG = {
    "draft": _settings("draft", deadline_s=15, heartbeat_s=10),
    "check": _settings("check", deadline_s=20, heartbeat_s=None),
    "send": _settings("send", deadline_s=600, heartbeat_s=10),
}


@dataclass
class Worker:
    """Somebody who got a lease once, and remembers it for ever."""

    run_id: str
    fence: Fence


@dataclass
class Known:
    """What the model has learned of a run from the answers."""

    holder: str | None = None
    ends_at: datetime = START
    cap: datetime = START
    settled: tuple[str, Outcome] | None = None
    ends: Counter[str] = field(default_factory=Counter)
    kept: str | None = None
    handed_off: dict[str, str] = field(default_factory=dict)

    def let_go(self) -> None:
        self.holder = None

    def interruptions(self) -> int:
        return self.ends["interrupted"] + self.ends["expired"]


class World(RuleBasedStateMachine):
    """Everything that can happen to one run."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.catalog = dict(CATALOG)
        self.in_force = Rules(
            settings_for=self.catalog.get,
            lease_ttl=TTL,
            max_interruptions=MAX_INTERRUPTIONS,
            grace=GRACE,
        )
        self.ids = 0
        self.runs: dict[str, Manifest] = {}
        self.known: dict[str, Known] = {}
        self.tasks: list[Task] = []
        self.workers: list[Worker] = []
        self.traced: set[str] = set()

    # -- the world's own machinery -----------------------------------------------------------

    def new_id(self) -> str:
        self.ids += 1
        return f"{self.ids:04d}"

    def nth_run(self, recent: int) -> str:
        return list(self.runs)[-1 - recent % len(self.runs)]

    def is_known(self, step: str) -> bool:
        return step in self.catalog

    def commit(self, run_id: str, transition: Transition) -> Change:
        """Do as a store does: read, decide, write; and check what holds for every change."""
        before = self.runs[run_id]
        text = _text(before)
        change = transition(before, self.now)
        assert transition(before, self.now) == change, "a transition is pure"
        assert _text(before) == text, "a transition leaves its argument alone"
        _check_change(before, change, self.now)
        write = as_write(change)
        for ref in write.creates or ():
            assert str(ref) not in self.traced, "a trace event has a number of its own"
            self.traced.add(str(ref))
        if change.changed:
            assert write.document == to_document(change.manifest)
            self.runs[run_id] = _from_store(change.manifest)
        if change.created is not None:
            self.add_run(change.created)
        self.tasks += change.owed
        return change

    def add_run(self, manifest: Manifest) -> None:
        self.runs[manifest.run_id] = _from_store(manifest)
        kept = {s: r.output for s, r in manifest.steps.items() if r.output is not None}
        self.known[manifest.run_id] = Known(handed_off=kept)

    def refused(self, run_id: str, transition: Transition, error: type[LeaseholdError]) -> None:
        """Check that the transition is refused; a store then writes nothing."""
        with pytest.raises(error):
            transition(self.runs[run_id], self.now)

    def leased(self, run_id: str, change: Change, lease_id: str) -> None:
        """Note the lease that the change gave."""
        manifest, known = change.manifest, self.known[run_id]
        assert manifest.lease is not None
        assert manifest.lease.lease_id == lease_id
        settings = self.catalog[manifest.current_step]
        known.holder = lease_id
        known.cap = self.now + settings.dispatch_deadline + timedelta(minutes=5)
        known.ends_at = known.cap if settings.heartbeat is None else self.now + TTL
        assert manifest.lease.expires_at == known.ends_at
        self.workers.append(Worker(run_id, Fence(lease_id, manifest.fencing_token)))

    def after_early_end(self, run_id: str, outcome: Outcome) -> Outcome:
        """Return what an attempt that was cut short should answer, instead of `outcome`."""
        manifest, known = self.runs[run_id], self.known[run_id]
        if known.interruptions() + 1 > MAX_INTERRUPTIONS:
            return Outcome.DEAD_LETTERED
        if not manifest.paused and not self.is_known(manifest.current_step):
            return Outcome.BLOCKED
        return outcome

    def after_output(self, run_id: str, outcome: Outcome) -> Outcome:
        """Return what an output that goes on should answer, instead of `outcome`."""
        manifest = self.runs[run_id]
        place = PLAN.index(manifest.current_step) + 1
        if place == len(PLAN):
            return Outcome.COMPLETED
        if not manifest.paused and not self.is_known(PLAN[place]):
            return Outcome.BLOCKED
        return outcome

    def went_on(self, run_id: str, step: str, output: str) -> None:
        known = self.known[run_id]
        assert step not in known.handed_off, "a step is handed off once"
        known.handed_off[step] = output
        known.kept = None
        if step != PLAN[-1]:
            known.ends.clear()

    # -- what can happen, the likelier the heavier ---------------------------------------------

    @initialize()
    def start(self) -> None:
        change = lifecycle.start(None, self.now, rules=self.in_force, new=_new_run("r-1"))

        assert change.outcome is Outcome.STARTED
        self.add_run(change.manifest)
        self.tasks += change.owed

    @precondition(lambda self: self.tasks)
    @rule(recent=RECENT, how=_weighted(in_time=6, now=3, twice=3, lost=1))
    def task(self, recent: int, how: str) -> None:
        place = -1 - recent % len(self.tasks)
        task = self.tasks[place]
        if how == "in_time":
            self.now = max(self.now, task.not_before)
        if how != "twice":
            del self.tasks[place]
        if how != "lost":
            self.hint(task.run_id, task.generation)

    @rule(what=_weighted(complete=3, complete_and_go_on=2, nothing=3, fail=2, block=1, release=1))
    def by_the_book(self, what: str) -> None:
        """The latest run's task comes when it should, and its worker does the next thing."""
        run_id = self.nth_run(0)
        dispatch, workers = self.runs[run_id].dispatch, len(self.workers)
        self.now = max(self.now, dispatch.not_before)
        self.hint(run_id, dispatch.generation)
        if len(self.workers) > workers and what != "nothing":
            getattr(self, what)(self.workers[-1])

    @precondition(lambda self: self.workers)
    @rule(
        recent=RECENT,
        what=_weighted(
            complete=4,
            complete_and_go_on=3,
            fail=4,
            release=3,
            block=3,
            renew=2,
            hang=2,
            lease_is_over=2,
            fail_for_good=1,
            holder_is_gone=1,
        ),
    )
    def work(self, recent: int, what: str) -> None:
        worker = self.workers[-1 - recent % len(self.workers)]
        getattr(self, what)(worker)

    @rule(
        recent=RECENT,
        what=_weighted(
            sweep_in_time=4,
            resume=3,
            pause=2,
            approve=2,
            retry=2,
            sweep=1,
            sweep_of_long_ago=1,
            old_hint=1,
            forged_hint=1,
            give_up=1,
            cancel=1,
        ),
    )
    def operation(self, recent: int, what: str) -> None:
        getattr(self, what)(self.nth_run(recent))

    @rule(seconds=st.sampled_from([1, 8, 10, 20, 30, 60, 149, 150, 151, 400, -3]))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(milliseconds=st.integers(1, 1_000_000))
    def wait_any_time(self, milliseconds: int) -> None:
        self.now += timedelta(milliseconds=milliseconds)

    @rule(step=st.sampled_from([None, None, *PLAN]))
    def deploy(self, step: str | None) -> None:
        """Deploy a catalog with all steps, or with all but one."""
        self.catalog.clear()
        self.catalog.update(CATALOG)
        if step is not None:
            del self.catalog[step]

    # -- hints ---------------------------------------------------------------------------------

    def old_hint(self, run_id: str) -> None:
        self.hint(run_id, self.runs[run_id].dispatch.generation - 1)

    def forged_hint(self, run_id: str) -> None:
        self.hint(run_id, self.runs[run_id].dispatch.generation + 1)

    def sweep_in_time(self, run_id: str) -> None:
        self.now = max(self.now, self.runs[run_id].alarm_at or self.now)
        self.sweep(run_id)

    def sweep(self, run_id: str) -> None:
        manifest = self.runs[run_id]
        if manifest.alarm_at is None or self.now < manifest.alarm_at:
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
        manifest = self.runs[run_id]
        waits = manifest.alarm_at is not None and manifest.lease is None
        late = waits and manifest.alarm_at <= self.now
        expected = Outcome.DUPLICATE
        if late and generation == manifest.dispatch.generation:
            expected = self.blocked_or(manifest.current_step, Outcome.REDISPATCHED)
            expected = Outcome.PARKED if in_queue else expected
        redispatch = partial(
            lifecycle.redispatch, rules=self.in_force, generation=generation, in_queue=in_queue
        )

        change = self.commit(run_id, redispatch)

        assert change.outcome is expected
        assert change.changed is (expected is not Outcome.DUPLICATE)
        if change.outcome is Outcome.REDISPATCHED:
            assert [task.not_before for task in change.owed] == [self.now]

    def hint(self, run_id: str, generation: int) -> None:
        expected = self.answer_to_hint(run_id, generation)
        known, lease_id = self.known[run_id], self.new_id()
        cut_short = known.holder is not None and self.now >= known.ends_at
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
            known.ends["expired"] += 1
        if change.changed:
            known.let_go()
        if change.outcome is Outcome.ACQUIRED:
            self.leased(run_id, change, lease_id)
        if change.outcome is Outcome.LEASE_HELD:
            assert [task.not_before for task in change.owed] == [
                known.ends_at + timedelta(seconds=2)
            ]

    def answer_to_hint(self, run_id: str, generation: int) -> Outcome:
        manifest, known = self.runs[run_id], self.known[run_id]
        if generation > manifest.dispatch.generation:
            return Outcome.REJECTED
        if manifest.cancelled or manifest.dead_lettered:
            return Outcome.CANCELLED if manifest.cancelled else Outcome.DEAD_LETTERED
        if manifest.is_terminal or generation < manifest.dispatch.generation:
            return Outcome.DUPLICATE
        if known.holder is not None and self.now < known.ends_at:
            return Outcome.LEASE_HELD
        return self.answer_to_current_hint(run_id, manifest)

    def answer_to_current_hint(self, run_id: str, manifest: Manifest) -> Outcome:
        if self.known[run_id].holder is not None:
            taken = Outcome.PARKED if manifest.paused else Outcome.ACQUIRED
            return self.after_early_end(run_id, taken)
        if manifest.paused or manifest.status is RunStatus.BLOCKED:
            return Outcome.PARKED if manifest.paused else Outcome.BLOCKED
        if self.now + timedelta(seconds=2) < manifest.dispatch.not_before:
            return Outcome.RETRY_SCHEDULED
        return Outcome.ACQUIRED if self.is_known(manifest.current_step) else Outcome.BLOCKED

    # -- workers, zombies among them -------------------------------------------------------------

    def renew(self, worker: Worker) -> None:
        known = self.known[worker.run_id]
        renew = partial(lifecycle.renew, rules=self.in_force, fence=worker.fence)
        if not self.holds(worker):
            self.refused(worker.run_id, renew, LeaseLostError)
            return

        change = self.commit(worker.run_id, renew)

        assert change.outcome is Outcome.RENEWED
        known.ends_at = max(known.ends_at, min(self.now + TTL, known.cap))

    def hang(self, worker: Worker) -> None:
        """Beat on and on, each time at the last moment, towards the cap of the lease."""
        for _ in range(3):
            if self.holds(worker):
                self.now = self.known[worker.run_id].ends_at - timedelta(microseconds=1)
            self.renew(worker)

    def complete_and_go_on(self, worker: Worker) -> None:
        self.complete(worker, goes_on=True)

    def complete(self, worker: Worker, goes_on: bool = False) -> None:
        run_id, step = worker.run_id, self.runs[worker.run_id].current_step
        output = _output(worker)
        complete: Transition = partial(
            lifecycle.complete,
            fence=worker.fence,
            rules=self.in_force,
            output=KeptValue(text=output),
        )
        next_lease = self.new_id()
        if goes_on:
            complete = lifecycle.then_arrive(
                complete, rules=self.in_force, lease_id=next_lease, holder="the same"
            )
        expected = self.after_output(run_id, Outcome.HANDED_OFF)

        change = self.settle(worker, complete, expected)

        if change is not None:
            self.went_on(run_id, step, output)
            if change.manifest.lease is not None:
                assert goes_on
                self.leased(run_id, change, next_lease)

    def block(self, worker: Worker) -> None:
        block = partial(
            lifecycle.block,
            rules=self.in_force,
            fence=worker.fence,
            output=KeptValue(text=_output(worker)),
            output_status="PARTIAL",
            found=FOUND,
        )

        change = self.settle(worker, block, Outcome.BLOCKED)

        if change is not None:
            self.known[worker.run_id].kept = _output(worker)

    def fail_for_good(self, worker: Worker) -> None:
        self.fail(worker, permanent=True)

    def fail(self, worker: Worker, permanent: bool = False) -> None:
        run_id, known = worker.run_id, self.known[worker.run_id]
        manifest = self.runs[run_id]
        fail = partial(
            lifecycle.fail,
            rules=self.in_force,
            fence=worker.fence,
            error=ERROR,
            permanent=permanent,
        )
        expected = Outcome.RETRY_SCHEDULED
        if permanent or known.ends["failed"] == MAX_RETRIES:
            expected = Outcome.DEAD_LETTERED
        elif not manifest.paused and not self.is_known(manifest.current_step):
            expected = Outcome.BLOCKED

        change = self.settle(worker, fail, expected)

        if change is not None:
            known.ends["failed"] += 1
            if change.owed:
                wait = timedelta(seconds=10 * 2 ** (known.ends["failed"] - 1))
                assert change.manifest.dispatch.not_before == self.now + wait

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
            self.known[worker.run_id].ends["interrupted"] += 1

    def lease_is_over(self, worker: Worker) -> None:
        self.expire(worker.run_id, worker.fence.lease_id, gone=False)

    def holder_is_gone(self, worker: Worker) -> None:
        self.expire(worker.run_id, worker.fence.lease_id, gone=True)

    def holds(self, worker: Worker) -> bool:
        known = self.known[worker.run_id]
        return known.holder == worker.fence.lease_id and self.now < known.ends_at

    def settle(self, worker: Worker, transition: Transition, expected: Outcome) -> Change | None:
        """Settle, and return the change if it was one; a repetition and a zombie change nothing."""
        known = self.known[worker.run_id]
        if known.settled is not None and known.settled[0] == worker.fence.lease_id:
            repeated = self.commit(worker.run_id, transition)
            assert not repeated.changed
            assert repeated.outcome is known.settled[1]
            return None
        if not self.holds(worker):
            self.refused(worker.run_id, transition, LeaseLostError)
            return None
        change = self.commit(worker.run_id, transition)
        assert change.changed
        assert change.outcome is expected
        known.let_go()
        known.settled = (worker.fence.lease_id, change.outcome)
        return change

    def expire(self, run_id: str, lease_id: str, *, gone: bool) -> None:
        known = self.known[run_id]
        expected = Outcome.DUPLICATE
        if known.holder == lease_id:
            expected = Outcome.LEASE_HELD
            if gone or self.now >= known.ends_at:
                expected = self.after_early_end(run_id, Outcome.EXPIRED)
        expire = partial(lifecycle.expire, rules=self.in_force, lease_id=lease_id, holder_gone=gone)

        change = self.commit(run_id, expire)

        assert change.outcome is expected
        if change.changed:
            known.let_go()
            known.ends["expired"] += 1

    # -- people -----------------------------------------------------------------------------------

    def pause(self, run_id: str) -> None:
        manifest = self.runs[run_id]
        allowed = not manifest.is_terminal and not manifest.paused

        self.operate(run_id, lifecycle.pause, allowed, Outcome.PAUSED)

    def resume(self, run_id: str) -> None:
        manifest, known = self.runs[run_id], self.known[run_id]
        at_work = known.holder is not None and self.now < known.ends_at
        cut_short = known.holder is not None and not at_work
        expected = Outcome.RESUMED
        if cut_short and known.interruptions() == MAX_INTERRUPTIONS:
            expected = Outcome.DEAD_LETTERED
        elif not at_work and manifest.status is not RunStatus.BLOCKED:
            expected = self.blocked_or(manifest.current_step, expected)

        change = self.operate(run_id, lifecycle.resume, manifest.paused, expected)

        if change is not None and cut_short:
            known.let_go()
            known.ends["expired"] += 1

    def cancel(self, run_id: str) -> None:
        manifest, known = self.runs[run_id], self.known[run_id]

        change = self.operate(run_id, lifecycle.cancel, not manifest.is_terminal, Outcome.CANCELLED)

        if change is not None and known.holder is not None:
            known.settled = (known.holder, Outcome.CANCELLED)
            known.let_go()

    def retry(self, run_id: str) -> None:
        manifest = self.runs[run_id]
        waits = manifest.status in (RunStatus.ERROR, RunStatus.BLOCKED)
        expected = Outcome.RETRIED
        if not manifest.paused:
            expected = self.blocked_or(manifest.current_step, expected)

        change = self.operate(run_id, lifecycle.retry, waits and not manifest.is_terminal, expected)

        if change is not None:
            self.known[run_id].kept = None

    def approve(self, run_id: str) -> None:
        manifest, known = self.runs[run_id], self.known[run_id]
        kept, step = known.kept, manifest.current_step
        allowed = kept is not None and not manifest.is_terminal
        expected = self.after_output(run_id, Outcome.APPROVED)

        change = self.operate(run_id, lifecycle.approve, allowed, expected)

        if change is not None and kept is not None:
            self.went_on(run_id, step, kept)

    @precondition(lambda self: len(self.runs) < 4 and self.runs[self.nth_run(0)].is_terminal)
    @rule(recent=RECENT, from_step=st.sampled_from([*PLAN, "nowhere"]))
    def recreate(self, recent: int, from_step: str) -> None:
        run_id = self.nth_run(recent)
        manifest, known = self.runs[run_id], self.known[run_id]
        new = _new_run(f"r-{len(self.runs) + 1}")
        recreate = partial(lifecycle.recreate, from_step=from_step, new=new)
        earlier = PLAN[: PLAN.index(from_step)] if from_step in PLAN else PLAN
        if from_step not in PLAN or any(step not in known.handed_off for step in earlier):
            error: type[LeaseholdError] = InvalidRequestError
        else:
            error = UnknownKeyError
        if not manifest.is_terminal:
            self.operate(run_id, recreate, False, Outcome.RECREATED)
            return
        if error is InvalidRequestError or not self.is_known(from_step):
            self.refused(run_id, self.asked(recreate), error)
            return

        change = self.operate(run_id, recreate, True, Outcome.RECREATED)

        assert change is not None
        assert change.created is not None
        assert change.created.recreated_from == run_id
        assert change.created.current_step == from_step
        assert change.manifest.recreated_as[-1] == new.run_id

    def give_up(self, run_id: str) -> None:
        manifest = self.runs[run_id]
        expected = Outcome.DUPLICATE if manifest.completed_at else Outcome.DEAD_LETTERED
        expected = Outcome.CANCELLED if manifest.cancelled else expected

        change = self.commit(
            run_id,
            lambda m, now: lifecycle.dead_letter(
                m, now, self.in_force, DeadLetterReason.NEVER_STARTED, "its tasks ran out"
            ),
        )

        assert change.outcome is expected
        self.known[run_id].let_go()

    def blocked_or(self, step: str, outcome: Outcome) -> Outcome:
        return outcome if self.is_known(step) else Outcome.BLOCKED

    def asked(self, operation: Callable[..., Change]) -> Transition:
        return partial(operation, rules=self.in_force, actor="ada", reason="testing")

    def operate(
        self, run_id: str, operation: Callable[..., Change], allowed: bool, expected: Outcome
    ) -> Change | None:
        if not allowed:
            self.refused(run_id, self.asked(operation), NotAllowedError)
            return None
        change = self.commit(run_id, self.asked(operation))
        assert change.changed
        assert change.outcome is expected
        return change

    # -- what always holds -------------------------------------------------------------------------

    @invariant()
    def every_run_is_in_order(self) -> None:
        for run_id, known in self.known.items():
            manifest = self.runs[run_id]
            _check_lease(manifest, known)
            _check_alarm(manifest)
            _check_owed(manifest)
            _check_counts(manifest, known)
            _check_steps(manifest, known)

    @invariant()
    def only_the_holder_of_a_lease_is_let_in(self) -> None:
        for run_id in self.runs:
            manifest = self.runs[run_id]
            mine = [worker for worker in self.workers if worker.run_id == run_id]
            let_in = [worker for worker in mine if _is_let_in(manifest, self.now, worker)]
            assert len(let_in) <= 1
            assert let_in == [worker for worker in mine if self.holds(worker)]
            tokens = [worker.fence.fencing_token for worker in mine]
            assert tokens == sorted(set(tokens)), "tokens strictly grow"

    def teardown(self) -> None:
        """Whatever was reached, a run that is not parked comes to an end."""
        self.catalog.update(CATALOG)
        for run_id in self.runs:
            manifest = self.runs[run_id]
            if manifest.alarm_at is None or manifest.paused:
                continue
            for habit in HABITS:
                for by_hints in (True, False):
                    _comes_to_an_end(manifest, self.now, self.in_force, habit, by_hints=by_hints)


def _new_run(run_id: str) -> NewRun:
    return NewRun(
        run_id=run_id,
        pipeline="letters",
        plan=PLAN,
        input=KeptValue(text='{"to":"ada"}'),
        input_digest="abc",
        nonce=f"nonce of {run_id}",
    )


def _output(worker: Worker) -> str:
    return json.dumps(f"by {worker.fence.lease_id}")


def _text(manifest: Manifest) -> str:
    return pydantic_core.to_json(to_document(manifest)).decode()


def _from_store(manifest: Manifest) -> Manifest:
    """Return the run as it comes back from a store, and check that it is the same."""
    stored = Manifest.model_validate(json.loads(_text(manifest)))
    assert stored == manifest, "a manifest survives its store"
    return stored


def _check_change(before: Manifest, change: Change, now: datetime) -> None:
    after = change.manifest
    if not change.changed:
        assert after == before
        assert (change.events, change.created) == ((), None)
        return
    assert after.updated_at == now
    assert after.traced == before.traced + len(change.events)
    if before.is_terminal:
        assert after.with_(**{name: getattr(before, name) for name in LINEAGE}) == before
        return
    seen = {"enqueued": after.dispatch.enqueued, "seen_at": after.dispatch.seen_at}
    same = after.dispatch == before.dispatch.with_(**seen)
    new = not same or after.dispatch.enqueued < before.dispatch.enqueued
    assert after.dispatch.generation == before.dispatch.generation + new
    assert not (new and after.paused), "a paused run is not dispatched"
    new_lease = _lease_id(after) not in (None, _lease_id(before))
    assert after.fencing_token == before.fencing_token + new_lease
    was, is_ = PLAN.index(before.current_step), PLAN.index(after.current_step)
    assert is_ - was in (0, 1)
    for step in PLAN[:was]:
        assert after.steps[step] == before.steps[step], "what was handed off never changes"
    if is_ == was:
        assert after.steps[PLAN[was]].handed_off_at is None
    else:
        assert after.steps[PLAN[was]].handed_off_at == now


def _lease_id(manifest: Manifest) -> str | None:
    return None if manifest.lease is None else manifest.lease.lease_id


def _check_lease(manifest: Manifest, known: Known) -> None:
    assert (manifest.status is RunStatus.IN_PROGRESS) is (manifest.lease is not None)
    assert _lease_id(manifest) == known.holder
    if manifest.lease is not None:
        assert manifest.lease.expires_at == known.ends_at <= manifest.lease.max_expires_at
        assert manifest.lease.max_expires_at == known.cap
        assert manifest.dispatch.enqueued
        assert manifest.dispatch.step == manifest.current_step


def _check_alarm(manifest: Manifest) -> None:
    ends = (manifest.status is RunStatus.COMPLETED, manifest.cancelled, manifest.dead_lettered)
    assert sum(ends) <= 1
    assert manifest.is_terminal is any(ends)
    assert not (manifest.is_terminal and (manifest.paused or manifest.lease))
    if manifest.lease is not None:
        assert manifest.alarm_at == manifest.lease.expires_at
    elif any(ends) or manifest.paused or manifest.status is RunStatus.BLOCKED:
        assert manifest.alarm_at is None
    else:
        known_until = manifest.dispatch.seen_at or manifest.dispatch.not_before
        assert manifest.alarm_at == max(known_until, manifest.dispatch.not_before) + GRACE


def _check_owed(manifest: Manifest) -> None:
    live = not manifest.is_terminal and not manifest.paused
    waits = live and manifest.status in (RunStatus.PENDING, RunStatus.ERROR)
    owed = [(task.generation, task.not_before, task.queue) for task in owed_tasks(manifest)]
    dispatch = manifest.dispatch
    if waits:
        assert dispatch.step == manifest.current_step
        assert dispatch.enqueued is (dispatch.seen_at is not None), "only a sweep can know"
    if waits and not dispatch.enqueued:
        assert owed == [(dispatch.generation, dispatch.not_before, manifest.current_step)]
    else:
        assert owed == []


def _check_counts(manifest: Manifest, known: Known) -> None:
    assert manifest.attempts.model_dump() == {
        "failed": known.ends["failed"],
        "interrupted": known.ends["interrupted"],
        "expired": known.ends["expired"],
        "continued": 0,
    }
    one_more = 1 if manifest.dead_lettered else 0
    assert known.ends["failed"] <= MAX_RETRIES + one_more
    assert known.interruptions() <= MAX_INTERRUPTIONS + one_more


def _check_steps(manifest: Manifest, known: Known) -> None:
    place = PLAN.index(manifest.current_step)
    current = manifest.steps[manifest.current_step]
    assert current.status is manifest.status
    assert (manifest.block is not None) is (manifest.status is RunStatus.BLOCKED)
    assert [manifest.steps[step].status for step in PLAN[:place]] == [RunStatus.COMPLETED] * place
    for step in PLAN[place + 1 :]:
        assert manifest.steps[step].output is None
        assert manifest.steps[step].status is RunStatus.PENDING
    outputs = {step: r.output for step, r in manifest.steps.items() if r.output is not None}
    kept = {} if known.kept is None else {manifest.current_step: known.kept}
    assert outputs == known.handed_off | kept


def _is_let_in(manifest: Manifest, now: datetime, worker: Worker) -> bool:
    try:
        held_lease(manifest, now, worker.fence)
    except LeaseLostError:
        return False
    return True


# -- liveness --------------------------------------------------------------------------------------

#: How the workers of a proof of liveness behave, attempt after attempt.
HABITS: dict[str, tuple[str, ...]] = {
    "good": ("complete",),
    "failing": ("fail",),
    "dying": ("die",),
    "interrupted": ("release",),
    "moody": ("die", "fail", "release", "complete"),
}

#: Each step may fail, be interrupted and succeed; an attempt takes a sweep, a hint and an end.
BOUND = 3 * len(PLAN) * (MAX_RETRIES + 1 + MAX_INTERRUPTIONS + 1 + 1)


def _comes_to_an_end(
    manifest: Manifest, now: datetime, rules: Rules, habit: str, *, by_hints: bool
) -> None:
    """Check that the run ends by its tasks, or where each first task is lost, by its alarms."""
    replaced = False
    for attempt in range(BOUND):
        if manifest.is_terminal:
            assert habit != "failing" or manifest.dead_lettered
            return
        assert manifest.alarm_at is not None
        owed = owed_tasks(manifest)
        comes = (by_hints or replaced) and owed
        now = max(now, owed[0].not_before if comes else manifest.alarm_at)
        generation = manifest.dispatch.generation
        if comes or (by_hints and manifest.lease is not None):
            change = lifecycle.arrive(
                manifest,
                now,
                rules=rules,
                generation=generation,
                lease_id=f"proof-{attempt}",
                holder="proof",
            )
        elif manifest.lease is not None:
            lease_id = manifest.lease.lease_id
            change = lifecycle.expire(manifest, now, rules=rules, lease_id=lease_id)
        else:
            change = lifecycle.redispatch(
                manifest, now, rules=rules, generation=generation, in_queue=False
            )
        replaced = change.outcome is Outcome.REDISPATCHED
        manifest = change.manifest
        if change.outcome is Outcome.ACQUIRED:
            deed = HABITS[habit][attempt % len(HABITS[habit])]
            manifest = _do(deed, manifest, now, rules)
    pytest.fail(f"a run with {habit} workers did not end in {BOUND} steps: {manifest!r}")


def _do(deed: str, manifest: Manifest, now: datetime, rules: Rules) -> Manifest:
    assert manifest.lease is not None
    facts: dict[str, Any] = {
        "rules": rules,
        "fence": Fence(manifest.lease.lease_id, manifest.fencing_token),
    }
    match deed:
        case "complete":
            return lifecycle.complete(manifest, now, **facts, output=KeptValue(text="1")).manifest
        case "fail":
            return lifecycle.fail(manifest, now, **facts, error=ERROR).manifest
        case "release":
            return lifecycle.release(manifest, now, **facts, reason="instance_shutdown").manifest
    return manifest  # it died


def test_no_order_of_events_breaks_the_lifecycle() -> None:
    """Tasks, workers and people come in every order; this is what all guarantees rest on."""
    run_state_machine_as_test(World)
