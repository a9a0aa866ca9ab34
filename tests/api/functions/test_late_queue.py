"""A queue that is an hour behind: its tasks are late, and no run is given up for that."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from google.cloud.tasks_v2 import CloudTasksClient, Queue

from leasehold.adapters.clock import SystemClock
from leasehold.bootstrap import boot
from leasehold.devserver.cloud_tasks import CloudTasksDouble
from leasehold.domain.manifest import Manifest
from leasehold.remote_workers.claim_step import acquire_run
from leasehold.services.engine import Engine
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import sweep
from tests.api.devserver.cloud_tasks.conftest import official_client
from tests.worlds.builders import let_pass
from tests.worlds.emulators import environment, firestore_host, need_firestore
from tests.worlds.function_process import function_process
from tests.worlds.ports import own_port
from tests.worlds.waiting import until

QUEUES: Final = ("add", "add-later", "add-again", "fail-twice")
#: So often the sweep comes: soon enough that somebody was there all the time.
LOOK: Final = timedelta(minutes=5)
LOOKS: Final = 15


class Ahead(SystemClock):
    """The machine's clock, as much ahead as a test says."""

    by = timedelta()

    def now(self) -> datetime:
        return super().now() + self.by


@dataclass
class World:
    """Functions on the Firestore emulator, with queues that can be held up."""

    engine: Engine
    clock: Ahead  # of the queues
    client: CloudTasksClient
    location: str

    def start(self, pipeline: str) -> str:
        return start_run(self.engine, StartRequest(pipeline, {"n": 1})).manifest.run_id

    def run(self, run_id: str) -> Manifest:
        return get_run(self.engine, run_id)

    def hold_up(self) -> None:
        """Deliver nothing more; what is created waits."""
        for name in QUEUES:
            self.client.pause_queue(name=f"{self.location}/queues/{name}")

    def deliver(self) -> None:
        for name in QUEUES:
            self.client.resume_queue(name=f"{self.location}/queues/{name}")

    def let_pass(self, by: timedelta, run_ids: list[str]) -> None:
        self.clock.by += by
        for run_id in run_ids:
            let_pass(self.engine.documents, run_id, by)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    need_firestore()
    clock, port = Ahead(), own_port()
    project = f"p-{secrets.token_hex(8)}"
    with ExitStack() as stack:
        stack.enter_context(environment(FIRESTORE_EMULATOR_HOST=firestore_host()))
        double = CloudTasksDouble(clock=clock)
        stack.callback(double.stop)
        url = double.start()
        environ = {
            **os.environ,
            "LEASEHOLD_STORE": f"firestore://{project}/(default)",
            "LEASEHOLD_ARTIFACTS": f"file://{tmp_path}/artifacts",
            "LEASEHOLD_ARTIFACTS_SHARED": "yes",
            "LEASEHOLD_CATALOG": "tests.worlds.catalogs.sample",
            "LEASEHOLD_TASKS": f"cloud-tasks://{project}/here",
            "LEASEHOLD_FUNCTION_URL": f"http://127.0.0.1:{port}/",
            "CLOUD_TASKS_EMULATOR_URL": url,
            "PIPELINE_MIN_BACKOFF_S": "60",
        }
        stack.enter_context(function_process(environ, "execute_step", port))
        bundle = boot(environ)
        stack.callback(bundle.close)
        location = f"projects/{project}/locations/here"
        client = stack.enter_context(official_client(url))
        for name in QUEUES:
            client.create_queue(parent=location, queue=Queue(name=f"{location}/queues/{name}"))
        yield World(bundle.engine, clock, client, location)


def test_what_waits_for_an_hour_behind_others_is_run_as_it_is(world: World) -> None:
    """A first attempt, a retry whose recovery window is an hour, and a step before a remote one."""
    retried = world.start("recovers")
    until(lambda: world.run(retried).status == "ERROR")
    world.hold_up()
    new, remote = world.start("three"), world.start("away")
    behind = [retried, new, remote]
    waiting = {run_id: world.run(run_id).position.dispatch.generation for run_id in behind}

    swept = []
    for _ in range(LOOKS):
        world.let_pass(LOOK, behind)
        swept.append(sweep(world.engine))
    late = {run_id: world.run(run_id).position.dispatch.generation for run_id in behind}
    world.deliver()
    until(lambda: world.run(new).status == "COMPLETED")
    until(lambda: world.run(remote).claimable == "away")
    claimed = acquire_run(world.engine, remote, "vm-1").manifest
    until(lambda: world.run(retried).position.attempts.failed == 2)

    assert {(each.dead_lettered, each.redispatched) for each in swept} == {(0, 0)}
    assert sum(each.still_queued for each in swept) >= LOOKS
    assert late == waiting
    assert claimed.position.lease is not None
    assert not world.run(retried).is_terminal
