"""A load test: runs of one pipeline at a rate, up to a number of live ones, and their figures."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from typing import Any, Final

from leasehold.api.budgets import LimitReport
from leasehold.api.runs import StartBody
from leasehold.budgets.derive import derive_budget
from leasehold.budgets.phases import Phase, observations
from leasehold.budgets.proposal import BudgetProposal, BudgetSettings, Limit, Strategy
from leasehold.budgets.samples import AttemptSample, Outcome
from leasehold.client.client import Client
from leasehold.client.connection import start_once
from leasehold.client.run_wait import RunWait
from leasehold.domain.manifest import Manifest, to_document
from leasehold.domain.status import RunStatus
from leasehold.errors import LeaseholdError
from leasehold.frozen import dataclass
from leasehold.services.derive_budgets import samples_of

#: The label of all runs of a load test.
LABEL: Final = "loadtest"
#: The state of a run that waits for a person, which ends its wait.
HELD: Final = "waiting for a person"


@dataclass(frozen=True, slots=True)
class Load:
    """The runs that are started, and how fast.

    Args:
        name: of the load test: the value of the label of its runs.
        pipeline: a pipeline.
        input: the input of each run, a JSON value.
        rate: how many runs are started in a second at most.
        duration: how long runs are started.
    """

    name: str
    pipeline: str
    input: Any
    rate: float
    duration: timedelta

    def start(self) -> StartBody:
        """Return the request that starts one run."""
        return StartBody(pipeline=self.pipeline, input=self.input, labels={LABEL: self.name})


@dataclass(slots=True)
class LoadLevel:
    """The runs of a load test under one concurrency, as far as they have come.

    Args:
        concurrency: how many runs are live at most.
        started: how many runs were started.
        live: those that are not over.
        ends: how many ended in each way: `completed`, `cancelled`, a reason of a dead letter, or
            `HELD`.
        samples: the attempts of the runs that ended, by step.
        starting_s: how long runs were started, in seconds.
        seconds: from the first start to the last end.
        problem: why it was cut short, in a sentence; empty: it was not.
    """

    concurrency: int
    started: int = 0
    live: dict[str, _LiveRun] = field(default_factory=dict)
    ends: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[AttemptSample]] = field(default_factory=dict)
    starting_s: float = 0.0
    seconds: float = 0.0
    problem: str = ""

    @property
    def over(self) -> int:
        """How many runs are over, or wait for a person."""
        return self.ends.total()

    def add(self, run: Manifest) -> None:
        """Count a run that has ended, and its attempts."""
        del self.live[run.run_id]
        self.ends[_end_of(run)] += 1
        for step, record in run.steps.items():
            marks = record.first_tool is not None
            found = samples_of(to_document(record), marks=marks)
            self.samples.setdefault(run.step_type_of(step), []).extend(found)


@dataclass(slots=True)
class _LiveRun:
    """A run that is waited for, and when it is read next, in monotonic seconds."""

    wait: RunWait
    read_at: float


def _end_of(run: Manifest) -> str:
    if run.cancelled:
        return "cancelled"
    if run.dead_letter_reason is not None:
        return run.dead_letter_reason.value
    return "completed" if run.status is RunStatus.COMPLETED else HELD


def put_load(
    client: Client, load: Load, level: LoadLevel, report: Callable[[LoadLevel, float], object]
) -> None:
    """Start the runs of a level, and wait for them; the level has what there is at any time.

    Args:
        client: a server or a store.
        load: the load.
        level: a new one, which is filled; it has what there is also after an interrupt.
        report: called often, with the level and the seconds since its beginning.

    Raises:
        LeaseholdError: the first run cannot be started. A later error is the level's
            `problem`.
    """
    began = time.monotonic()
    due_at, ends_at = began, began + load.duration.total_seconds()
    while True:
        now = time.monotonic()
        is_starting = now < ends_at and not level.problem
        if is_starting and due_at <= now and len(level.live) < level.concurrency:
            _start(client, load, level)
            due_at = max(due_at + 1 / load.rate, now)
        _read_due(level)
        level.seconds = time.monotonic() - began
        level.starting_s = min(level.seconds, load.duration.total_seconds())
        report(level, level.seconds)
        if not is_starting and (level.problem or not level.live):
            return
        waits_until = [one.read_at for one in level.live.values()]
        if is_starting:
            may_start = len(level.live) < level.concurrency
            waits_until.append(min(due_at, ends_at) if may_start else ends_at)
        time.sleep(max(0.0, min(waits_until) - time.monotonic()))


def _start(client: Client, load: Load, level: LoadLevel) -> None:
    try:
        run_id = start_once(client.connection, load.start()).value.run_id
    except LeaseholdError as error:
        if not level.started:
            raise
        level.problem = error.message
        return
    level.started += 1
    wait = RunWait(client.get, run_id, None, None)
    level.live[run_id] = _LiveRun(wait, time.monotonic() + wait.delay())


def _read_due(level: LoadLevel) -> None:
    """Read the runs whose time has come; those that are over are counted."""
    now = time.monotonic()
    for live in [one for one in level.live.values() if one.read_at <= now]:
        try:
            live.wait.poll()
        except LeaseholdError as error:
            level.problem = error.message
            return
        if live.wait.is_over:
            level.add(live.wait.run)
        else:
            live.read_at = time.monotonic() + live.wait.delay()


# The figures of a level.


@dataclass(frozen=True, slots=True)
class PhaseFigures:
    """How long a phase of a step took, in seconds: the percentiles of those that ended.

    Args:
        step: the step.
        phase: the phase.
        cold: of first attempts of their process, or of later ones.
        complete: how many phases ended by themselves.
        censored: how many were ended; they would have taken longer.
        p50: the median; None: no phase ended.
        p95: the 95th percentile.
        p99: the 99th percentile.
        longest: the longest one.
    """

    step: str
    phase: Phase
    cold: bool
    complete: int
    censored: int
    p50: float | None
    p95: float | None
    p99: float | None
    longest: float | None


def figures_of(level: LoadLevel) -> list[PhaseFigures]:
    """Return the figures of each step, cold and warm, of those that there were."""
    return [
        _figures(step, phase, [one for one in samples if one.cold is cold], cold=cold)
        for step, samples in level.samples.items()
        for phase in (Phase.BOOTSTRAP, Phase.EXECUTION)
        for cold in (True, False)
        if any(one.cold is cold and one.outcome is not Outcome.FAILED for one in samples)
    ]


def _figures(
    step: str, phase: Phase, samples: Sequence[AttemptSample], *, cold: bool
) -> PhaseFigures:
    observed = observations(samples, phase)
    ended = sorted(one.seconds for one in observed if not one.censored)
    return PhaseFigures(
        step=step,
        phase=phase,
        cold=cold,
        complete=len(ended),
        censored=len(observed) - len(ended),
        p50=nearest_rank(ended, 0.5),
        p95=nearest_rank(ended, 0.95),
        p99=nearest_rank(ended, 0.99),
        longest=nearest_rank(ended, 1),
    )


def nearest_rank(ordered: Sequence[float], share: float) -> float | None:
    """Return the smallest value that this share of the values does not pass; None: there is none.

    Args:
        ordered: the values, in ascending order.
        share: above 0, at most 1.
    """
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None


def budget_from(level: LoadLevel, step: str, known: LimitReport, now: datetime) -> BudgetProposal:
    """Return the budget of a step that follows from the attempts of a level alone.

    Args:
        level: a level.
        step: a step.
        known: its entry's limit, and how its budgets are derived.
        now: the time, in UTC.
    """
    samples, rules = level.samples.get(step, []), known.settings
    declared = known.budget.declared
    return derive_budget(
        samples,
        now=max([now, *(one.ended_at for one in samples)]),
        declared=Limit(declared.total_s, declared.execution_s),
        settings=BudgetSettings(
            strategy=Strategy.PROPOSE,
            percentile=rules.percentile,
            confidence=rules.confidence,
            safety_buffer=timedelta(seconds=rules.safety_buffer_s),
            rounding_granularity=timedelta(seconds=rules.rounding_granularity_s),
            window=timedelta(seconds=rules.window_s),
            shortest=timedelta(seconds=rules.shortest_s),
            longest=timedelta(seconds=rules.longest_s),
        ),
    )
