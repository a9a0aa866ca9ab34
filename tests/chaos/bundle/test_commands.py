"""Commands on the store of a bundle that runs: they have no queue, and the bundle has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold import Client
from leasehold.devserver.server import DevServer
from tests.worlds.bundles import INLINE, Api, calls, dev_server
from tests.worlds.waiting import until

#: Far more than a tick takes, also on a busy machine: a task that waits so long counts as lost.
GRACE = {"PIPELINE_DISPATCH_GRACE_S": "5"}


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[DevServer]:
    """Handlers run inline: the processes that matter here are those of the functions."""
    with dev_server(folder, INLINE | GRACE, tick_s=0.5) as server:
        yield server


def test_a_run_that_is_resumed_on_the_store_moves_at_the_next_tick(
    server: DevServer, api: Api, folder: Path
) -> None:
    """Its task is created as it was dispatched: it is not late, and does not count as lost."""
    held = folder / "hold-one"
    held.touch()
    run_id = api.start()
    until(lambda: calls(folder, run_id))
    api.call(f"/runs/{run_id}:pause", {})
    held.unlink()
    until(lambda: api.call(f"/runs/{run_id}").get("alarmAt") is None)

    store = {"LEASEHOLD_STORE": f"sqlite:///{folder / 'data' / 'leasehold.db'}"}
    environ = {**os.environ, **store, "LEASEHOLD_CATALOG": "tests.worlds.catalogs.bundle"}
    words = [sys.executable, "-m", "leasehold", "resume", run_id]
    subprocess.run(
        words,
        env=environ | GRACE,
        check=True,
        capture_output=True,
        timeout=30,
    )

    run = api.ended(run_id)
    assert run["dispatch"]["generation"] == 3
    assert not [event for event in api.story(run_id) if "redispatched" in event]


def test_a_function_that_works_on_a_run_says_what_it_does_to_the_function_that_is_asked(
    server: DevServer, api: Api, folder: Path
) -> None:
    """They are processes of their own, as in the cloud: it hears of that with its heartbeat."""
    held = folder / "hold-two"
    held.touch()
    run_id = api.start()
    until(lambda: any(call[0] == "two" for call in calls(folder, run_id)))

    with Client(server.url, actor="ada") as client:
        event = until(lambda: (found := client.stack(run_id)) and found.stacks and found)
    held.unlink()

    assert (event.step, event.attempt, (event.model_extra or {})["actor"]) == ("two", 1, "ada")
    assert "in note" in (event.stacks or "")
    assert api.ended(run_id)["attempts"]["failed"] == 0
