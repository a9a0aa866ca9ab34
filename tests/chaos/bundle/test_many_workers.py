"""Many workers under one address: one that stands still, or ends, loses and repeats nothing."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.devserver.server import DevServer
from tests.chaos.bundle.test_signals import rows_of, started
from tests.worlds.bundles import INLINE, Api, calls, dev_server
from tests.worlds.processes import parent_of
from tests.worlds.waiting import freeze, until


@pytest.mark.parametrize(("step", "words"), [("polls_inline", 3), ("polls", 2)])
def test_a_worker_that_was_stopped_for_longer_than_its_lease_writes_nothing(
    api: Api, folder: Path, step: str, words: int
) -> None:
    """It goes on as if nothing was: with a renewal, a checkpoint and a settlement.

    The handler in its own process went on alone, and is killed with the news.
    """
    run_id = started(api, step)
    (began,) = until(lambda: rows_of(folder, run_id))
    until(lambda: (api.call(f"/runs/{run_id}")["checkpoint"] or {}).get("iterationCount") == 2)

    freeze([began.process], folder / "data" / "leasehold.db")
    try:
        api.ended(run_id)
        until(lambda: api.call(f"/runs/{run_id}").get("archive") is None)
        before, story = api.call(f"/runs/{run_id}"), api.story(run_id)
    finally:
        os.kill(began.process, signal.SIGCONT)
    until(lambda: f"lease_lost {step}" in api.story(run_id))
    until(lambda: len(rows_of(folder, run_id)) >= words)  # both began; one of its own may hear, too

    assert api.call(f"/runs/{run_id}") == before
    after = api.story(run_id)
    assert sorted(after) == sorted([*story, f"lease_lost {step}"])
    assert [event for event in story if "step_" in event or "checkpoint" in event] == [
        f"step_started {step}",
        f"step_terminated {step}",
        f"step_recovered {step}",
        f"checkpoint_resumed {step}",
        f"step_completed {step}",
        f"step_handed_off {step}",
        "step_started three",
        "step_completed three",
    ]
    assert before["steps"][step]["attempts"]["expired"] == 1
    assert before["steps"][step]["output"].endswith('"begun_at":2}')
    assert [call[0] for call in calls(folder, run_id)] == ["three"]


def test_a_process_that_is_forked_for_a_worker_has_nothing_of_its_server(api: Api) -> None:
    """As tests fork it: see `tests/worlds/warm_starts.py`. One that is started has nothing."""
    run = api.ended(api.start(pipeline="looks"))

    assert json.loads(run["steps"]["looks"]["output"]) == {
        "signals": ["SIGCHLD", "SIGHUP", "SIGINT", "SIGTERM"],
        "blocked": 0,
        "dies_with_parent": 0,
        "listens": False,
        "server": [],
        "loggers": ["ChildLogs"],
        "forked": True,
    }


@pytest.fixture
def crowded(folder: Path) -> Iterator[DevServer]:
    """More workers than are told to end at once: each takes a while to be replaced.

    Handlers run inline: what is looked at is the engine, and each new worker would start processes.
    """
    environ = INLINE | {"PIPELINE_LEASE_TTL_S": "30"}
    data = folder / "crowded"
    with dev_server(folder, environ, workers=4, data=data, tick_s=0.5) as server:
        yield server


@pytest.mark.parametrize("count", [4, pytest.param(12, marks=pytest.mark.nightly)])
def test_workers_that_end_in_the_moment_of_settlement_lose_and_repeat_nothing(
    crowded: DevServer, folder: Path, count: int
) -> None:
    """Short steps, and one worker after the other is told to end; new ones take their place."""
    api = Api(crowded.url)
    first = api.start()
    api.ended(first)
    master = parent_of(int(calls(folder, first)[0][2]))
    never, run_ids, ended = threading.Event(), [], set()

    while len(ended) < count:
        alive = until(lambda: two_or_more(set(children_of(master)) - ended))
        run_ids += [api.start({"n": 1}) for _ in range(6)]
        never.wait(0.05)  # some of their steps are done, others not
        ended.add(alive[0])
        os.kill(alive[0], signal.SIGTERM)
    runs = [api.ended(run_id) for run_id in run_ids]

    assert len(ended) == count
    for run in runs:
        story = api.story(run["runId"])
        assert [event for event in story if "handed_off" in event or "completed" in event] == [
            "step_completed one",
            "step_handed_off one",
            "step_completed two",
            "step_handed_off two",
            "step_completed three",
            "run_completed",
        ]
        for step in run["steps"].values():
            assert (step["attempts"]["failed"], step["attempts"]["expired"]) == (0, 0)


def two_or_more(pids: set[int]) -> list[int]:
    return sorted(pids) if len(pids) > 1 else []


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]
