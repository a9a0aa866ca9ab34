"""Instances that end where more goes wrong: the queue is down, or the server ends where it stands.

The functions run under the framework's own server, with its own handlers of signals.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.bootstrap import Bundle
from leasehold.devserver.function_processes import Function
from leasehold.domain.manifest import Manifest
from leasehold.domain.trace import TraceEvent
from leasehold.services.engine import Engine
from leasehold.services.read_runs import get_run, timeline_of
from leasehold.services.start_run import StartRequest, start_run
from tests.chaos.bundle.test_signals import (
    AT_ONCE,
    PATIENCE_S,
    STORY,
    Region,
    completed,
    rows_of,
)
from tests.worlds.ports import own_port
from tests.worlds.processes import parent_of
from tests.worlds.waiting import until

MANY = 6
#: Those at which a server waits for no request, and where its handlers run: each two of these meet.
#: The gate has each signal, each that is told to end, and each isolation.
QUICK = {
    "gate": [(signal.SIGQUIT, "worker", "inline"), (signal.SIGINT, "master", "process")],
    "others": [
        (signal.SIGINT, "master", "inline"),
        (signal.SIGINT, "worker", "process"),
        (signal.SIGQUIT, "master", "process"),
    ],
}
#: Where handlers run in the instance without a queue.
DEAF = {"gate": ["inline"], "others": ["process"]}
#: What a handler that hears nobody is given.
WITHIN = {"inline": AT_ONCE, "process": timedelta(seconds=8)}

Quick = tuple[signal.Signals, str, str]


@dataclass(frozen=True)
class Ended:
    """A run whose instance was told to end, and what is known of it."""

    stop_sent_at: datetime
    run: Manifest
    events: list[TraceEvent]

    @property
    def terminated(self) -> TraceEvent:
        (event,) = [event for event in self.events if event.type == "step_terminated"]
        return event


@dataclass(frozen=True)
class Endings:
    """The runs of the instance without a queue, and the others."""

    without_queue: dict[str, list[Ended]]
    quick: dict[Quick, Ended]


def began(region: Region, run_id: str) -> int:
    """Wait until the first attempt of a run is in flight; return its process."""
    (row,) = until(partial(rows_of, region.folder, run_id), PATIENCE_S)
    return int(row.process)


def end(region: Region, deaf: dict[str, list[str]], quick: dict[Quick, str]) -> Endings:
    """Tell the instances of all runs to end, and wait for what comes of it."""
    servers = {began(region, run_id) for run_ids in deaf.values() for run_id in run_ids}
    pids = {key: began(region, run_id) for key, run_id in quick.items()}
    engine, now = region.bundles[0].engine, SystemClock().now
    deaf_at, stop_sent_at = now(), {}
    for server in servers:
        os.kill(server, signal.SIGTERM)
    for key, pid in pids.items():
        number, target, _ = key
        stop_sent_at[key] = now()
        os.kill(parent_of(pid) if target == "master" else pid, number)

    def ended(at: datetime, run_id: str) -> Ended:
        return Ended(at, get_run(engine, run_id), timeline_of(engine, run_id))

    for run_id in quick.values():
        until(partial(completed, engine, run_id), PATIENCE_S)
    for run_id in itertools.chain(*deaf.values()):
        until(partial(is_released, engine, run_id), PATIENCE_S)
    return Endings(
        {key: [ended(deaf_at, run_id) for run_id in run_ids] for key, run_ids in deaf.items()},
        {key: ended(stop_sent_at[key], run_id) for key, run_id in quick.items()},
    )


def is_released(engine: Engine, run_id: str) -> bool:
    return get_run(engine, run_id).position.lease is None


def add(region: Region, isolation: str, threads: int) -> Bundle:
    """Start an instance; one of many threads has no queue to release its runs to."""
    settings = {"LEASEHOLD_ISOLATION": "inline" if isolation == "inline" else ""}
    if threads > 1:
        settings["CLOUD_TASKS_EMULATOR_URL"] = f"http://127.0.0.1:{own_port()}"
    return region.add(Function("execute_step", own_port(), threads=threads), **settings)


def in_parts(name: str, of: Mapping[str, Iterable[Any]]) -> pytest.MarkDecorator:
    """Have a test look at each case of the gate, and of the nightly job at the others."""
    cases = [
        pytest.param(part, case, marks=[pytest.mark.nightly] if part == "others" else [])
        for part in of
        for case in of[part]
    ]
    return pytest.mark.parametrize(("endings", name), cases, indirect=["endings"], scope="module")


@pytest.fixture(scope="module")
def endings(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Endings]:
    """All of a part side by side, because those that ignore a signal are waited for."""
    region = Region(tmp_path_factory.mktemp(request.param))
    try:
        deaf = {isolation: add(region, isolation, 8) for isolation in DEAF[request.param]}
        quick = {key: add(region, key[2], 1) for key in QUICK[request.param]}
        region.wait_until_ready()
        ignores = StartRequest("ignores", {"n": 1})
        yield end(
            region,
            {
                key: [start_run(it.engine, ignores).manifest.run_id for _ in range(MANY)]
                for key, it in deaf.items()
            },
            {key: start_run(it.engine, ignores).manifest.run_id for key, it in quick.items()},
        )
    finally:
        region.close(at_once=True)


@in_parts("isolation", DEAF)
def test_all_leases_are_given_back_in_time_while_the_queue_is_down(
    endings: Endings, isolation: str
) -> None:
    """The task of one run is waited for as long as the queue may take; no other lease waits."""
    assert len(endings.without_queue[isolation]) == MANY
    for ended in endings.without_queue[isolation]:
        attempts = ended.run.steps["ignores"].attempts
        assert ended.terminated.reason == "instance_shutdown"
        assert ended.terminated.at - ended.stop_sent_at < timedelta(seconds=8)
        assert (attempts.interrupted, attempts.failed, attempts.expired) == (1, 0, 0)
        assert (ended.run.status, ended.run.position.dispatch.generation) == ("PENDING", 2)


@in_parts("key", QUICK)
def test_a_server_that_ends_where_it_stands_interrupts_a_step_and_fails_none(
    endings: Endings, key: Quick
) -> None:
    """Its handler of the signal raises in the main thread, where a sync worker runs the step.

    An inline handler ends there; one in its own process is asked to end, and then killed.
    """
    ended = endings.quick[key]

    attempts = ended.run.steps["ignores"].attempts
    assert [str(event.type) for event in ended.events] == STORY
    assert ended.terminated.reason == "instance_shutdown"
    assert ended.terminated.at - ended.stop_sent_at < WITHIN[key[2]]
    assert (attempts.interrupted, attempts.failed, attempts.expired) == (1, 0, 0)
