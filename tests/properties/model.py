"""What the model of the lifecycle knows: a catalog, workers, and what it learned of each run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from leasehold.domain.change import Change
from leasehold.domain.dispatch import StepSettings
from leasehold.domain.effect import Task
from leasehold.domain.lease import Fence
from leasehold.domain.lifecycle import NewRun
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Block, ErrorRecord, TrialRule, TrialVerdict
from leasehold.domain.status import Outcome
from tests.worlds import builders
from tests.worlds.builders import step_settings

PLAN = ("draft", "check", "send")
MAX_RETRIES = 1
#: So many failures a step may have in all, with progress in between.
MAX_FAILURES = 3
MAX_INTERRUPTIONS = 2
#: So many attempts in a row that end to be continued, without progress, are a failure.
MAX_CONTINUATIONS = 3
TTL = timedelta(seconds=150)
GRACE = timedelta(seconds=60)
STUCK = timedelta(seconds=250)
#: How long a step may wait to be claimed, and when somebody looks meanwhile.
WAIT = timedelta(seconds=1500)
LOOKS = tuple(timedelta(seconds=second) for second in (600, 1200, 1500))
#: So late nobody was there to look; shutdowns within as long are one outage.
NOBODY = timedelta(minutes=10)
#: How long the task of a failed step may be known to be lost.
WINDOW = timedelta(seconds=100)
START = datetime(2026, 1, 1, tzinfo=UTC)
#: Those runs that have trials: check reviews what draft writes.
TRIALS = TrialRule(author="draft", reviewer="check", max_trials=3)
FOUND = Block(code="TOO_SHORT", finding="3 words", remediation="Approve or retry.")
ERROR = ErrorRecord(type="AgentClientError", code="overloaded", message="try later")


def _settings(step: str, *, deadline_s: int, heartbeat_s: int | None) -> StepSettings:
    return step_settings(
        step,
        agent_timeout=timedelta(seconds=deadline_s - 5),
        dispatch_deadline=timedelta(seconds=deadline_s),
        max_retries=MAX_RETRIES,
        heartbeat=None if heartbeat_s is None else timedelta(seconds=heartbeat_s),
        schedule_to_start=WAIT,
    )


#: One short-lived step, one whose lease is never renewed, and one with a long deadline.
CATALOG = {
    "draft": _settings("draft", deadline_s=15, heartbeat_s=10),
    "check": _settings("check", deadline_s=20, heartbeat_s=None),
    "send": _settings("send", deadline_s=600, heartbeat_s=10),
}


def catalog_of(away: Container[str]) -> dict[str, StepSettings]:
    """Return the catalog of a deploy where workers elsewhere claim these steps."""
    return {step: replace(entry, remote=step in away) for step, entry in CATALOG.items()}


@dataclass(frozen=True)
class Seen:
    """A run as a worker saw it last: all it needs to write without a read.

    `at` is the store's time then. `elapsed` is how long the world had gone on by then: what a
    worker's own clock shows is of no use to it, how much time passed on that clock is.
    """

    manifest: Manifest
    version: int
    at: datetime
    elapsed: timedelta


@dataclass
class Worker:
    """A former holder of a lease, which never forgets it.

    `asleep` is how long its machine was suspended since it saw the run: its clock stood still.
    """

    run_id: str
    fence: Fence
    seen: Seen
    asleep: timedelta = timedelta()
    reads: bool = True  # False: it writes on what it has seen
    next_lease: str | None = None  # what it asked for with its settlement


class Output(NamedTuple):
    """The output of a step: its text, whether it is whole, and a reviewer's verdict."""

    text: str
    is_partial: bool = False
    verdict: TrialVerdict | None = None


class Kept(NamedTuple):
    """A checkpoint, and the token of the lease that wrote it."""

    phase: str
    iterations: int
    fencing_token: int


