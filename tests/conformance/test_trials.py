"""Trials on a real store: in any order of calls each trial has one output, and one trial counts."""

from __future__ import annotations

import gc
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition, as_write, on_manifest, on_run
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.effect import Task
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest, manifest_of
from leasehold.domain.manifest_parts import Block, ErrorRecord, TrialRule
from leasehold.domain.retry import Backoff
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.stored import Ref
from leasehold.domain.trials import verdict_in
from leasehold.errors import LeaseLostError, NotAllowedError, VersionConflictError
from leasehold.ports.documents import Committed, Documents, Query, Snapshot
from tests.worlds.builders import new_run, rules_of, step_settings
from tests.worlds.stores import DOCUMENTS

AUTHOR, REVIEWER, PLAN = "write", "review", ("write", "review", "publish")
MAX_TRIALS: Final = 3
RULES: Final = rules_of(
    *(step_settings(step, max_retries=1000) for step in PLAN),
    max_interruptions=1000,
    backoff=Backoff(minimum=timedelta(seconds=1), maximum=timedelta(seconds=1)),  # is no wait
)
FOUND: Final = Block(code="TOO_SHORT", finding="2 letters", remediation="Approve or retry.")
ERROR: Final = ErrorRecord(type="E", code="overloaded", message="Later.")

#: How many moves are drawn before the run is brought to its end.
MOVES: Final = 16
#: How many come after its end.
LATE_MOVES: Final = 4


@dataclass
class Worker:
    """A former holder of a lease, which may be dead, late, or repeat itself."""

    fence: Fence
    known: Snapshot
    run: Manifest
    output: str
    status: str


