"""The storm of patterns: all of them at once, while the processes that move them are killed.

The checks read what handlers wrote down, and what the store has at the end.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import takewhile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import pytest

from leasehold.domain.manifest import Manifest, manifest_of
from leasehold.domain.schedule import Fate, schedule_key
from leasehold.ports.documents import Query
from leasehold.services.explain_run import explain_run
from leasehold.services.read_children import read_children_of
from leasehold.services.read_runs import get_run
from leasehold.services.schedules import pause_schedule, read_schedule
from tests.chaos.patterns.catalog import (
    NOTES,
    SCHEDULES,
)
from tests.chaos.patterns.processes import (
    LEASE_S,
    Engine,
    Place,
    Sent,
    pause_on,
    place_in,
    resume_all,
    send,
    sweep_on,
    work,
)
from tests.chaos.patterns.spans import Span
from tests.chaos.storm.processes import forked_with_pipe
from tests.worlds.emulators import firestore_host
from tests.worlds.waiting import freeze, until

Note = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Storm:
    """A storm.

    Args:
        kind: of the store.
        rounds: how many runs of each pipeline there are.
        kills: how many processes are killed; every fifth worker is frozen in place of that, until
            its leases are over.
        seed: what happens by chance.
        items: how many each list has.
        patience_s: for how long no run may move, once no process is killed any more.
        workers: how many processes work; half of them as in the requests of a queue.
        calls: how many runs with limits there are for each of the other pipelines.
    """

    kind: str
    rounds: int
    kills: int
    seed: int = 1
    items: int = 7
    patience_s: float = 90.0  # the first in line of a rate waits for a minute
    workers: int = 2
    calls: int = 2


#: The pipelines that are started, and the signals that each run of them gets.
STARTED: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "orders": (("approval", "yes"),),
    "asking": (("reply", "first"), ("reply", "second")),
    "tolerant": (),
    "batches": (),
    "calls": (),
    "rates": (),
    "news": (),
}
#: How often the schedule is to fire at least.
TICKS: Final = 2
LIMITED: Final = ("calls", "rates")
#: A storm has fewer runs.
_MOST: Final = 2000


@dataclass(slots=True)
class Aftermath:
    """The result of a storm.

    Args:
        runs: those that were started, by their ids, as they ended.
        ticks: those of the schedule, by its times; None: it has none.
        labelled: how many runs name the schedule.
        notes: what handlers wrote down.
        killed: when each process was killed, or frozen beyond its leases.
        frozen: how many were.
        cut_off: how many workers were cut off from what they depend on.
    """

    runs: dict[str, Manifest] = field(default_factory=dict)
    ticks: dict[str, Manifest | None] = field(default_factory=dict)
    labelled: int = 0
    notes: list[Note] = field(default_factory=list)
    killed: dict[int, float] = field(default_factory=dict)
    frozen: int = 0
    cut_off: int = 0

    def begun(self, step: str, run_id: str | None = None) -> list[Note]:
        """Return the attempts of a step that began."""
        return [
            one
            for one in self.notes
            if one["event"] == "begin" and one["step"] == step and run_id in (None, one["run"])
        ]

    def spans(self, what: str) -> list[Span]:
        """Return when attempts did this; to the moment at which their process was killed.

        One that its own successor overtook had lost its lease, and does not count.
        """
        ends = {one["token"]: one["at"] for one in self.notes if one["event"] == "end"}
        spans, last = [], {}
        begun = [one for one in self.notes if one["event"] == "begin" and one["what"] == what]
        for one in sorted(begun, key=lambda it: -it["at"]):
            over = min(
                ends.get(one["token"], float("inf")), self.killed.get(one["pid"], float("inf"))
            )
            if over > one["at"] and last.get(one["run"], float("inf")) >= over:
                spans.append(Span(one["at"], over))
            last[one["run"]] = one["at"]
        return spans


def survive(storm: Storm, folder: Path, say: Callable[[str], object] = str) -> Aftermath:
    """Have the storm, until each run is over; return what came of it."""
    return survive_at(opened_place(storm.kind, folder), storm, say)


def survive_at(
    place: Place,
    storm: Storm,
    say: Callable[[str], object] = str,
    *,
    cut: Callable[[], object] | None = None,
) -> Aftermath:
    """Have the storm at a place.

    Args:
        place: the place.
        storm: the storm.
        say: gets a line of each kill.
        cut: cuts what the workers depend on off, once they are at work, and brings it back.
    """
    with ExitStack() as stack:
        engine = stack.enter_context(Engine(place, 0))
        fleet = Fleet(place, storm)
        stack.callback(fleet.close)
        run_ids = fleet.start(engine)
        fleet.rage(say)
        if cut is not None:
            until(lambda: '"make"' in Path(place.environ[NOTES]).read_text(), 60)
            cut()
        last = fleet.calm(engine)
        _await_ends(engine, storm.patience_s)
        after = Aftermath(killed=fleet.killed, frozen=fleet.frozen)
        after.cut_off = 0 if cut is None else storm.workers
        after.runs = {one: get_run(engine.engine, one) for one in run_ids}
        _read_ticks(engine, after, last)
    after.notes = [json.loads(line) for line in Path(place.environ[NOTES]).read_text().splitlines()]
    return after


def opened_place(kind: str, folder: Path) -> Place:
    """Return a place with a store of its kind, and without notes so far."""
    place = place_in(folder, _store(kind, folder))
    Path(place.environ[NOTES]).touch()
    return place


def _store(kind: str, folder: Path) -> dict[str, str]:
    if kind == "sqlite":
        return {"LEASEHOLD_STORE": f"sqlite:///{folder}/runs.db"}
    return {
        "LEASEHOLD_STORE": f"firestore://patterns-{secrets.token_hex(4)}/(default)",
        "FIRESTORE_EMULATOR_HOST": firestore_host(),
    }


class Fleet:
    """The processes of a storm.

    Attributes:
        killed: when each was killed, or frozen beyond its leases.
        frozen: how many were.
    """

    def __init__(self, place: Place, storm: Storm) -> None:
        self._place, self._storm = place, storm
        self._chance = random.Random(storm.seed)  # noqa: S311 - a storm that can be repeated
        self._signals: list[Sent] = []
        self._processes: list[tuple[str, Any]] = []
        self._thaws: list[tuple[float, signal.Signals, Any]] = []
        self._pipes: list[Connection] = []
        self.killed: dict[int, float] = {}
        self.frozen = 0

    def start(self, engine: Engine) -> list[str]:
        """Start all runs, then the processes."""
        run_ids = []
        for number in range(self._storm.rounds):
            for pipeline, signals in STARTED.items():
                for copy in range(self._storm.calls if pipeline in LIMITED else 1):
                    key = f"{pipeline}-{number}-{copy}"
                    given = {"key": key, "model": "small", "items": self._storm.items}
                    if pipeline == "news":
                        given["items"] = number % 2
                    run_id = engine.start(pipeline, given, idempotency_key=key).run_id
                    run_ids.append(run_id)
                    self._signals += [Sent(run_id, name, f"{key}-{word}") for name, word in signals]
        kinds = ["worker", "request"] * self._storm.workers
        for kind in (*kinds[: self._storm.workers], "sweep", "sender", "pauser"):
            self._begin(kind)
        return run_ids

    def rage(self, say: Callable[[str], object]) -> None:
        """Kill processes at random; each comes again."""
        notes = Path(self._place.environ[NOTES])
        until(lambda: notes.read_text().count('"ready"') >= self._storm.workers, 60)
        for number in range(self._storm.kills):
            time.sleep(self._chance.uniform(0.1, 0.5))
            self._thaw()
            at = self._chance.randrange(len(self._processes))
            kind, process = self._processes.pop(at)
            if kind in ("worker", "request") and self._chance.random() < 0.2:
                self._freeze(process)
            else:
                self.killed[process.pid] = time.monotonic()
                process.kill()
                process.join()
            say(f"{number}: {kind}")
            self._begin(kind)

    def calm(self, engine: Engine) -> datetime:
        """Have the rest be done: no process is killed and no step paused any more.

        Returns:
            The last time of the schedule, which is paused then.
        """
        for at in [at for at, (kind, _) in enumerate(self._processes) if kind == "pauser"]:
            _, process = self._processes.pop(at)
            process.kill()
            process.join()
        while self._thaws:
            self._thaw()
            time.sleep(0.1)
        resume_all(engine)
        until(lambda: len(_times(engine)) >= TICKS, 60)
        pause_schedule(engine.engine, "often", why="the storm is over", actor="storm")
        return _times(engine)[-1]

    def close(self) -> None:
        """End all processes."""
        frozen = [process for _, _, process in self._thaws]
        for process in [*frozen, *(process for _, process in self._processes)]:
            process.kill()
            process.join()
        for pipe in self._pipes:
            pipe.close()

    def _begin(self, kind: str) -> None:
        seed = self._chance.randrange(1 << 30)
        target: Callable[..., object] = {
            "worker": partial(work, in_request=False),
            "request": partial(work, in_request=True),
            "sweep": sweep_on,
            "sender": partial(send, signals=self._signals, seed=seed),
            "pauser": partial(pause_on, seed=seed),
        }[kind]
        process, pipe = forked_with_pipe(target, self._place)
        self._pipes.append(pipe)
        self._processes.append((kind, process))

    def _freeze(self, process: Any) -> None:
        """Stop a worker until its leases are over, and have it wake as one that lost them."""
        self.frozen += 1
        self.killed[process.pid] = time.monotonic()
        if self._storm.kind == "sqlite":
            freeze([process.pid], self._place.folder / "runs.db")
        else:
            os.kill(process.pid, signal.SIGSTOP)
        self._thaws.append((time.monotonic() + LEASE_S + 1.5, signal.SIGCONT, process))

    def _thaw(self) -> None:
        """Have those go on that were frozen for long enough; each is killed a second later."""
        now = time.monotonic()
        for at, number, process in tuple(self._thaws):
            if now < at:
                continue
            self._thaws.remove((at, number, process))
            os.kill(process.pid, number)
            if number is signal.SIGCONT:
                self._thaws.append((now + 1, signal.SIGKILL, process))
            else:
                process.join()


def _await_ends(engine: Engine, patience_s: float) -> None:
    """Wait until each run is over, as long as some of them move; else say why they do not.

    A new attempt is no move: a run that has the same one again and again is stuck.
    """
    places: set[tuple[object, ...]] = set()
    moved_at = time.monotonic()

    def are_over() -> bool:
        nonlocal places, moved_at
        open_runs = [run for run in _listed_runs(engine) if not run.is_terminal]
        now = {_place_of(engine, run) for run in open_runs}
        if now != places:
            places, moved_at = now, time.monotonic()
        elif open_runs and time.monotonic() - moved_at > patience_s:
            stuck = "\n".join(_words_of(engine, run) for run in open_runs)
            pytest.fail(f"nothing moved for {patience_s:g} s:\n{stuck}", pytrace=False)
        return not open_runs and not _owes_start(engine)

    until(are_over, float("inf"))


def _place_of(engine: Engine, run: Manifest) -> tuple[object, ...]:
    """Return where a run stands, and its children."""
    children = read_children_of(engine.engine, run)
    return (
        *(run.run_id, run.state, run.position.step, children.done, children.failed),
        *((one.run_id, one.state, one.position.step) for one in children.runs),
    )


def _words_of(engine: Engine, run: Manifest) -> str:
    """Return why a run stands where it stands, and its children."""
    open_runs = [run, *(it for it in read_children_of(engine.engine, run).runs if it.alarm_at)]
    return "\n  ".join(
        f"{one.run_id} ({one.pipeline}) {one.state} at {one.position.step}, attempt"
        f" {one.position.attempt}, alarm at {one.alarm_at}: "
        + explain_run(engine.engine, one.run_id, is_gone=lambda _: False).explanation.words
        for one in open_runs
    )


def _listed_runs(engine: Engine, label: str | None = None) -> list[Manifest]:
    """Return all runs but lanes; or those that have a label."""
    contains = None if label is None else ("labels", label)
    found = engine.engine.documents.query(
        Query("runs", order_by="createdAt", contains=contains, limit=_MOST)
    )
    assert len(found) < _MOST
    return [manifest_of(one.ref.id, one.document) for one in found]


def _read_ticks(engine: Engine, after: Aftermath, last: datetime) -> None:
    """Read the runs of the schedule."""
    listed = _listed_runs(engine, "schedule:often")
    runs = {run.idempotency_key: run for run in listed}
    after.labelled = len(listed)
    (entry,) = SCHEDULES
    first = datetime.fromisoformat(min(filter(None, runs)).removeprefix("schedule:often:"))
    for at in takewhile(lambda at: at <= last, entry.after(first - timedelta.resolution)):
        after.ticks[at.isoformat()] = runs.get(schedule_key("often", at))


def _owes_start(engine: Engine) -> bool:
    """Return whether a time of the schedule was decided and has no run yet."""
    state = read_schedule(engine.engine, "often").state
    return state is not None and any(one.fate is Fate.STARTING for one in state.lines)


def _times(engine: Engine) -> Sequence[datetime]:
    """Return the last times of the schedule that start runs."""
    state = read_schedule(engine.engine, "often").state
    lines = [] if state is None else state.lines
    return [one.time for one in lines if one.fate in (Fate.STARTING, Fate.STARTED)]
