"""Servers that are replaced one after the other, forward and back: no run is blocked meanwhile."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.bundles import Api
from tests.worlds.servers import Begun, servers
from tests.worlds.waiting import until

WORKERS = 2


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[str], Begun]]:
    """Starts a server of a version, on the test's own file."""
    with servers(tmp_path, "--workers", str(WORKERS)) as begin:
        yield lambda version: begin(
            LEASEHOLD_CATALOG="tests.api.server.rolled",
            ROLLED_VERSION=version,
            LEASEHOLD_ISOLATION="inline",
            PIPELINE_DISPATCH_GRACE_S="2",
        )


def test_servers_of_two_versions_leave_each_other_the_steps_that_they_do_not_know(
    begin: Callable[[str], Begun],
) -> None:
    """Three servers, each killed and replaced by another version while runs go on."""
    alive = [begin("old") for _ in range(3)]
    runs: dict[str, list[str]] = {"old": [], "new": []}
    version = "old"
    for place, replaced_by in ((0, "new"), (1, "new"), (2, "new"), (0, "old"), (1, "old")):
        runs[version] += [_start(alive[place][1]) for _ in range(2)]
        alive[place][0].kill()
        alive[place] = begin(replaced_by)
        version = replaced_by
        runs[version] += [_start(alive[place][1]) for _ in range(2)]
    _, api = alive[2]

    ended = {run_id: api.ended(run_id, seconds=120) for of in runs.values() for run_id in of}

    assert {run["status"] for run in ended.values()} == {"COMPLETED"}
    for run_id in ended:
        wrong = {"step_unknown", "step_blocked", "step_error", "step_dead_lettered"}
        assert not wrong & _told(api, run_id)
    assert any(len(run["plan"]) == 3 for run in ended.values())


def test_a_step_that_only_a_busy_server_knows_waits_for_it(
    begin: Callable[[str], Begun], tmp_path: Path
) -> None:
    """The others have done the step before it, and leave it; one that is killed blocks no run."""
    killed, api = begin("old")[0], begin("new")[1]
    _, other = begin("old")
    busy = [f"busy-{number}" for number in range(WORKERS)]
    for key in busy:
        (tmp_path / f"hold-{run_id_of(key)}").touch()
        assert _start(api, key) == run_id_of(key)
    until(lambda: {_run(api, key)["status"] for key in busy} == {"IN_PROGRESS"})
    started = _start(api, "waits")
    until(lambda: _run(other, "waits")["currentStep"] == "polish")
    killed.kill()
    seen = _run(other, "waits")["dispatch"]["seenAt"]
    until(lambda: _run(other, "waits")["dispatch"]["seenAt"] != seen)
    waiting = _run(other, "waits")
    for key in busy:
        (tmp_path / f"hold-{run_id_of(key)}").unlink()

    assert waiting["status"] == "PENDING"
    for run_id in (started, *map(run_id_of, busy)):
        run = api.ended(run_id, seconds=120)
        assert (len(run["plan"]), run["attempts"]["failed"]) == (3, 0)
        assert not {"step_unknown", "step_blocked"} & _told(api, run_id)


def run_id_of(key: str) -> str:
    return f"r-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def _run(api: Api, key: str) -> Any:
    return api.call(f"/runs/{run_id_of(key)}")


def _told(api: Api, run_id: str) -> set[str]:
    return {event.partition(" ")[0] for event in api.story(run_id)}


def _start(api: Api, key: str | None = None) -> str:
    body = {"pipeline": "report", "input": []} | ({"idempotencyKey": key} if key else {})
    return str(api.call("/runs", body)["runId"])
