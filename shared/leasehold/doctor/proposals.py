"""Proposals from measurements: instances to keep warm, time for a request, tasks at once.

Each is a value of `deployment.py`. `leasehold doctor` tells of the first kind, and
`leasehold deploy plan` of all.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from leasehold.bootstrap.connections import read_store, store_file
from leasehold.budgets.samples import MAX_ATTEMPT_S
from leasehold.doctor.data_folder import exists
from leasehold.doctor.finding import Finding, Kind
from leasehold.doctor.setup import MARGIN, Setup
from leasehold.domain.timestamps import time_of
from leasehold.errors import LeaseholdError
from leasehold.frozen import dataclass
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Query
from leasehold.registry.functions import FunctionEntry
from leasehold.services.derive_budgets import read_budgets
from leasehold.services.engine import Engine

if TYPE_CHECKING:  # it is of an extra
    from leasehold.deploy.resources.queue import Queue

#: So many entries of the ledger are read, the newest ones: a proposal is no report.
ENTRIES: Final = Query("ledger", order_by="endedAt", descending=True, limit=500, within=5.0)
_MAX_START: Final = timedelta(hours=1)

Entries = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A value that the measurements ask for.

    Args:
        name: of the function or queue that has it.
        field: `min_instances`, `timeout` in seconds, or `concurrency`, which a queue has.
        found: the value in the tables.
        wanted: the value to have.
        why: the measurements, in a sentence.
    """

    name: str
    field: str
    found: int
    wanted: int
    why: str

    @property
    def is_of_queue(self) -> bool:
        """Whether a queue has it, and no function."""
        return self.field == "concurrency"

    @property
    def sentence(self) -> str:
        """The proposal in words: what it is, from which value to which, and why."""
        if self.is_of_queue:
            place = f"CONCURRENCY[{self.name!r}]={self.wanted} in deployment.py"
        else:
            place = f"{self.field}={self.wanted} in the row {self.name} of deployment.py"
        return f"{place} (now {self.found}): {self.why}"


def proposals(setup: Setup, clock: Clock) -> Iterator[Finding]:
    """Yield how many instances of the function that runs steps are worth keeping warm."""
    file = store_file(setup.store)
    if file is not None and not exists(setup.folder / file):
        return
    try:
        with closing(read_store(setup.store, clock)) as store:
            entries = [one.document for one in store.query(ENTRIES)]
    except LeaseholdError:
        return  # the store's own look says what is wrong with it
    for found in warm_instances(entries, setup.functions.of_tasks):
        yield Finding("min_instances_proposed", found.sentence, kind=Kind.PROPOSAL)


def all_proposals(
    engine: Engine, function: FunctionEntry, queues: Sequence[Queue]
) -> list[Proposal]:
    """Return what the runs of a store ask for.

    Args:
        engine: on that store.
        function: the function that runs steps.
        queues: those that deliver to it, with what they deliver at once.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    entries = [one.document for one in engine.documents.query(ENTRIES)]
    return [
        *warm_instances(entries, function),
        *longer_requests(engine, function),
        *other_shares(entries, queues, function.requests_at_once),
    ]


# How many instances to keep warm, by what their cold starts were measured to take.


#: With fewer, chance decides.
MIN_STARTS: Final = 20
#: A shorter wait is little beside what a step takes.
MIN_START_WAIT: Final = timedelta(seconds=5)
#: With fewer an hour, an instance that is kept warm idles nearly always.
MIN_STARTS_PER_HOUR: Final = 1.0
#: So long an instance that idles is kept anyway, so those of a burst begin within it.
_BURST: Final = timedelta(minutes=15)
_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ColdStart:
    """An attempt that waited for its instance: when it began, and what it waited for."""

    at: datetime
    bootstrap: timedelta


@dataclass(frozen=True, slots=True)
class Prewarming:
    """A proposal, and what it is made of.

    Args:
        instances: so many to keep warm.
        p95: of the bootstraps.
        starts: how many cold starts there were.
        per_hour: of them.
    """

    instances: int
    p95: timedelta
    starts: int
    per_hour: float


def prewarming(starts: Sequence[ColdStart], most: int) -> Prewarming | None:
    """Return how many instances to keep warm; None: none more, or too little is known.

    As many as begin together in a usual burst: the median of the quarters of an hour that had a
    cold start. One burst that was unlike all others makes no bill.

    Args:
        starts: those that were measured, in any order.
        most: how many instances there may be.
    """
    if len(starts) < MIN_STARTS:
        return None
    waits = sorted(start.bootstrap for start in starts)
    p95 = waits[math.ceil(0.95 * len(waits)) - 1]
    times = [start.at for start in starts]
    per_hour = len(starts) / max(1.0, (max(times) - min(times)) / _HOUR)
    if p95 < MIN_START_WAIT or per_hour < MIN_STARTS_PER_HOUR:
        return None
    bursts = Counter(int(at.timestamp() // _BURST.total_seconds()) for at in times)
    usual = math.ceil(statistics.median(bursts.values()))
    return Prewarming(min(usual, most), p95, len(starts), per_hour)


def warm_instances(entries: Entries, function: FunctionEntry) -> Iterator[Proposal]:
    """Yield how many instances of a function to keep warm, if more than now."""
    warm = [took for entry in entries for _, took in _bootstraps(entry, cold=False)]
    usual = statistics.median_high(warm) if warm else timedelta(0)
    starts = [
        ColdStart(at, max(took - usual, timedelta(0)))
        for entry in entries
        for at, took in _bootstraps(entry, cold=True)
    ]
    found = prewarming(starts, function.max_instances)
    if found is not None and found.instances > function.min_instances:
        why = (
            f"95% of {found.starts} cold starts took up to {found.p95.total_seconds():.1f} s"
            f"{' more than warm ones' if usual else ''}, and there are {found.per_hour:.1f} of "
            "them an hour. It costs that many idle instances."
        )
        now = function.min_instances
        yield Proposal(function.name, "min_instances", now, found.instances, why)


def _bootstraps(entry: Mapping[str, Any], *, cold: bool) -> Iterator[tuple[datetime, timedelta]]:
    """Yield when the cold or warm attempts of an entry began, and what their bootstraps took."""
    for _, step in _steps(entry):
        at, took = time_of(step.get("startedAt")), _span(step.get("bootstrapSeconds"))
        if step.get("coldStart") is cold and at and took is not None and took <= _MAX_START:
            yield at, took


# How long a request may take, by the limits that are in force, or would be.


def longer_requests(engine: Engine, function: FunctionEntry) -> Iterator[Proposal]:
    """Yield the time that a function needs for the limits that were learnt, if more than it has.

    Never less: a person may give a step more time at any moment.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    rules = engine.dispatch_rules()
    needs = timedelta(0)
    why = ""
    for budget in read_budgets(engine):
        if budget.step_type not in engine.catalog.steps:
            continue
        settings = rules.known_settings(budget.step_type)
        limits = {
            "would have": timedelta(seconds=budget.proposed.total_s),
            "has": settings.dispatch_deadline,
            "has in 1 of 50 attempts": settings.tail.dispatch_deadline if settings.tail else needs,
        }
        words, longest = max(limits.items(), key=lambda one: one[1])
        if longest > needs:
            needs = longest
            learnt = budget.reasons[0] if budget.reasons else ""
            why = f"step {budget.step_type} {words} {longest.total_seconds():g} s. {learnt}".strip()
    timeout = needs + MARGIN
    if needs and timeout > function.timeout:
        now, wanted = function.timeout.total_seconds(), math.ceil(timeout.total_seconds())
        yield Proposal(function.name, "timeout", int(now), wanted, why)