@dataclass
class Schedule:
    """One run, and all who come to it.

    Attributes:
        handed: the output of each step and trial that was handed off.
        answers: what each lease was answered when it settled.
        events: how often each thing was traced.
    """

    documents: Documents
    ref: Ref
    draw: Random
    run: Manifest = field(init=False)
    known: Snapshot | None = None
    hints: list[Task] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    handed: dict[tuple[str, int], str] = field(default_factory=dict)
    answers: dict[str, Outcome] = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)
    leases: int = 0
    last_settled: str = ""

    def play(self) -> Manifest:
        """Begin the run, draw moves, and bring it to its end; return it."""
        rule = TrialRule(author=AUTHOR, reviewer=REVIEWER, max_trials=MAX_TRIALS)
        new = new_run(self.ref.id, plan=PLAN, trials=rule)
        start = on_manifest(self.ref.id, partial(lifecycle.start, rules=RULES, new=new))
        self._note(self.documents.transact(self.ref, start, is_new=True))
        moves = (*[self._hint] * 3, *[self._settle] * 4, *[self._kill] * 2, self._person)
        for _ in range(MOVES):
            self.draw.choice(moves)()
        while not self.run.is_terminal:
            self._next(self.run)
        for _ in range(LATE_MOVES):
            self.draw.choice(moves)()
        found = self.documents.get(self.ref)
        assert found is not None
        return manifest_of(self.ref.id, {**found.document})

    # -- moves -------------------------------------------------------------------------------------

    def _next(self, run: Manifest) -> None:
        """Do what brings the run on."""
        if run.paused:
            self._operate(lifecycle.resume)
        elif run.status is RunStatus.BLOCKED:
            self._operate(lifecycle.approve)
        elif run.position.lease is None:
            self._deliver(run.position.dispatch.generation)
        else:
            self._complete(
                next(w for w in self.workers if w.fence.lease_id == run.position.lease.lease_id)
            )

    def _hint(self) -> None:
        """A hint arrives: the last one, one that came before, or one that is late."""
        self._deliver(self.draw.choice(self.hints[-3:]).generation)

    def _deliver(self, generation: int) -> None:
        self.leases += 1
        lease_id = f"lease-{self.leases}"
        arrive = partial(
            lifecycle.arrive, rules=RULES, generation=generation, lease_id=lease_id, holder="h"
        )
        current = self.run.position.dispatch.generation
        change = self._commit(arrive)
        assert generation == current or not change.changed, "a late hint changes nothing"
        if change.changed and change.outcome is Outcome.ACQUIRED:
            self._join(change.manifest)

    def _join(self, run: Manifest) -> None:
        assert run.position.lease is not None
        assert self.known is not None
        fence = Fence(run.position.lease.lease_id, run.fencing_token)
        status = self.draw.choices(("SUCCESS", "PARTIAL"), (9, 1))[0]
        self.workers.append(Worker(fence, self.known, run, self._output(run, fence), status))

    def _output(self, run: Manifest, fence: Fence) -> str:
        said: dict[str, Any] = {"by": fence.lease_id}
        if run.current_step == REVIEWER:
            said |= {"settled": self.draw.random() < 0.2, "score": self.draw.randint(0, 3)}
            said |= {"findings": [fence.lease_id]}
        return json.dumps(said)

    def _settle(self) -> None:
        """A worker ends its attempt: the last one, or one that lost its lease or its answer."""
        if not self.workers:
            return
        worker = self.draw.choice(self.workers[-3:])
        move = self.draw.choices(
            (self._complete, self._block, self._fail, self._renew), (12, 1, 1, 1)
        )[0]
        move(worker)

    def _complete(self, worker: Worker) -> None:
        self._end(worker, lifecycle.complete, **self._kept(worker))

    def _block(self, worker: Worker) -> None:
        self._end(worker, lifecycle.block, **self._kept(worker), found=FOUND)

    def _fail(self, worker: Worker) -> None:
        self._end(worker, lifecycle.fail, error=ERROR)

    def _kept(self, worker: Worker) -> dict[str, Any]:
        return {
            "output": KeptValue(text=worker.output),
            "output_status": worker.status,
            "verdict": verdict_in(worker.run, worker.output),
        }

    def _end(self, worker: Worker, transition: Any, **facts: Any) -> None:
        lease_id = worker.fence.lease_id
        try:
            change = self._as_holder(worker, partial(transition, fence=worker.fence, **facts))
        except LeaseLostError:
            assert lease_id != self.last_settled, "what was recorded is not lost"
            return
        first = self.answers.setdefault(lease_id, change.outcome)
        assert change.outcome is first, "a settlement that is repeated gets its first answer"
        self.last_settled = lease_id

    def _renew(self, worker: Worker) -> None:
        try:
            change = self._as_holder(worker, partial(lifecycle.renew, fence=worker.fence))
        except LeaseLostError:
            return
        assert change.outcome is Outcome.RENEWED

    def _kill(self) -> None:
        """The worker that has the lease dies, or seems to: it may still send its output."""
        lease = self.run.position.lease
        if lease is not None:
            gone = partial(lifecycle.expire, lease_id=lease.lease_id, holder_gone=True)
            self._commit(partial(gone, rules=RULES))

    def _person(self) -> None:
        self._operate(
            self.draw.choice(
                (lifecycle.pause, lifecycle.resume, lifecycle.retry, lifecycle.approve)
            )
        )

    def _operate(self, operation: Any) -> None:
        try:
            self._commit(partial(operation, rules=RULES, actor="ada", reason=""))
        except NotAllowedError:
            return

    # -- the store ---------------------------------------------------------------------------------

    def _as_holder(self, worker: Worker, transition: Any) -> Change:
        """Write on what the worker knows, as an attempt does; where that is old, read again."""
        bound = partial(transition, rules=RULES)
        try:
            return self._commit(bound, worker)
        except VersionConflictError:
            return self._commit(bound)

    def _commit(self, transition: Transition, worker: Worker | None = None) -> Change:
        decide, known = on_run(self.ref.id, transition), None
        if worker is not None:
            decide, known = (lambda _, now: as_write(transition(worker.run, now))), worker.known
        return self._note(self.documents.transact(self.ref, decide, if_version=known))

    def _note(self, committed: Committed[Change]) -> Change:
        """Note what a change did, and check that no step of a trial is handed off twice."""
        change, before = committed.answer, getattr(self, "run", None)
        self.hints += [effect for effect in change.owed if isinstance(effect, Task)]
        if not change.changed:
            return change
        self.events.update(str(event.type) for event in change.events)
        self.run, self.known = change.manifest, committed.snapshot
        if before is not None and _place(before) != _place(self.run):
            step, trial = before.current_step, before.position.trial
            assert (step, trial) not in self.handed, "a step is handed off once in each trial"
            self.handed[step, trial] = output_in(self.run, step, trial)
        return change


