"""The lifecycle against a model: hints, workers, time, people and deploys in any order.

The world below has one run, the runs that are recreated from it, and a bag of tasks that come
late, twice, reordered or never. Remote workers claim steps without a task, and some workers go on
after their lease is over. The model gets only the answers. Its expectation is compared with each
next answer, and the invariants are checked after each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
)

from leasehold.domain import lifecycle
from leasehold.domain.manifest_parts import TrialRule
from leasehold.domain.status import DeadLetterReason, Outcome
from tests.properties.announcements import CHANNELS
from tests.properties.deliveries import Deliveries
from tests.properties.invariants import (
    LOOPED,
    check_alarm,
    check_counts,
    check_lease,
    check_owed,
    check_steps,
    is_let_in,
)
from tests.properties.liveness import HABITS, comes_to_an_end
from tests.properties.model import (
    PLAN,
    catalog_of,
    new_run,
    tasks_of,
)
from tests.properties.people import People
from tests.properties.settlements import Settlements
from tests.properties.world import RECENT


def _weighted(**weights: int) -> st.SearchStrategy[str]:
    """Draw one of the names, the likelier the heavier; examples shrink towards the first."""
    return st.sampled_from([name for name, weight in weights.items() for _ in range(weight)])


class Lifecycle(Deliveries, Settlements, People):
    """Everything that can happen to one run, the likelier the heavier.

    Attributes:
        remote: the steps that may run elsewhere at first, one of these.
        trials: those of the run.
    """

    remote: Sequence[Sequence[str]] = ((), (), ("draft",), ("check",), ("send",), PLAN)
    trials: TrialRule | None = None

    @initialize(place=st.integers(0, 5))
    def start(self, place: int) -> None:
        self.away.update(self.remote[place % len(self.remote)])
        self.catalog.update(catalog_of(self.away))

        change = lifecycle.start(
            None, self.now, rules=self.in_force, new=new_run("r-1", self.trials)
        )

        assert change.outcome is Outcome.STARTED
        self.add_run(change.manifest)
        self.tasks += tasks_of(change)

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
            complete=3,
            complete_and_go_on=2,
            complete_in_part=1,
            call_once=2,
            nothing=3,
            fail=2,
            block=1,
            unable=2,
            release=1,
            continue_later=2,
            continue_and_go_on=1,
            continue_on_and_on=1,
            defer=2,
            hang=1,
            exceed_limit=1,
        ),
        keeps=st.sampled_from([False, False, True]),
    )
    def by_the_book(self, what: str, keeps: bool) -> None:
        """A worker gets the latest run when it should, and does the next thing."""
        run_id = self.nth_run(0)
        dispatch, workers = self.runs[run_id].position.dispatch, len(self.workers)
        self.now = max(self.now, dispatch.not_before)
        if dispatch.remote:
            self.claim(run_id)
        else:
            self.hint(run_id, dispatch.generation)
        if len(self.workers) > workers and keeps:
            self.checkpoint(self.workers[-1])
        if len(self.workers) > workers and what != "nothing":
            getattr(self, what)(self.workers[-1])

    @precondition(lambda self: self.trials is not None)
    @rule(gets_there=st.booleans())
    def play_a_trial(self, gets_there: bool) -> None:
        """Each step of a trial in turn; or the author alone, and the reviewer later."""
        for _ in LOOPED if gets_there else LOOPED[:1]:
            self.by_the_book("complete", keeps=False)

    @precondition(lambda self: self.workers)
    @rule(
        recent=RECENT,
        what=_weighted(
            complete=4,
            complete_and_go_on=3,
            fail=4,
            exceed_limit=2,
            release=3,
            continue_later=3,
            continue_and_go_on=2,
            defer=3,
            block=3,
            unable=3,
            checkpoint=3,
            renew=2,
            hang=2,
            lease_is_over=2,
            call_once=4,
            spare_a_call=1,
            complete_in_part=1,
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
        then=_weighted(
            complete=4,
            fail=2,
            checkpoint=2,
            continue_later=2,
            release=1,
            block=1,
            renew=1,
            exceed_limit=1,
        ),
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
        """A worker that was cut off comes back once its lease is over, also after a takeover."""
        worker = self.workers[-1 - recent % len(self.workers)]
        run_id = worker.run_id
        if self.holds(worker, self.now):
            self.now = self.known[run_id].ends_at + timedelta(seconds=late)
        if then != "nobody":
            getattr(self, then)(run_id)
        stored, others = self.runs[run_id], len(self.workers)
        worker.reads = True
        for what in ("renew", "checkpoint", "complete", "fail", "block", "unable", "release"):
            getattr(self, what)(worker)
        self.continue_later(worker)
        self.exceed_limit(worker)
        assert self.runs[run_id] == stored, "whoever lost its lease changes nothing"
        is_taken = self.known[run_id].holder != worker.fence.lease_id
        self.defer(worker)
        assert not is_taken or self.runs[run_id] == stored, "nor says that the store was away"
        assert len(self.workers) == others

    @precondition(lambda self: self.workers)
    @rule(
        recent=RECENT,
        what=_weighted(
            complete_and_go_on=4,
            continue_and_go_on=2,
            complete=2,
            fail=1,
            block=1,
            unable=1,
            release=1,
            defer=1,
            exceed_limit=1,
        ),
        late=st.integers(0, 600),
        then=_weighted(nobody=3, claim=2, current_hint=2, sweep=1, cancel=1),
    )
    def settle_unheard(self, recent: int, what: str, late: int, then: str) -> None:
        """The answer to a settlement is lost, and the store is away for longer than the lease."""
        worker = self.workers[-1 - recent % len(self.workers)]
        self.lost_answer(worker, what, timedelta(seconds=late), then)

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
            look_on_and_on=2,
            look_at_once=1,
            current_hint=1,
            old_hint=1,
            forged_hint=1,
            give_up=1,
            cancel=1,
        ),
    )
    def operation(self, recent: int, what: str) -> None:
        getattr(self, what)(self.nth_run(recent))

    @rule(recent=RECENT, server=st.sampled_from([0, 1]), how=_weighted(look=4, twice=2, killed=1))
    def two_servers(self, recent: int, server: int, how: str) -> None:
        """Each has its own queue, and looks after every run."""
        run_id = self.nth_run(recent)
        if how == "killed":
            self.server_is_killed(server)
        self.look_of_a_server(run_id, server)
        if how == "twice":
            self.look_of_a_server(run_id, 1 - server)

    @rule(seconds=st.sampled_from([1, 8, 10, 20, 30, 60, 149, 150, 151, 400, 600, -3, -500]))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(
        hours=st.sampled_from([1, 3, 9, 72, -1]),
        recent=RECENT,
        then=_weighted(nobody=2, sweep=3, current_hint=2, claim=2),
    )
    def time_off(self, hours: int, recent: int, then: str) -> None:
        """No process runs for a night or a holiday, or the clock jumps: no run is given up."""
        run_id = self.nth_run(recent)
        self.now += timedelta(hours=hours)
        was = self.runs[run_id]
        if then != "nobody":
            getattr(self, then)(run_id)
        is_new = self.runs[run_id].dead_lettered and not was.dead_lettered
        reason = self.runs[run_id].dead_letter_reason
        assert not is_new or (hours < 0 or reason is DeadLetterReason.RETRIES_EXHAUSTED)

    @rule(milliseconds=st.integers(1, 1_000_000))
    def wait_any_time(self, milliseconds: int) -> None:
        self.now += timedelta(milliseconds=milliseconds)

    @rule(step=st.sampled_from([None, None, *PLAN]), others_know=st.booleans())
    def deploy(self, step: str | None, *, others_know: bool = False) -> None:
        """Deploy a catalog with all steps, or with all but one, which others may know still.

        So each hint that follows is met by a process with this catalog or another one.
        """
        self.others_know = others_know
        self.catalog.clear()
        self.catalog.update(catalog_of(self.away))
        if step is not None:
            del self.catalog[step]

    @rule(channels=st.sampled_from(CHANNELS))
    def deploy_channels(self, channels: tuple[str, ...] | None) -> None:
        """Deploy a catalog with other channels or none; or do without one for a while."""
        self.announcements.channels = channels

    @rule(step=st.sampled_from(PLAN))
    def move(self, step: str) -> None:
        """Deploy a catalog where a step runs elsewhere from now on, or here again."""
        self.away ^= {step}
        self.deploy(None)

    @invariant()
    def every_run_is_in_order(self) -> None:
        for run_id, known in self.known.items():
            manifest = self.runs[run_id]
            check_lease(manifest, known)
            check_alarm(manifest, known)
            check_owed(manifest, known)
            check_counts(manifest, known)
            check_steps(manifest, known)
            self.announcements.check(manifest)

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
        """A run that is not parked comes to an end, from any state."""
        self.deploy(None)
        for run_id in self.runs:
            manifest = self.runs[run_id]
            is_looked_at = manifest.look_at is not None
            if manifest.paused or not (manifest.is_moving or is_looked_at):
                continue
            for habit in HABITS:
                for by_hints in (True, False):
                    comes_to_an_end(manifest, self.now, self.in_force, habit, by_hints=by_hints)
