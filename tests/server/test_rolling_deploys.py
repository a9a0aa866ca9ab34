"""Servers that are replaced one after the other, forward and back: nobody is blocked meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bundle.conftest import Api
from tests.server.servers import Begun, servers


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[str], Begun]]:
    """Starts a server of a version, on the test's own file."""
    with servers(tmp_path) as begin:
        yield lambda version: begin(
            LEASEHOLD_CATALOG="tests.server.rolled",
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
        told = {event.partition(" ")[0] for event in api.story(run_id)}
        assert not told & {"step_unknown", "step_blocked", "step_error", "step_dead_lettered"}
    assert any(len(run["plan"]) == 3 for run in ended.values())


def _start(api: Api) -> str:
    return str(api.call("/runs", {"pipeline": "report", "input": []})["runId"])
