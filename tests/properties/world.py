"""The world of the model: its time, its runs and tasks, and what is known of each run.

The model is told nothing but the answers of the lifecycle; what must hold for every
change is checked where each is committed.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
)

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition, as_write
from leasehold.domain.checkpoint import CallCount
from leasehold.domain.dispatch import Rules, StepSettings
from leasehold.domain.effect import Task
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest, to_document
from leasehold.domain.status import Outcome
from leasehold.domain.trace import TraceType
from leasehold.errors import (
    LeaseholdError,
)
from tests.properties.announcements import Announcements
from tests.properties.invariants import (
    check_change,
    check_generation,
    from_store,
    is_dispatched,
    text,
)
from tests.properties.model import (
    GRACE,
    MAX_FAILURES,
    MAX_INTERRUPTIONS,
    PLAN,
    START,
    STUCK,
    TRIALS,
    TTL,
    WINDOW,
    Known,
    Output,
    Seen,
    Worker,
    catalog_of,
    tasks_of,
)

#: How long ago something began: mostly the latest counts.
RECENT = st.sampled_from([0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5])


class World(RuleBasedStateMachine):
    """Runs, their tasks and workers, and the time."""

    def __init__(self) -> None:
        super().__init__()
        self.time = START
        self.elapsed = timedelta()
        self.away: set[str] = set()
        self.catalog = catalog_of(self.away)
        self.others_know = False  # whether a worker lives that knows what this catalog does not
        self.announcements = Announcements()
        self.in_force = Rules(
            settings_for=self.catalog.get,
            channels_for=self.announcements.channels_for,
            lease_ttl=TTL,
            max_failures=MAX_FAILURES,
            max_interruptions=MAX_INTERRUPTIONS,
            grace=GRACE,
            stuck_timeout=STUCK,
            recovery_window=WINDOW,
        )
        self.ids = 0
        self.runs: dict[str, Manifest] = {}
        self.known: dict[str, Known] = {}
        self.tasks: list[Task] = []
        self.queues: tuple[set[str], ...] = (set(), set())  # of two servers, by names of tasks
        self.workers: list[Worker] = []
        self.versions: Counter[str] = Counter()
        self.traced: set[str] = set()
        self.attempts: set[tuple[str, str, int, int]] = set()

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
        self.announcements.committed(before, change)
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
                self.known[run_id].lost, self.known[run_id].lost_since = 0, None
                self.note_dispatch(before, change.manifest)
        if change.created is not None:
            self.add_run(change.created)
        self.tasks += tasks_of(change)
        return change

    def note_dispatch(self, before: Manifest, after: Manifest) -> None:
        """Note where the step is to run; who does not know it leaves that as it was."""
        known, step = self.known[after.run_id], after.current_step
        is_further = step != before.position.dispatch.step
        if self.is_known(step):
            known.elsewhere, known.provisional = self.is_away(step), False
        else:
            known.elsewhere = known.elsewhere and not is_further
            known.provisional = known.provisional or is_further

    def add_run(self, manifest: Manifest) -> None:
        self.runs[manifest.run_id] = from_store(manifest)
        kept = {
            step: Output(record.output, record.output_status == "PARTIAL")
            for step, record in manifest.steps.items()
            if record.output is not None
        }
        elsewhere = self.is_away(manifest.current_step)
        self.known[manifest.run_id] = known = Known(handed_off=kept, elsewhere=elsewhere)
        for step, record in manifest.steps.items():
            counts = record.calls or CallCount()
            known.made[step], known.spared[step] = counts.made, counts.spared

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
        assert manifest.position.lease is not None
        assert manifest.position.lease.lease_id == lease_id
        number = (run_id, manifest.current_step, manifest.position.trial, manifest.position.attempt)
        assert number not in self.attempts, "no two attempts have one number"
        self.attempts.add(number)
        known.holder, known.lost, known.lost_since = lease_id, 0, None
        self.lease_begins(known, self.catalog[manifest.current_step], now)
        assert manifest.position.lease.expires_at == known.ends_at
        resumed = [e.model_dump() for e in change.events if e.type is TraceType.CHECKPOINT_RESUMED]
        facts = [(event.get("phase", ""), event["iterationCount"]) for event in resumed]
        looks_on = manifest.position.dispatch.after_block is not None
        assert facts == ([] if known.checkpoint is None or looks_on else [known.checkpoint[:2]])
        fence = Fence(lease_id, manifest.fencing_token)
        self.workers.append(Worker(run_id, fence, self.seen(run_id)))

    def lease_begins(self, known: Known, settings: StepSettings, now: datetime) -> None:
        """Note that the lease of an attempt at such a step runs from now."""
        known.cap = now + settings.dispatch_deadline + timedelta(minutes=5)
        known.ends_at = known.cap if settings.heartbeat is None else now + TTL
        known.heard_at, known.deadline = now, now + settings.dispatch_deadline

    def after_early_end(self, run_id: str, outcome: Outcome, *, counts: bool) -> Outcome:
        """Return what an attempt that was cut short should answer, instead of `outcome`."""
        is_stuck = self.known[run_id].stuck + counts > MAX_INTERRUPTIONS
        return Outcome.DEAD_LETTERED if is_stuck else outcome

    def is_silent(self, run_id: str) -> bool:
        return not self.runs[run_id].paused and self.known[run_id].is_silent(self.now)

    def after_lapse(
        self, run_id: str, expired: Outcome, hung: Outcome, *, gone: bool = False
    ) -> Outcome:
        """Return what becomes of a run whose lease is ended for its worker: one of the two."""
        known = self.known[run_id]
        if not known.hung:
            silent = not gone and self.is_silent(run_id)
            if known.silences + silent > 1:
                return Outcome.DEAD_LETTERED
            return self.after_early_end(run_id, expired, counts=known.lapse_counts(self.now))
        if known.last_failure:
            return Outcome.DEAD_LETTERED
        return hung

    def after_failure(self, run_id: str, *, permanent: bool = False) -> Outcome:
        """Return what an attempt that failed should answer."""
        is_last = permanent or self.known[run_id].last_failure
        return Outcome.DEAD_LETTERED if is_last else Outcome.RETRY_SCHEDULED

    def opens_trial(self, run_id: str, output: Output) -> bool:
        """Whether an output is a review that another trial follows."""
        known = self.known[run_id]
        if output.verdict is None or output.verdict.settled or known.trial == TRIALS.max_trials:
            return False
        return not known.handed_off[TRIALS.author].is_partial

    def after_output(self, run_id: str, outcome: Outcome, output: Output) -> Outcome:
        """Return what an output that goes on should answer, instead of `outcome`."""
        manifest = self.runs[run_id]
        is_last = manifest.current_step == PLAN[-1] and not self.opens_trial(run_id, output)
        return Outcome.COMPLETED if is_last else outcome

    def went_on(self, run_id: str, step: str, output: Output) -> None:
        known = self.known[run_id]
        assert step not in known.handed_off, "a step is handed off once in each trial"
        opens = self.opens_trial(run_id, output)
        known.handed_off[step] = output
        known.step_is_over()
        if output.verdict is not None:
            looped = (TRIALS.author, TRIALS.reviewer)
            known.trials.append({name: known.handed_off.pop(name) for name in looped})
        if output.verdict is not None and not opens:
            known.handed_off |= known.best_trial()
        if step != PLAN[-1]:
            known.ends.clear()
            known.progress()

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
            known.lapsed(self.now, silent=silent)