def output_in(run: Manifest, step: str, trial: int) -> str:
    """Return the output of a step in a trial."""
    record = run.steps[step]
    filed = {one.trial: one.output for one in record.trials or ()}
    return filed.get(trial, record.output) or ""


def _place(run: Manifest) -> tuple[str, int, bool]:
    return run.current_step, run.position.trial, run.status is RunStatus.COMPLETED


#: How many orders are drawn: an emulator is a hundred times as slow, and a storm takes minutes.
TRIES: Final = {
    "sqlite": 20_000 if os.environ.get("LEASEHOLD_STORM") == "1" else 40,
    "firestore": 4,
}
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - SQLite waits for no disk there


@pytest.fixture(autouse=True)
def seldom_collected() -> Iterator[None]:
    """Collect garbage by hand alone: else a third of the time goes there."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def documents(kind: str) -> Iterator[Documents]:
    memory = _MEMORY if _MEMORY.is_dir() else None
    with TemporaryDirectory(dir=memory) as folder, DOCUMENTS[kind](Path(folder)) as documents:
        yield documents


def test_each_trial_has_one_output_and_one_of_them_counts_in_any_order(
    kind: str, documents: Documents, unique: str
) -> None:
    for seed in range(TRIES[kind]):
        ref = Ref("runs", f"{unique}-{seed}")
        played = Schedule(documents, ref, Random(seed))  # noqa: S311 - to be repeated
        try:
            run = played.play()
            check(played, run)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
        if seed % 100 == 0:
            gc.collect()
            traced = documents.query(Query(f"{ref}/trace"))
            assert len(traced) == run.traced == played.events.total()


def check(played: Schedule, run: Manifest) -> None:
    """Compare the run with the hand-offs, as the rules of docs/trials.md have it."""
    assert run.status is RunStatus.COMPLETED
    reviews = {trial: json.loads(out) for (step, trial), out in played.handed.items()
               if step == REVIEWER}  # fmt: skip
    last = len(reviews)
    assert sorted(reviews) == [*range(1, last + 1)]
    assert sorted(trial for step, trial in played.handed if step == AUTHOR) == sorted(reviews)
    whole = {trial: is_whole(played, trial) for trial in reviews}
    for trial, review in reviews.items():
        goes_on = not review["settled"] and trial < MAX_TRIALS and whole[trial]
        assert goes_on is (trial < last)
    settled = [trial for trial, review in reviews.items() if review["settled"]]
    best = settled[0] if settled else max(reviews, key=lambda one: (reviews[one]["score"], one))
    for step in (AUTHOR, REVIEWER):
        record = run.steps[step]
        assert (record.trial, record.output) == (best, played.handed[step, best])
        losers = {one.trial: one.output for one in record.trials or ()}
        assert losers == {trial: played.handed[step, trial] for trial in reviews if trial != best}
    is_refused = not settled and last < MAX_TRIALS
    events = played.events
    assert events["author_slot_opened"] == last - 1
    assert (events["trial_chosen"], events["author_slot_refused"]) == (1, int(is_refused))


def is_whole(played: Schedule, trial: int) -> bool:
    """Whether the author's output of a trial has the status SUCCESS: its worker knows."""
    by = json.loads(played.handed[AUTHOR, trial])["by"]
    return next(w.status for w in played.workers if w.fence.lease_id == by) == "SUCCESS"
