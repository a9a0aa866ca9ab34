"""Instances that end where more goes wrong: the queue is down, or the server ends where it stands.

The functions run under the framework's own server, with its own handlers of signals.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.devserver.function_processes import Function, free_port
from leasehold.domain.manifest import Manifest
from leasehold.domain.trace import TraceEvent
from leasehold.services.read_runs import get_run, timeline_of
from leasehold.services.start_run import StartRequest, start_run
from tests.bundle.test_signals import AT_ONCE, STORY, Region, completed, parent_of, rows_of
from tests.waiting import until

MANY = 6
#: Those at which a server waits for no request.
QUICK = list(itertools.product((signal.SIGINT, signal.SIGQUIT), ("master", "worker")))

Quick = tuple[signal.Signals, str]


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
    """What became of the runs of the instance without a queue, and of the others."""

    without_queue: list[Ended]
    quick: dict[Quick, Ended]


def began(region: Region, run_id: str) -> int:
    """Wait until the first attempt of a run is in flight; return its process."""
    (row,) = until(partial(rows_of, region.folder, run_id))
    return int(row.process)


def end(region: Region, deaf: list[str], quick: dict[Quick, str]) -> Endings:
    """Tell the instances of all runs to end, and wait for what comes of it."""
    (server,) = {began(region, run_id) for run_id in deaf}
    pids = {key: began(region, run_id) for key, run_id in quick.items()}
    engine, now = region.bundles[0].engine, SystemClock().now
    deaf_at, stop_sent_at = now(), {}
    os.kill(server, signal.SIGTERM)
    for (number, target), pid in pids.items():
        stop_sent_at[number, target] = now()
        os.kill(parent_of(pid) if target == "master" else pid, number)

    def ended(at: datetime, run_id: str) -> Ended:
        return Ended(at, get_run(engine, run_id), timeline_of(engine, run_id))

    for run_id in quick.values():
        until(partial(completed, engine, run_id))
    for run_id in deaf:
        until(lambda run_id=run_id: get_run(engine, run_id).lease is None)  # type: ignore[misc] # bound here
    return Endings(
        [ended(deaf_at, run_id) for run_id in deaf],
        {key: ended(stop_sent_at[key], run_id) for key, run_id in quick.items()},
    )


@pytest.fixture(scope="module")
def endings(folder: Path) -> Iterator[Endings]:
    """All side by side, because those that ignore a signal are waited for."""
    region = Region(folder)
    try:
        nowhere = f"http://127.0.0.1:{free_port()}"
        deaf = region.add(
            Function("execute_step", free_port(), threads=8), CLOUD_TASKS_EMULATOR_URL=nowhere
        )
        quick = {key: region.add(Function("execute_step", free_port(), threads=1)) for key in QUICK}
        region.wait_until_ready()
        request = StartRequest("ignores", {"n": 1})
        yield end(
            region,
            [start_run(deaf.engine, request).manifest.run_id for _ in range(MANY)],
            {key: start_run(it.engine, request).manifest.run_id for key, it in quick.items()},
        )
    finally:
        region.close(at_once=True)


def test_all_leases_are_given_back_in_time_while_the_queue_is_down(endings: Endings) -> None:
    """The task of one run is waited for as long as the queue may take; no other lease waits."""
    assert len(endings.without_queue) == MANY
    for ended in endings.without_queue:
        attempts = ended.run.steps["ignores"].attempts
        assert ended.terminated.reason == "instance_shutdown"
        assert ended.terminated.at - ended.stop_sent_at < timedelta(seconds=8)
        assert (attempts.interrupted, attempts.failed, attempts.expired) == (1, 0, 0)
        assert (ended.run.status, ended.run.dispatch.generation) == ("PENDING", 2)


@pytest.mark.parametrize(("number", "target"), QUICK)
def test_a_server_that_ends_where_it_stands_interrupts_a_step_and_fails_none(
    endings: Endings, number: signal.Signals, target: str
) -> None:
    """Its handler of the signal raises in the main thread, where a sync worker runs the step."""
    ended = endings.quick[number, target]

    attempts = ended.run.steps["ignores"].attempts
    assert [event.type.value for event in ended.events] == STORY
    assert ended.terminated.reason == "instance_shutdown"
    assert ended.terminated.at - ended.stop_sent_at < AT_ONCE
    assert (attempts.interrupted, attempts.failed, attempts.expired) == (1, 0, 0)