@dataclass
class Known:
    """The state of a run, as the model knows it from the answers."""

    holder: str | None = None
    ends_at: datetime = START
    cap: datetime = START
    heard_at: datetime = START  # when its worker wrote last, in the store's time
    deadline: datetime = START  # whose worker is heard of later hung
    settled: tuple[str, Outcome] | None = None
    ends: Counter[str] = field(default_factory=Counter)
    vain: int = 0  # failures since the last progress
    stuck: int = 0  # interruptions since the last progress
    silences: int = 0  # those of them after which nothing was heard for too long
    continued: int = 0  # attempts that ended to be continued, since the last progress
    lost: int = 0  # tasks in a row, without a lease in between, while somebody looked
    lost_since: datetime | None = None  # the look that found the first of them
    shut_at: datetime | None = None  # the last shutdown that counted
    furthest: dict[str, int] = field(default_factory=dict)  # iterations by phase
    checkpoint: Kept | None = None
    elsewhere: bool = False  # how its dispatch was frozen
    provisional: bool = False  # and whether that was by who did not know its step
    kept: Output | None = None
    handed_off: dict[str, Output] = field(default_factory=dict)
    trials: list[dict[str, Output]] = field(default_factory=list)  # those that are over
    recorded: int = 0  # calls of the step and trial
    made: Counter[str] = field(default_factory=Counter)  # calls, by step
    spared: Counter[str] = field(default_factory=Counter)
    blocks: list[int] = field(default_factory=list)  # the generation of each block

    def let_go(self) -> None:
        self.holder = None

    def failed(self) -> None:
        self.ends["failed"] += 1
        self.vain += 1

    @property
    def last_failure(self) -> bool:
        """Whether one failure more is one too many."""
        return self.vain == MAX_RETRIES or self.ends["failed"] >= MAX_FAILURES

    def shut_down(self, now: datetime) -> None:
        """Its worker is shut down; all that are within ten minutes are one outage."""
        self.ends["interrupted"] += 1
        if self.shut_down_counts(now):
            self.stuck, self.shut_at = self.stuck + 1, now

    def shut_down_counts(self, now: datetime) -> bool:
        return self.shut_at is None or abs(now - self.shut_at) >= NOBODY

    def lapse_counts(self, now: datetime) -> bool:
        """Whether a sweep ran when its lease ended."""
        return now <= self.ends_at + NOBODY

    @property
    def hung(self) -> bool:
        return self.heard_at >= self.deadline

    def is_silent(self, now: datetime) -> bool:
        """Whether a run without a known holder was not heard of for too long."""
        is_long = now > max(self.heard_at + STUCK, self.ends_at) + GRACE
        return is_long and self.lapse_counts(now)

    def lapsed(self, now: datetime, *, silent: bool) -> None:
        """Its worker says nothing more, and the lease is ended."""
        if self.hung:
            self.failed()
        else:
            self.ends["expired"] += 1
            self.stuck += self.lapse_counts(now)
            self.silences += silent
        self.let_go()

    @property
    def trial(self) -> int:
        return len(self.trials) + 1

    def best_trial(self) -> dict[str, Output]:
        """Return the outputs of the trial that counts: settled, or else the highest score."""

        def rank(number: int) -> tuple[bool, float, int]:
            verdict = self.trials[number][TRIALS.reviewer].verdict
            assert verdict is not None
            return verdict.settled, verdict.score, number

        return self.trials[max(range(len(self.trials)), key=rank)]

    def step_is_over(self) -> None:
        self.kept = self.checkpoint = None
        self.furthest = {}
        self.recorded = 0

    def goes_on(self, old: Known) -> None:
        """A run goes on where another one stopped: with its trials and checkpoint."""
        self.trials = list(old.trials)
        if old.checkpoint is not None:
            last = old.checkpoint._replace(fencing_token=0)
            self.checkpoint, self.furthest = last, {last.phase: last.iterations}

    def progress(self) -> None:
        self.vain = self.stuck = self.silences = self.continued = 0
        self.shut_at = None


def new_run(run_id: str, trials: TrialRule | None = None) -> NewRun:
    return builders.new_run(run_id, plan=PLAN, nonce=f"nonce of {run_id}", trials=trials)


def text_of(worker: Worker) -> str:
    return json.dumps(f"by {worker.fence.lease_id}")


def tasks_of(change: Change) -> list[Task]:
    """Return the tasks that a change owes; deletions have no turn."""
    return [effect for effect in change.owed if isinstance(effect, Task)]


def output_of(worker: Worker, manifest: Manifest, *, is_partial: bool = False) -> Output:
    """Return what a worker makes; a reviewer has a verdict, as good as chance has it."""
    verdict = None
    if manifest.trials is not None and manifest.current_step == manifest.trials.reviewer:
        chance = int(worker.fence.lease_id)
        verdict = TrialVerdict(settled=chance % 5 == 0, score=chance * 7 % 3)
    return Output(text_of(worker), is_partial, verdict)
