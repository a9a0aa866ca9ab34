"""The lifecycle against a model: hints, workers, time, people and deploys in any order.

The world below has one run (and the runs that are recreated from it), a bag of tasks that come
late, twice, reordered or never, workers elsewhere that claim steps without any task, and workers
that go on after their lease is over. The model is told nothing but the answers; what it expects is
compared with each next answer, and what must always hold is checked after each step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import partial

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
from leasehold.domain.change import Change, Transition, as_write
from leasehold.domain.dispatch import Rules
from leasehold.domain.draft import Draft
from leasehold.domain.give_up_rules import Verdict
from leasehold.domain.lease import Fence
from leasehold.domain.lifecycle.renewal import MAX_PHASES
from leasehold.domain.manifest import KeptValue, Manifest, to_document
from leasehold.domain.status import DeadLetterReason, Outcome, RunStatus
from leasehold.domain.task import Task
from leasehold.domain.trace import TraceType
from leasehold.errors import (
    InvalidRequestError,
    LeaseHeldError,
    LeaseholdError,
    LeaseLostError,
    NotAllowedError,
    NothingToClaimError,
    UnknownKeyError,
)
from tests.properties.invariants import (
    check_alarm,
    check_change,
    check_counts,
    check_generation,
    check_lease,
    check_owed,
    check_steps,
    from_store,
    is_dispatched,
    is_let_in,
    text,
)
from tests.properties.liveness import HABITS, comes_to_an_end
from tests.properties.model import (
    ERROR,
    FOUND,
    GRACE,
    MAX_INTERRUPTIONS,
    MAX_RETRIES,
    PLAN,
    START,
    STUCK,
    TTL,
    WAIT,
    Kept,
    Known,
    Seen,
    Worker,
    catalog_of,
    new_run,
    output_of,
)


def _weighted(**weights: int) -> st.SearchStrategy[str]:
    """Draw one of the names, the likelier the heavier; examples shrink towards the first."""
    return st.sampled_from([name for name, weight in weights.items() for _ in range(weight)])


#: How long ago something began: mostly the latest counts.
RECENT = st.sampled_from([0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5])


class World(RuleBasedStateMachine):
    """Everything that can happen to one run."""

    def __init__(self) -> None:
        super().__init__()
        self.time = START
        self.elapsed = timedelta()
        self.away: set[str] = set()
        self.catalog = catalog_of(self.away)
        self.in_force = Rules(
            settings_for=self.catalog.get,
            lease_ttl=TTL,
            max_interruptions=MAX_INTERRUPTIONS,
            grace=GRACE,
            stuck_timeout=STUCK,
            recovery_window=timedelta(days=7),  # windows: tests/unit/domain/test_verdict
        )
        self.ids = 0
        self.runs: dict[str, Manifest] = {}
        self.known: dict[str, Known] = {}
        self.tasks: list[Task] = []
        self.workers: list[Worker] = []
        self.versions: Counter[str] = Counter()
        self.traced: set[str] = set()
        self.attempts: set[tuple[str, str, int, int]] = set()

    # -- the world's own machinery -----------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The store's time. It may be set back; then no less time has gone by."""
        return self.time

    @now.setter
    def now(self, now: datetime) -> None:
        self.elapsed += max(timedelta(), now - self.time)
        self.time = now

    def new_id(self) -> str:
        self.ids += 1
        return f"{self.ids:04d}"

    def nth_run(self, recent: int) -> str:
        return list(self.runs)[-1 - recent % len(self.runs)]

    def is_known(self, step: str) -> bool:
        return step in self.catalog

    def is_away(self, step: str) -> bool:
        return self.is_known(step) and step in self.away

    def seen(self, run_id: str) -> Seen:
        return Seen(self.runs[run_id], self.versions[run_id], self.now, self.elapsed)

    def commit(self, run_id: str, transition: Transition, at: datetime | None = None) -> Change:
        """Do as a store does: read, decide, write; and check what holds for every change.

        `at` is the store's time as a worker estimates it that has seen this version.
        """
        before, now = self.runs[run_id], at or self.now
        was = text(before)
        change = transition(before, now)
        assert transition(before, now) == change, "a transition is pure"
        assert text(before) == was, "a transition leaves its argument alone"
        check_change(before, change, now)
        write = as_write(change)
        for ref in write.creates or ():
            assert str(ref) not in self.traced, "a trace event has a number of its own"
            self.traced.add(str(ref))
        if change.changed:
            assert write.document == to_document(change.manifest)
            self.runs[run_id] = from_store(change.manifest)
            self.versions[run_id] += 1
            check_generation(before, change, self.known[run_id])
            if is_dispatched(before, change.manifest):
                self.known[run_id].elsewhere = self.is_away(change.manifest.current_step)
                self.known[run_id].lost = 0
        if change.created is not None:
            self.add_run(change.created)
        self.tasks += change.owed
        return change

    def add_run(self, manifest: Manifest) -> None:
        self.runs[manifest.run_id] = from_store(manifest)
        kept = {s: r.output for s, r in manifest.steps.items() if r.output is not None}
        elsewhere = self.is_away(manifest.current_step)
        self.known[manifest.run_id] = Known(handed_off=kept, elsewhere=elsewhere)

    def refused(
        self,
        run_id: str,
        transition: Transition,
        error: type[LeaseholdError],
        at: datetime | None = None,
    ) -> None:
        """Check that the transition is refused; a store then writes nothing."""
        with pytest.raises(error):
            transition(self.runs[run_id], at or self.now)

    def leased(self, run_id: str, change: Change, lease_id: str) -> None:
        """Note the lease that the change gave, and that its attempt goes on from what is kept."""
        manifest, known = change.manifest, self.known[run_id]
        now = manifest.updated_at
        assert manifest.lease is not None
        assert manifest.lease.lease_id == lease_id
        number = (run_id, manifest.current_step, manifest.trial, manifest.attempt)
        assert number not in self.attempts, "no two attempts have one number"
        self.attempts.add(number)
        settings = self.catalog[manifest.current_step]
        known.holder, known.lost = lease_id, 0
        known.cap = now + settings.dispatch_deadline + timedelta(minutes=5)
        known.ends_at = known.cap if settings.heartbeat is None else now + TTL
        known.heard_at, known.deadline = now, now + settings.dispatch_deadline
        assert manifest.lease.expires_at == known.ends_at
        resumed = [e.model_dump() for e in change.events if e.type is TraceType.CHECKPOINT_RESUMED]
        facts = [(event.get("phase", ""), event["iterationCount"]) for event in resumed]
        assert facts == ([] if known.checkpoint is None else [known.checkpoint[:2]])
        fence = Fence(lease_id, manifest.fencing_token)
        self.workers.append(Worker(run_id, fence, self.seen(run_id)))

    def after_early_end(self, run_id: str, outcome: Outcome) -> Outcome:
        """Return what an attempt that was cut short should answer, instead of `outcome`."""
        manifest, known = self.runs[run_id], self.known[run_id]
        if known.stuck + 1 > MAX_INTERRUPTIONS:
            return Outcome.DEAD_LETTERED
        if not manifest.paused and not self.is_known(manifest.current_step):
            return Outcome.BLOCKED
        return outcome

    def is_silent(self, run_id: str) -> bool:
        return not self.runs[run_id].paused and self.known[run_id].is_silent(self.now)

    def after_lapse(
        self, run_id: str, expired: Outcome, hung: Outcome, *, gone: bool = False
    ) -> Outcome:
        """Return what becomes of a run whose lease is ended for its worker: one of the two."""
        manifest, known = self.runs[run_id], self.known[run_id]
        if not known.hung:
            silent = not gone and self.is_silent(run_id)
            given_up = known.silences + silent > 1
            return Outcome.DEAD_LETTERED if given_up else self.after_early_end(run_id, expired)
        if known.ends["failed"] == MAX_RETRIES:
            return Outcome.DEAD_LETTERED
        return hung if manifest.paused else self.blocked_or(manifest.current_step, hung)

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
        known.kept = known.checkpoint = None
        known.furthest = {}
        if step != PLAN[-1]:
            known.ends.clear()
            known.progress()

    # -- what can happen, the likelier the heavier ---------------------------------------------

    @initialize(away=st.sampled_from([(), (), ("draft",), ("check",), ("send",), PLAN]))
    def start(self, away: Collection[str]) -> None:
        self.away.update(away)
        self.catalog.update(catalog_of(self.away))

        change = lifecycle.start(None, self.now, rules=self.in_force, new=new_run("r-1"))

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

    @rule(
        what=_weighted(
            complete=3, complete_and_go_on=2, nothing=3, fail=2, block=1, release=1, defer=2, hang=1
        ),
        keeps=st.sampled_from([False, False, True]),
    )
    def by_the_book(self, what: str, keeps: bool) -> None:
        """A worker gets the latest run when it should, and does the next thing."""
        run_id = self.nth_run(0)
        dispatch, workers = self.runs[run_id].dispatch, len(self.workers)
        self.now = max(self.now, dispatch.not_before)
        if dispatch.remote:
            self.claim(run_id)
        else:
            self.hint(run_id, dispatch.generation)
        if len(self.workers) > workers and keeps:
            self.checkpoint(self.workers[-1])
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
            defer=3,
            block=3,
            checkpoint=3,
            renew=2,
            hang=2,
            lease_is_over=2,
            checkpoint_again=1,
            checkpoint_back=1,
            checkpoint_of_the_next_phase=1,
            fail_for_good=1,
            holder_is_gone=1,
        ),
        reads=st.booleans(),
    )
    def work(self, recent: int, what: str, reads: bool) -> None:
        worker = self.workers[-1 - recent % len(self.workers)]
        worker.reads = reads
        getattr(self, what)(worker)

    @precondition(lambda self: self.workers)
    @rule(
        recent=RECENT,
        first=_weighted(renew=3, checkpoint=2, cancel=2, pause=2, complete=1, release=1),
        then=_weighted(complete=4, fail=2, checkpoint=2, release=1, block=1, renew=1),
    )
    def race(self, recent: int, first: str, then: str) -> None:
        """Two writes cross: the one that comes second was decided on what is no longer stored."""
        worker = self.workers[-1 - recent % len(self.workers)]
        before = worker.seen
        if first in ("cancel", "pause"):
            getattr(self, first)(worker.run_id)
        else:
            worker.reads = True
            getattr(self, first)(worker)
        worker.seen, worker.reads = before, False
        getattr(self, then)(worker)

    @precondition(lambda self: self.workers)
    @rule(
        recent=RECENT,
        late=st.integers(0, 600),
        then=_weighted(nobody=2, claim=2, sweep=1, current_hint=1),
    )
    def partition(self, recent: int, late: int, then: str) -> None:
        """A worker that was cut off comes back once its lease is over, whoever took its place."""
        worker = self.workers[-1 - recent % len(self.workers)]
        run_id = worker.run_id
        if self.holds(worker, self.now):
            self.now = self.known[run_id].ends_at + timedelta(seconds=late)
        if then != "nobody":
            getattr(self, then)(run_id)
        stored, others = self.runs[run_id], len(self.workers)
        worker.reads = True
        for what in ("renew", "checkpoint", "complete", "fail", "block", "release", "defer"):
            getattr(self, what)(worker)
        assert self.runs[run_id] == stored, "whoever lost its lease changes nothing"
        assert len(self.workers) == others

    @precondition(lambda self: self.workers)
    @rule(recent=RECENT, seconds=st.sampled_from([1, 60, 151, 1000]))
    def suspend(self, recent: int, seconds: int) -> None:
        """A machine sleeps: its own clock has not gone on when it wakes up."""
        self.now += timedelta(seconds=seconds)
        self.workers[-1 - recent % len(self.workers)].asleep += timedelta(seconds=seconds)

    @rule(
        recent=RECENT,
        what=_weighted(
            claim=4,
            sweep_in_time=3,
            resume=3,
            pause=2,
            approve=2,
            retry=2,
            sweep=1,
            sweep_of_long_ago=1,
            current_hint=1,
            old_hint=1,
            forged_hint=1,
            give_up=1,
            cancel=1,
        ),
    )
    def operation(self, recent: int, what: str) -> None:
        getattr(self, what)(self.nth_run(recent))

    @rule(seconds=st.sampled_from([1, 8, 10, 20, 30, 60, 149, 150, 151, 400, -3, -500]))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(milliseconds=st.integers(1, 1_000_000))
    def wait_any_time(self, milliseconds: int) -> None:
        self.now += timedelta(milliseconds=milliseconds)

    @rule(step=st.sampled_from([None, None, *PLAN]))
    def deploy(self, step: str | None) -> None:
        """Deploy a catalog with all steps, or with all but one."""
        self.catalog.clear()
        self.catalog.update(catalog_of(self.away))
        if step is not None:
            del self.catalog[step]

    @rule(step=st.sampled_from(PLAN))
    def move(self, step: str) -> None:
        """Deploy a catalog where a step runs elsewhere from now on, or here again."""
        self.away ^= {step}
        self.deploy(None)

    # -- hints ---------------------------------------------------------------------------------

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
        manifest, known = self.runs[run_id], self.known[run_id]
        lost = known.lost + (not in_queue and not known.elsewhere)
        waits = manifest.alarm_at is not None and manifest.lease is None
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
            assert [task.not_before for task in change.owed] == owed
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
            assert [task.not_before for task in change.owed] == [
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

    # -- claims ----------------------------------------------------------------------------------

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
        assert not change.owed or change.outcome is Outcome.RETRY_SCHEDULED
        if takes_over:
            known.lapsed(silent=silent)
        if change.outcome is Outcome.ACQUIRED:
            self.leased(run_id, change, lease_id)

    # -- workers, zombies among them -------------------------------------------------------------

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
        """Renew the lease, and return the change; None where it was refused."""
        known, at = self.known[worker.run_id], self.decided_at(worker, transition)
        if at is None:
            return None
        if not self.holds(worker, at):
            self.refused(worker.run_id, transition, LeaseLostError, at)
            return None
        change = self.commit(worker.run_id, transition, at)
        assert change.outcome is expected
        known.ends_at = max(known.ends_at, min(at + TTL, known.cap))
        known.heard_at = at
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
            partial_results=KeptValue(text=output_of(worker)),
        )

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
        """Beat on and on, each time at the last moment, towards the cap of the lease."""
        worker.reads = True
        for _ in range(3):
            if self.holds(worker, self.now):
                self.now = self.known[worker.run_id].ends_at - timedelta(microseconds=1)
            self.renew(worker)

    def complete_and_go_on(self, worker: Worker) -> None:
        self.complete(worker, may_continue=True)

    def complete(self, worker: Worker, may_continue: bool = False) -> None:
        run_id, step = worker.run_id, self.runs[worker.run_id].current_step
        output = output_of(worker)
        complete: Transition = partial(
            lifecycle.complete,
            fence=worker.fence,
            rules=self.in_force,
            output=KeptValue(text=output),
        )
        next_lease = self.new_id()
        if may_continue:
            complete = lifecycle.then_arrive(
                complete, rules=self.in_force, lease_id=next_lease, holder="the same"
            )
        expected = self.after_output(run_id, Outcome.HANDED_OFF)

        change = self.settle(worker, complete, expected)

        if change is not None:
            self.went_on(run_id, step, output)
            if change.manifest.lease is not None:
                assert may_continue
                self.leased(run_id, change, next_lease)

    def block(self, worker: Worker) -> None:
        block = partial(
            lifecycle.block,
            rules=self.in_force,
            fence=worker.fence,
            output=KeptValue(text=output_of(worker)),
            output_status="PARTIAL",
            found=FOUND,
        )

        change = self.settle(worker, block, Outcome.BLOCKED)

        if change is not None:
            self.known[worker.run_id].kept = output_of(worker)

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
            if change.outcome is Outcome.RETRY_SCHEDULED and not manifest.paused:
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
            if change.manifest.dispatch.generation > manifest.dispatch.generation:
                wait = change.manifest.dispatch.not_before - change.manifest.updated_at
                in_a_row = change.manifest.dispatch.deferred
                assert in_a_row == manifest.dispatch.deferred + 1
                assert wait == min(
                    timedelta(seconds=10 * 2 ** (in_a_row - 1)), timedelta(minutes=5)
                )

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

    def expire(self, run_id: str, lease_id: str, *, gone: bool) -> None:
        known = self.known[run_id]
        expected = Outcome.MOVED_ON
        if known.holder == lease_id:
            expected = Outcome.LEASE_HELD
            if gone or self.now >= known.ends_at:
                expected = self.after_lapse(run_id, Outcome.EXPIRED, Outcome.EXPIRED, gone=gone)
        silent = not gone and self.is_silent(run_id)
        expire = partial(lifecycle.expire, rules=self.in_force, lease_id=lease_id, holder_gone=gone)

        change = self.commit(run_id, expire)

        assert change.outcome is expected
        if change.changed:
            known.lapsed(silent=silent)

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
        if cut_short:
            expected = self.after_lapse(run_id, expected, expected)
        if (
            expected is not Outcome.DEAD_LETTERED
            and not at_work
            and manifest.status is not RunStatus.BLOCKED
        ):
            expected = self.blocked_or(manifest.current_step, expected)

        change = self.operate(run_id, lifecycle.resume, manifest.paused, expected)

        if change is not None and cut_short:
            known.lapsed(silent=False)

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
            known = self.known[run_id]
            known.ends["repeated"] += known.kept is not None
            known.kept = None
            known.progress()
            if manifest.status is RunStatus.BLOCKED:
                known.checkpoint, known.furthest = None, {}

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
        new = new_run(f"r-{len(self.runs) + 1}")
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
        expected = Outcome.ALREADY_COMPLETED if manifest.completed_at else Outcome.DEAD_LETTERED
        expected = Outcome.CANCELLED if manifest.cancelled else expected

        change = self.commit(
            run_id,
            lambda m, now: lifecycle.dead_letter(
                Draft(m, now, self.in_force), Verdict(DeadLetterReason.NEVER_STARTED, "none came")
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
            check_lease(manifest, known)
            check_alarm(manifest, known)
            check_owed(manifest, known)
            check_counts(manifest, known)
            check_steps(manifest, known)

    @invariant()
    def only_the_holder_of_a_lease_is_let_in(self) -> None:
        for run_id in self.runs:
            manifest = self.runs[run_id]
            mine = [worker for worker in self.workers if worker.run_id == run_id]
            let_in = [worker for worker in mine if is_let_in(manifest, self.now, worker)]
            assert len(let_in) <= 1
            assert let_in == [worker for worker in mine if self.holds(worker, self.now)]
            tokens = [worker.fence.fencing_token for worker in mine]
            assert tokens == sorted(set(tokens)), "tokens strictly grow"

    def teardown(self) -> None:
        """Whatever was reached, a run that is not parked comes to an end."""
        self.deploy(None)
        for run_id in self.runs:
            manifest = self.runs[run_id]
            if manifest.alarm_at is None or manifest.paused:
                continue
            for habit in HABITS:
                for by_hints in (True, False):
                    comes_to_an_end(manifest, self.now, self.in_force, habit, by_hints=by_hints)


def test_no_order_of_events_breaks_the_lifecycle() -> None:
    """Tasks, workers and people come in every order; this is what all guarantees rest on."""
    run_state_machine_as_test(World)