# How many tasks of each queue run at once, by how many did.


#: A queue that delivered this part of what it may was full: its other tasks waited.
_FULL: Final = 0.9
#: With fewer attempts, or fewer at once, chance decides.
_MIN_ATTEMPTS: Final = 20
_MIN_ATTEMPTS_AT_ONCE: Final = 2


def other_shares(entries: Entries, queues: Sequence[Queue], total: int) -> Iterator[Proposal]:
    """Yield what each queue gets of what runs at once, if one of them was full.

    All get one, and the rest in proportion to how many ran at once of each.

    Args:
        entries: of the ledger.
        queues: with what they have now.
        total: how many the function runs at once.
    """
    took: dict[str, list[tuple[datetime, int]]] = defaultdict(list)
    for entry in entries:
        for name, step in _steps(entry):
            took[name] += _begin_and_end(step)
    at_once = {one.id: _most_at_once(took, one.steps) for one in queues}
    full = [
        one
        for one in queues
        if at_once[one.id] >= max(_MIN_ATTEMPTS_AT_ONCE, _FULL * one.concurrency)
        and sum(len(took[step]) for step in one.steps) >= 2 * _MIN_ATTEMPTS
    ]
    left, most = total - len(queues), sum(at_once.values())
    for queue in queues if full and left > 0 else ():
        wanted = 1 + left * at_once[queue.id] // most
        if wanted != queue.concurrency:
            names = ", ".join(one.id for one in full)
            why = f"{at_once[queue.id]} of its tasks ran at once, and {names} had no room for more."
            yield Proposal(queue.id, "concurrency", queue.concurrency, wanted, why)


def _begin_and_end(step: Mapping[str, Any]) -> list[tuple[datetime, int]]:
    """Return when an attempt began and ended, as steps of how many run; empty: it is not known."""
    ended, took = time_of(step.get("completedAt")), _span(step.get("executingS"))
    return [(ended - took, 1), (ended, -1)] if ended is not None and took else []


def _most_at_once(took: Mapping[str, Sequence[tuple[datetime, int]]], steps: Iterable[str]) -> int:
    running = most = 0
    for _, change in sorted(one for step in steps for one in took.get(step, ())):
        running += change  # at the same moment, an end goes first
        most = max(most, running)
    return most


# What an entry of the ledger has, which a person may have edited.


def _steps(entry: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    steps = entry.get("steps")
    for name, step in steps.items() if isinstance(steps, Mapping) else ():
        if isinstance(step, Mapping):
            yield name, step


def _span(seconds: object) -> timedelta | None:
    """Return how long an attempt took; None: it is not known, or cannot be."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return None
    is_possible = 0 <= seconds <= MAX_ATTEMPT_S  # a NaN is not
    return timedelta(seconds=seconds) if is_possible else None
