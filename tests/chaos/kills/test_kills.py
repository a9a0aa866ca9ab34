"""Workers are killed at each boundary of each checkpoint: no more than one interval is repeated."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from leasehold.domain.manifest import Manifest
from leasehold.registry.dispatch import Isolation
from tests.chaos.kills.long_step import ITERATIONS, LARGE_BYTES, SMALL_BYTES
from tests.chaos.kills.points import (
    AFTER_THE_DELETE,
    AFTER_THE_LAST_DELETE,
    BEFORE_THE_END,
    BEFORE_THE_LAST_DELETE,
    BEFORE_THE_WRITE,
    BETWEEN_ITERATIONS,
    LARGE,
    SMALL,
    Kill,
    Place,
)
from tests.chaos.kills.workers import WorkerProcesses, opened
from tests.worlds.emulators import need_firestore
from tests.worlds.stores import DOCUMENTS

SQUARES = ["1", "4", "9", "16", "25", "36", "49", "64", "81", "100"]


#: In `make storm` each iteration has its kills. Here have them the first, whose checkpoint replaces
#: nothing, the second, whose checkpoint replaces one, and the last.
EACH = range(1, ITERATIONS + 1)
SOME = (1, 2, ITERATIONS)


def kills_at(*points: str, iterations: Iterable[int]) -> list[Kill]:
    """Return a kill for each of these iterations at each of these points, in their order."""
    return [Kill(point, number) for number in iterations for point in points]


def killed(
    kind: str, folder: Path, isolation: Isolation, size: int, kills: Sequence[Kill]
) -> tuple[Manifest, list[str]]:
    """Have one run killed again and again, in this order, and then done.

    Returns:
        The run, and the files that it left.
    """
    place = Place(folder)
    place.order(None)
    workers = WorkerProcesses(kind, folder, isolation)
    with opened(kind, folder, isolation, workers=0) as idle:
        run_id = idle.start("iterate", {"folder": str(folder), "bytes": size, "every": 1}).run_id

    codes = {str(kill): workers.run(run_id, kill) for kill in kills}
    last = workers.run(run_id, None)

    assert codes == {str(kill): -signal.SIGKILL for kill in kills}
    assert last == 0
    executed = place.executed
    assert sorted(set(executed)) == list(range(1, ITERATIONS + 1))
    assert len(executed) <= ITERATIONS + len(kills)
    with opened(kind, folder, isolation, workers=0) as idle:
        run = idle.show(run_id)
        left = idle.engine.artifacts.list(f"runs/{run_id}")
    assert json.loads(run.steps["iterate"].output or "") == SQUARES
    return run, list(left)


def check_killed(
    kind: str, folder: Path, isolation: Isolation, size: int, kills: Sequence[Kill]
) -> None:
    """Have a run killed and then done; check that it left nothing."""
    run, left = killed(kind, folder, isolation, size, kills)

    assert (run.owed, left) == ((), [])


def kills_of_each_size(iterations: Sequence[int]) -> pytest.MarkDecorator:
    """Have a test kill at each point of these iterations; a large checkpoint has further points."""
    small = kills_at(*SMALL, iterations=iterations)
    large = [*kills_at(*LARGE, iterations=iterations), Kill(BEFORE_THE_END, ITERATIONS)]
    # The first checkpoint replaces nothing.
    later = kills_at(AFTER_THE_DELETE, iterations=iterations[1:])
    return pytest.mark.parametrize(
        ("size", "kills"),
        [(SMALL_BYTES, small), (LARGE_BYTES, large), (LARGE_BYTES, later)],
        ids=["small", "large", "large, after the delete"],
    )


@kills_of_each_size(SOME)
def test_a_kill_repeats_one_iteration_at_most(
    tmp_path: Path, size: int, kills: Sequence[Kill]
) -> None:
    check_killed("sqlite", tmp_path, "inline", size, kills)


@pytest.mark.parametrize(
    ("kind", "isolation", "points"),
    [
        ("sqlite", "process", (BETWEEN_ITERATIONS, BEFORE_THE_WRITE)),
        pytest.param(
            *("firestore", "inline", (*LARGE, AFTER_THE_DELETE)), marks=pytest.mark.nightly
        ),
    ],
)
def test_nor_where_the_handler_has_its_own_process_nor_on_firestore(
    tmp_path: Path, kind: str, isolation: Isolation, points: Sequence[str]
) -> None:
    """Kills, each in its own iteration.

    A handler in its own process is there when its worker dies: it may be at work, or wait for its
    checkpoint. Its worker writes as one does that runs the handler itself.
    """
    if kind == "firestore":
        need_firestore()
    kills = [Kill(point, 2 + number) for number, point in enumerate(points)]

    check_killed(kind, tmp_path, isolation, LARGE_BYTES, kills)


@pytest.mark.parametrize(
    ("point", "count"), [(BEFORE_THE_LAST_DELETE, 1), (AFTER_THE_LAST_DELETE, 0)]
)
def test_a_kill_at_the_end_leaves_its_files_to_the_sweep(
    tmp_path: Path, point: str, count: int
) -> None:
    """After the grace: see tests/api/in_process/test_checkpoint_files.py."""
    kills = [Kill(point, ITERATIONS)]

    run, left = killed("sqlite", tmp_path, "inline", LARGE_BYTES, kills)

    assert (len(left), len(run.owed)) == (count, 1)
    assert run.alarm_at == run.updated_at + timedelta(minutes=1)


@pytest.mark.skipif(os.environ.get("LEASEHOLD_STORM") != "1", reason="minutes: make storm")
@kills_of_each_size(EACH)
@pytest.mark.parametrize("isolation", ["inline", "process"])
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_nor_anywhere_on_any_store(
    tmp_path: Path, kind: str, isolation: Isolation, size: int, kills: Sequence[Kill]
) -> None:
    if kind == "firestore":
        need_firestore()
    check_killed(kind, tmp_path, isolation, size, kills)
