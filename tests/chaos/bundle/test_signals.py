"""SIGTERM, as Cloud Run sends it: what is in flight is handed over in time, and goes on elsewhere.

The functions run under the framework's own server, with its own handlers of signals.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.bootstrap import Bundle, boot
from leasehold.devserver.cloud_tasks import CloudTasksDouble
from leasehold.devserver.function_processes import (
    Function,
    FunctionProcesses,
    entry_folder,
)
from leasehold.devserver.server import DevOptions, function_environ
from leasehold.domain.manifest import Manifest
from leasehold.domain.trace import TraceEvent, TraceType
from leasehold.services.engine import Engine
from leasehold.services.read_runs import get_run, timeline_of
from leasehold.services.start_run import StartRequest, start_run
from tests.chaos.bundle.conftest import Begin
from tests.worlds.bundles import INLINE, Api, settings
from tests.worlds.catalogs.bundle import SIGNALLED
from tests.worlds.ports import own_port
from tests.worlds.processes import is_running, parent_of
from tests.worlds.waiting import until

LISTENING = ("listens", "listens_later", "polls")
#: The server, and who is told to end. Each worker of a sync server has a fork server of its own:
#: what becomes of one of them, test_endings.py looks at.
SCENES = {
    "process": [("gthread", "master")],
    "process, others": [("gthread", "worker")],
    "inline": [("gthread", "worker"), ("sync", "master")],
    "inline, others": [("gthread", "master"), ("sync", "worker")],
}


def in_scenes(*isolations: str) -> pytest.MarkDecorator:
    """Have a test look at each scene whose handlers run there.

    The others are of the nightly job: the gate has each server, and each that is told to end.
    """
    cases = [(isolation, *scene) for isolation in isolations for scene in SCENES[isolation]]
    others = [f"{isolation}, others" for isolation in isolations]
    cases += [
        pytest.param(other, *scene, marks=pytest.mark.nightly)
        for other in others
        for scene in SCENES[other]
    ]
    return pytest.mark.parametrize(
        ("scenes", "kind", "target"), cases, indirect=["scenes"], scope="module"
    )


AT_ONCE = timedelta(seconds=3)
#: Nobody looks after these runs: what is not dispatched with its release waits for the end of its
#: lease at least, ten minutes. Any machine is faster, with as many workers as there are here.
WITHOUT_A_LEASE = timedelta(minutes=2)
PATIENCE_S = 120.0
STORY = [
    "run_started",
    "step_started",
    "step_terminated",
    "step_completed",
    "step_handed_off",
    "step_started",
    "step_completed",
    "run_completed",
]


@dataclass(frozen=True)
class Row:
    """The record of a handler about one attempt."""

    attempt: int
    word: str
    process: int
    at: datetime


def rows_of(folder: Path, run_id: str) -> list[Row]:
    file = folder / "told"
    rows = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [
        Row(int(attempt), word, int(process), datetime.fromisoformat(at))
        for run, attempt, word, process, at in rows
        if run == run_id
    ]


@dataclass
class Scene:
    """One instance that is told to end while some steps are in flight, and what came of it."""

    folder: Path
    runs: dict[str, str] = field(default_factory=dict)
    workers: set[int] = field(default_factory=set)
    signalled_at: datetime | None = None
    done: dict[str, Manifest] = field(default_factory=dict)
    traces: dict[str, list[TraceEvent]] = field(default_factory=dict)
    later: dict[str, tuple[Manifest, list[TraceEvent]]] = field(default_factory=dict)

    @property
    def busy(self) -> timedelta:
        """How long a step took to start: what a busy machine adds to each wait."""
        return max(
            after.at - before.at
            for trace in self.traces.values()
            for before, after in itertools.pairwise(trace)
            if after.type is TraceType.STEP_STARTED
        )


class Region:
    """Instances of execute_step. One that ends gets no more tasks: its next ones go to `next_`.

    As under Cloud Run: there the front end decides it, here the address that tasks are made for.
    """

    def __init__(self, folder: Path, isolation: str = "process") -> None:
        self.folder = folder
        self.isolation = isolation
        self.tasks = CloudTasksDouble()
        self.tasks_url = self.tasks.start()
        self.next_ = Function("execute_step", own_port())
        self.processes: list[FunctionProcesses] = []
        self.bundles: list[Bundle] = []
        self._entries = entry_folder("execute_step")
        self.add(self.next_)

    def add(self, function: Function, **settings: str) -> Bundle:
        """Start an instance, with these settings; return an engine whose tasks go to it."""
        environ = self.environ(self.next_) | settings
        processes = FunctionProcesses(function, self._entries, environ, print)
        self.processes.append(processes)
        processes.start()
        bundle = boot(self.environ(function))
        self.bundles.append(bundle)
        return bundle

    def environ(self, function: Function) -> dict[str, str]:
        environ = settings(self.folder) | {
            "LEASEHOLD_ISOLATION": "inline" if self.isolation == "inline" else "",
            "PIPELINE_LEASE_TTL_S": "600",
        }
        options = DevOptions(data=self.folder / "data", environ=environ)
        return function_environ(options, function.url) | {
            "CLOUD_TASKS_EMULATOR_URL": self.tasks_url
        }

    def wait_until_ready(self) -> None:
        for processes in self.processes:
            processes.wait_until_ready(time.monotonic() + PATIENCE_S)

    def close(self, *, at_once: bool = False) -> None:
        self.tasks.stop()
        for processes in self.processes:
            processes.request_stop()
        for processes in self.processes:
            processes.wait_or_kill(time.monotonic() + 5, lambda: at_once)
        for bundle in self.bundles:
            bundle.close()


def in_flight(region: Region, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Scene]:
    """Start an instance for each scene, and have one step of each kind run on it."""
    engines = {}
    for kind, target in keys:
        threads = {"gthread": 8, "sync": 1}[kind]
        workers = {"gthread": 1, "sync": len(SIGNALLED)}[kind]
        function = Function("execute_step", own_port(), workers=workers, threads=threads)
        engines[kind, target] = region.add(function).engine
    region.wait_until_ready()
    warm_up(region)
    scenes = {key: Scene(region.folder) for key in engines}
    for key, scene in scenes.items():
        for name in SIGNALLED:
            run = start_run(engines[key], StartRequest(name, {"n": 1})).manifest
            scene.runs[name] = run.run_id
    for scene in scenes.values():
        for run_id in scene.runs.values():
            (began,) = until(partial(rows_of, region.folder, run_id), PATIENCE_S)
            scene.workers.add(began.process)
    return scenes


def warm_up(region: Region) -> None:
    """Run something on the instance that is next: how long a cold one takes is not looked at."""
    engine = region.bundles[0].engine
    run_id = start_run(engine, StartRequest("notes", {})).manifest.run_id
    until(partial(completed, engine, run_id), PATIENCE_S)


def tell_to_end(scene: Scene, target: str) -> None:
    """Send SIGTERM to the master, which is pid 1 of a container, or to its workers alone."""
    victims = scene.workers
    if target == "master":
        victims = {parent_of(worker) for worker in scene.workers}
    scene.signalled_at = SystemClock().now()
    for pid in victims:
        os.kill(pid, signal.SIGTERM)


def let_children_end(region: Region, scenes: Iterable[Scene]) -> None:
    """Have the processes end that handlers wait for, once all their leases are given back.

    Their workers are killed 10 s after the signal: so long the handlers have.
    """
    engine = region.bundles[0].engine
    for run_id in [scene.runs["waits_for_child"] for scene in scenes]:
        until(partial(has_ended_once, engine, run_id), PATIENCE_S)
    (region.folder / "child-may-end").touch()


def has_ended_once(engine: Engine, run_id: str) -> bool:
    return any(event.type == "step_terminated" for event in timeline_of(engine, run_id))


def go_on(region: Region, scene: Scene) -> None:
    """Wait until the runs of a scene completed."""
    engine = region.bundles[0].engine
    for name, run_id in scene.runs.items():
        scene.done[name] = until(partial(completed, engine, run_id), PATIENCE_S)
        scene.traces[name] = timeline_of(engine, run_id)


def outlive(region: Region, scene: Scene) -> None:
    """Wait until the workers of a scene are gone, and look at its runs again."""
    engine = region.bundles[0].engine
    until(lambda: not any(map(is_running, scene.workers)), PATIENCE_S)
    for name, run_id in scene.runs.items():
        scene.later[name] = (get_run(engine, run_id), timeline_of(engine, run_id))


def completed(engine: Engine, run_id: str) -> Manifest | None:
    """Return the run once it is completed and archived: its worker has no more to write then."""
    run = get_run(engine, run_id)
    return run if run.status == "COMPLETED" and run.archive is None else None


@pytest.fixture(scope="module")
def scenes(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[dict[tuple[str, str], Scene]]:
    """All scenes side by side, because a handler that ignores the signal is waited for."""
    folder = tmp_path_factory.mktemp(request.param)
    region = Region(folder, request.param.partition(",")[0])
    try:
        found = in_flight(region, SCENES[request.param])
        for (_, target), scene in found.items():
            tell_to_end(scene, target)
        let_children_end(region, found.values())
        for scene in found.values():
            go_on(region, scene)
        (folder / "go-on").touch()  # now those that ignored it return as well, too late
        for scene in found.values():
            outlive(region, scene)
        yield found
    finally:
        (folder / "go-on").touch()
        (folder / "child-may-end").touch()
        region.close()


def terminated(scene: Scene, name: str) -> TraceEvent:
    (event,) = [event for event in scene.traces[name] if event.type == "step_terminated"]
    return event


@pytest.mark.parametrize("name", SIGNALLED)
@in_scenes("process", "inline")
def test_a_step_in_flight_is_handed_over_and_its_run_completes(
    scenes: dict[tuple[str, str], Scene], kind: str, target: str, name: str
) -> None:
    scene = scenes[kind, target]
    run = scene.done[name]

    story = [str(event.type) for event in scene.traces[name]]
    assert [event for event in story if event != "checkpoint_resumed"] == STORY
    assert terminated(scene, name).reason == "instance_shutdown"
    assert (
        run.position.attempts.interrupted,
        run.position.attempts.failed,
        run.position.attempts.expired,
    ) == (0, 0, 0)
    attempts = run.steps[name].attempts
    assert (attempts.interrupted, attempts.failed, attempts.expired) == (1, 0, 0)


@pytest.mark.parametrize("name", SIGNALLED)
@in_scenes("process", "inline")
def test_its_lease_is_released_in_time_and_the_next_attempt_runs_at_once(
    scenes: dict[tuple[str, str], Scene],
    kind: str,
    target: str,
    name: str,
) -> None:
    """Elsewhere; Cloud Run kills what still runs 10 s after SIGTERM."""
    scene = scenes[kind, target]
    assert scene.signalled_at is not None
    first, *_, second = [
        one for one in rows_of(scene.folder, scene.runs[name]) if one.word == "began"
    ]
    released_at = terminated(scene, name).at
    busy = max(it.busy for (of, _), it in scenes.items() if of == "gthread")
    took = released_at - scene.signalled_at

    if name in LISTENING:
        (ended,) = [one for one in rows_of(scene.folder, scene.runs[name]) if one.word == "ended"]
        assert released_at - ended.at < timedelta(seconds=2) + busy
        assert ended.at - scene.signalled_at < AT_ONCE + busy
    assert took < timedelta(seconds=8) + busy
    assert second.at - released_at < WITHOUT_A_LEASE
    assert (first.attempt, second.attempt) == (1, 2)
    assert second.process not in scene.workers


@in_scenes("process", "inline")
def test_a_handler_that_keeps_checkpoints_goes_on_from_the_last(
    scenes: dict[tuple[str, str], Scene], kind: str, target: str
) -> None:
    """The last one is made after the signal came."""
    scene = scenes[kind, target]

    output = scene.done["polls"].steps["polls"].output
    resumed = [e for e in scene.traces["polls"] if e.type == "checkpoint_resumed"]
    assert output == '{"n":1,"counted":[1,2,3,4,5],"begun_at":3}'
    assert [event.attempt for event in resumed] == [2]


@pytest.mark.parametrize("name", SIGNALLED)
@in_scenes("process", "inline")
def test_what_a_handler_still_answers_after_its_release_changes_nothing(
    scenes: dict[tuple[str, str], Scene], kind: str, target: str, name: str
) -> None:
    scene = scenes[kind, target]

    assert scene.later[name] == (scene.done[name], scene.traces[name])


@in_scenes("inline")
def test_a_process_that_a_handler_waits_for_is_left_alone(
    scenes: dict[tuple[str, str], Scene], kind: str, target: str
) -> None:
    """The lease is given back; what an inline handler started is its own business."""
    scene = scenes[kind, target]

    rows = rows_of(scene.folder, scene.runs["waits_for_child"])
    (ended,) = [one for one in rows if one.word == "ended"]  # its process ended well
    assert ended.attempt == 1
    assert ended.at > terminated(scene, "waits_for_child").at


@pytest.mark.parametrize("name", ["ignores", "waits_for_child", "joins"])
@in_scenes("process")
def test_a_handler_in_its_own_process_is_ended_with_its_lease(
    scenes: dict[tuple[str, str], Scene], kind: str, target: str, name: str
) -> None:
    """With all that it started: nothing of the first attempt comes to its end."""
    scene = scenes[kind, target]

    rows = rows_of(scene.folder, scene.runs[name])
    assert [(one.attempt, one.word) for one in rows if one.attempt == 1] == [(1, "began")]


# --- the dev server ---


def started(api: Api, pipeline: str) -> str:
    return str(api.call("/runs", {"pipeline": pipeline, "input": {"n": 1}})["runId"])


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGTERM]
)
def test_the_next_dev_server_goes_on_at_once_where_the_last_one_was_told_to_end(
    begin: Begin, tmp_path: Path, number: signal.Signals
) -> None:
    """No lease is waited for: they run 600 s."""
    process, api = begin(PIPELINE_LEASE_TTL_S="600", **INLINE)
    run_ids = {name: started(api, name) for name in LISTENING}
    until(lambda: all(rows_of(tmp_path, run_id) for run_id in run_ids.values()))

    process.send_signal(number)
    code = process.wait(11)
    _, api = begin(PIPELINE_LEASE_TTL_S="600", **INLINE)
    began = time.monotonic()
    runs = {name: api.ended(run_id) for name, run_id in run_ids.items()}

    assert code == 0
    assert time.monotonic() - began < 20
    for name, run in runs.items():
        events = api.call(f"/runs/{run['runId']}/trace")["events"]
        ended = [event["reason"] for event in events if event["type"] == "step_terminated"]
        attempts = run["steps"][name]["attempts"]
        assert ended == ["instance_shutdown"]
        assert (attempts["interrupted"], attempts["failed"], attempts["expired"]) == (1, 0, 0)
        assert api.story(run["runId"]).count(f"step_handed_off {name}") == 1
