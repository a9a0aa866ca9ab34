"""Processes are killed at each write of a wait, a pause and a schedule: before it, and after it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from leasehold.domain.manifest import Manifest, manifest_of
from leasehold.domain.schedule import Fate
from leasehold.ports.documents import Query
from leasehold.services.pauses import list_pauses
from leasehold.services.schedules import read_schedule
from tests.chaos.patterns import points
from tests.chaos.patterns.catalog import NOTES, TICK
from tests.chaos.patterns.points import Action, is_killed
from tests.chaos.patterns.processes import Engine, Place
from tests.chaos.patterns.scenario import opened_place
from tests.worlds.emulators import need_firestore

#: The gate has the first point of each action; the nightly job has all of them, on each store.
FIRST, ALL = 1, 1000
#: A time is decided, its run started, and that recorded: three writes.
OF_A_TIME = 6


@pytest.fixture(params=["sqlite", pytest.param("firestore", marks=pytest.mark.nightly)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "firestore":
        need_firestore()
    return opened_place(request.param, tmp_path)


def killed_everywhere(
    place: Place, pipeline: str, actions: Sequence[Action], most: int = ALL
) -> list[Manifest]:
    """Have one run a point: killed there in one of its actions, which is done again then."""
    given = {"key": "k", "model": "small"}
    ended = []
    with Engine(place, 0) as engine:
        for at, lethal in enumerate(actions):
            for point in islice(points.points(), most):
                run_id = engine.start(pipeline, given).run_id
                for action in actions[:at]:
                    action(engine, run_id)
                was_killed = is_killed(place, lethal, run_id, point)
                for action in actions[at:]:
                    action(engine, run_id)
                ended.append(engine.show(run_id))
                if not was_killed:
                    break
    return ended


def given_to(place: Place, step: str) -> dict[str, list[Any]]:
    """Return what the attempts at a step were given, by their runs."""
    found: dict[str, list[Any]] = {}
    for line in Path(place.environ[NOTES]).read_text().splitlines():
        one = json.loads(line)
        if one["event"] == "begin" and one["step"] == step:
            found.setdefault(one["run"], []).append(one["given"])
    return found


@pytest.mark.parametrize("most", [FIRST, pytest.param(ALL, marks=pytest.mark.nightly)])
def test_a_kill_at_a_write_of_a_wait_loses_no_signal_and_repeats_none(
    place: Place, most: int
) -> None:
    actions = (points.work, points.signal_first, points.work, points.signal_second, points.work)

    runs = killed_everywhere(place, "asking", actions, most)

    assert {run.state for run in runs} == {"COMPLETED"}
    assert len(runs) >= min(most, 3) * len(actions)
    first, second = given_to(place, "ask"), given_to(place, "ask-again")
    for run in runs:
        assert all(one == {"word": "first"} for one in first[run.run_id])
        assert all(one == {"word": "second"} for one in second[run.run_id])


@pytest.mark.nightly
def test_nor_where_the_signal_comes_before_the_wait(place: Place) -> None:
    runs = killed_everywhere(place, "orders", (points.approve, points.work))

    given = given_to(place, "split")
    assert {run.state for run in runs} == {"COMPLETED"}
    assert all(one == {"word": "yes"} for run in runs for one in given[run.run_id])


@pytest.mark.nightly
def test_nor_at_the_end_of_its_time(place: Place) -> None:
    runs = killed_everywhere(place, "late", (points.work, points.let_time_out, points.work))

    given = given_to(place, "remind")
    assert {run.state for run in runs} == {"COMPLETED"}
    assert all(one is None for run in runs for one in given[run.run_id])


@pytest.mark.nightly
def test_a_kill_at_a_write_of_a_pause_leaves_no_run_held(place: Place) -> None:
    actions = (points.pause, points.work, points.resume, points.work)

    runs = killed_everywhere(place, "tolerant", actions)

    assert {run.state for run in runs} == {"COMPLETED"}
    assert len(runs) > 3 * len(actions)
    with Engine(place, 0) as engine:
        assert list_pauses(engine.engine) == []


@pytest.mark.nightly
def test_a_kill_at_a_write_of_a_schedule_starts_each_time_once(place: Place) -> None:
    with Engine(place, 0) as engine:
        points.attend(engine, "")  # the schedule begins
        for point in islice(points.points(), OF_A_TIME):
            time.sleep(TICK.total_seconds())
            assert is_killed(place, points.attend, "", point)
        engine.engine.schedules.look_at.clear()
        points.attend(engine, "")
        engine.adopt_all()
        engine.run_until_idle()
        state = read_schedule(engine.engine, "often").state
        query = Query("runs", contains=("labels", "schedule:often"), limit=1000)
        found = engine.engine.documents.query(query)
        runs = [manifest_of(it.ref.id, it.document) for it in found]

    assert state is not None
    started = [str(run.idempotency_key).removeprefix("schedule:often:") for run in runs]
    assert len(set(started)) == len(started)
    assert {line.fate for line in state.lines} == {Fate.STARTED}
    times = sorted(datetime.fromisoformat(one) for one in started)
    assert all(after - before == TICK for before, after in pairwise(times))
    assert times[-1] == state.lines[-1].time
    assert {run.state for run in runs} == {"COMPLETED"}
