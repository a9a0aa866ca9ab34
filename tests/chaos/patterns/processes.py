"""Processes of the storm of patterns: workers, sweeps, senders, and those that pause and resume.

Each ends as well when the other end of its pipe does: with the test.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, cast

from leasehold.adapters.in_process_tasks import UndeliveredTasks
from leasehold.bootstrap import Around, Bundle, Hooks, boot
from leasehold.domain.effect import Task
from leasehold.domain.stored import Ref
from leasehold.errors import (
    LeaseholdError,
    SignalNotAwaitedError,
    StoreUnavailableError,
    UnknownRunError,
)
from leasehold.in_process import InProcessEngine
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Committed, Documents, Query, Snapshot
from leasehold.ports.task_queue import TaskQueue
from leasehold.registry.pipelines import Catalog
from leasehold.services.pauses import list_pauses, pause_step, resume_step
from leasehold.services.signal_run import SignalRequest, send_signal
from leasehold.services.sweep import sweep
from tests.chaos.patterns.catalog import NOTES, PIPELINES, SCHEDULES, STEPS, note
from tests.worlds.wrapped import Wrapped

TICK_S: Final = 0.3
WORKERS: Final = 4
LEASE_S: Final = 3.0

#: The environment of a place says what its workers have to bear: how long a call of the store may
#: take, how many answers of it are lost, and how many tasks a queue refuses, as shares of 1.
SLOW_S: Final = "STORM_SLOW_S"
DEAF: Final = "STORM_DEAF"
REFUSES: Final = "STORM_REFUSES"

#: What is paused in the storm; None: all steps.
PAUSED: Final = ("make", "call", "ask", None)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a storm is.

    Args:
        folder: of its notes, and of its store if that is a file.
        environ: the settings of its engines.
    """

    folder: Path
    environ: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sent:
    """A signal that is to be sent, however often."""

    run_id: str
    name: str
    id: str


def place_in(folder: Path, store: Mapping[str, str]) -> Place:
    """Return a place whose waits are short: a test cannot wait for a minute."""
    environ = {
        **store,
        "LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts",
        "LEASEHOLD_ARTIFACTS_SHARED": "yes",  # by processes of one machine
        "LEASEHOLD_ISOLATION": "inline",
        "PIPELINE_LEASE_TTL_S": f"{LEASE_S:g}",
        "PIPELINE_HEARTBEAT_S": "1",
        "PIPELINE_DISPATCH_GRACE_S": "1",
        "PIPELINE_MIN_BACKOFF_S": "0.2",
        "PIPELINE_MAX_INTERRUPTIONS": "1000",
        NOTES: f"{folder}/notes",
    }
    return Place(folder, environ)


class Engine(InProcessEngine):
    """The engine of a process on the store of a place.

    Args:
        place: the place.
        workers: how many steps run at once.
        in_request: the next step has to fit into what is left of a request, as in the functions.
        around: what stands around its store.
        has_queue: whether it delivers tasks, if only by hand; else others find them.
    """

    def __init__(
        self,
        place: Place,
        workers: int,
        *,
        in_request: bool = False,
        around: Callable[[Documents], Documents] = lambda store: store,
        has_queue: bool = True,
    ) -> None:
        self._in_request = in_request
        self._around = around
        self._has_queue = has_queue
        os.environ.update(place.environ)
        super().__init__(
            STEPS,
            PIPELINES,
            schedules=SCHEDULES,
            environ=place.environ,
            workers=workers,
            warn=lambda _: None,
            report=lambda _: None,  # each kill is a warning
        )

    def _boot(
        self, environ: Mapping[str, str] | None, catalog: Catalog | None, clock: Clock, hooks: Hooks
    ) -> Bundle:
        queue = self._queue if self._has_queue else UndeliveredTasks(clock)
        return boot(
            environ,
            catalog=catalog,
            clock=clock,
            tasks=cast(TaskQueue, RefusingTasks(queue, _share(REFUSES))),
            hooks=replace(hooks, in_request=self._in_request),
            around=Around(documents=self._around),
        )


class UnsteadyDocuments(Wrapped[Documents]):
    """A store that is slow, and whose answers to commits that stand are lost."""

    def transact(self, *given: Any, **named: Any) -> Committed[Any]:
        _be_slow()
        committed = self.inner.transact(*given, **named)
        if _CHANCE.random() < _share(DEAF):
            raise StoreUnavailableError(store="store", problem="the answer was lost")
        return committed

    def get(self, ref: Ref) -> Snapshot | None:
        _be_slow()
        return self.inner.get(ref)

    def query(self, query: Query) -> Sequence[Snapshot]:
        _be_slow()
        return self.inner.query(query)


class RefusingTasks(Wrapped[TaskQueue]):
    """A queue that does not take each task."""

    def __init__(self, inner: TaskQueue, share: float) -> None:
        super().__init__(inner)
        self._share = share

    def create(self, task: Task) -> None:
        if _CHANCE.random() < self._share:
            raise StoreUnavailableError(store="queue", problem="it takes no task")
        self.inner.create(task)


_CHANCE: Final = random.Random(1)  # noqa: S311 - no secret


def _share(name: str) -> float:
    return float(os.environ.get(name, "0"))


def _be_slow() -> None:
    if most := _share(SLOW_S):
        time.sleep(_CHANCE.uniform(0, most))


def work(pipe: Connection, place: Place, *, in_request: bool) -> None:
    """Work on whatever there is, until it is killed."""
    around: Any = UnsteadyDocuments
    with Engine(place, WORKERS, in_request=in_request, around=around) as engine:
        engine.look_after_every_run(TICK_S)
        engine.adopt_all()
        note(event="ready")
        pipe.poll(None)
    os._exit(0)


def sweep_on(pipe: Connection, place: Place) -> None:
    """Sweep again and again, as the function does, until it is killed."""
    with Engine(place, 0, has_queue=False) as engine:
        while not pipe.poll(TICK_S):
            with contextlib.suppress(LeaseholdError):
                sweep(engine.engine)


def send(pipe: Connection, place: Place, signals: Sequence[Sent], seed: int) -> None:
    """Send each signal some times, in any order, until it is killed."""
    chance = random.Random(seed)  # noqa: S311 - a storm that can be repeated
    left = [one for one in signals for _ in range(2)]
    chance.shuffle(left)
    with Engine(place, 0) as engine:
        while left:
            one = left.pop()
            request = SignalRequest(one.name, {"word": one.id}, "storm", one.id)
            try:
                outcome = send_signal(engine.engine, one.run_id, request)[0].outcome
                note(event="sent", run=one.run_id, id=one.id, outcome=outcome)
            except (SignalNotAwaitedError, UnknownRunError):
                note(event="sent", run=one.run_id, id=one.id, outcome="over")
            except LeaseholdError:
                left.insert(0, one)
            time.sleep(chance.uniform(0, 0.05))
        pipe.poll(None)


def pause_on(pipe: Connection, place: Place, seed: int) -> None:
    """Pause steps and resume them, until it is killed; resume first what is paused."""
    chance = random.Random(seed)  # noqa: S311 - as above
    with Engine(place, 0) as engine:
        while not pipe.poll(chance.uniform(0, 0.5)):
            with contextlib.suppress(LeaseholdError):
                resume_all(engine)
                time.sleep(chance.uniform(0, 0.5))
                pause_step(engine.engine, chance.choice(PAUSED), why="storm", actor="storm")


def resume_all(engine: InProcessEngine) -> None:
    """Resume whatever is paused."""
    for pause in list_pauses(engine.engine):
        resume_step(engine.engine, pause.step_type)
