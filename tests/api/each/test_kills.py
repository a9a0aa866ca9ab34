"""Processes that work on a list are killed again and again, at any point: real ones, on SQLite."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random

import pytest

from leasehold.domain.children import items_of
from leasehold.domain.status import RunStatus
from leasehold.ports.documents import Query
from leasehold.testing import InProcessEngine
from tests.worlds.builders import environ_of
from tests.worlds.catalogs.lists import PIPELINES, STEPS
from tests.worlds.waiting import until

WORKERS = 3


@pytest.mark.parametrize(
    ("kills", "count"), [(2, 120), pytest.param(40, 2500, marks=pytest.mark.nightly)]
)
def test_each_item_is_recorded_once_however_often_its_workers_are_killed(
    kills: int, count: int, tmp_path: Path
) -> None:
    chance = Random(kills)  # noqa: S311 - to be repeated
    noted = tmp_path / "items.txt"
    with opened(tmp_path, workers=0) as engine:
        run_id = engine.start("noted", {"name": str(noted), "count": count}).run_id

    for _ in range(kills):
        before = lines(noted)
        worker = multiprocessing.get_context("fork").Process(target=work, args=(tmp_path,))
        worker.start()
        until(partial(has_grown, noted, before))
        time.sleep(chance.uniform(0, 0.05))
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()

    with opened(tmp_path, workers=WORKERS) as engine:
        engine.adopt_all()
        run = engine.wait(run_id, 60)
        items = engine.engine.documents.query(Query(items_of(run_id), limit=5000))
        output = engine.output(run_id)

    assert run.status is RunStatus.COMPLETED
    assert output == {"total": sum(n**2 for n in range(count)), "count": count, "failed": []}
    assert sum("-i0" in one.ref.id for one in items) == count
    done = Counter(noted.read_text().split())
    assert sorted(map(int, done)) == list(range(count))
    assert sum(done.values()) <= count + kills * WORKERS  # a kill costs the items at hand


def lines(file: Path) -> int:
    return len(file.read_text().split()) if file.exists() else 0


def has_grown(file: Path, before: int) -> bool:
    return lines(file) > before


def work(folder: Path) -> None:
    """Work on all that is there, until it is killed."""
    with opened(folder, workers=WORKERS) as engine:
        engine.adopt_all()
        time.sleep(60)


def opened(folder: Path, *, workers: int) -> InProcessEngine:
    settings = environ_of(folder, PIPELINE_LEASE_TTL_S="3", PIPELINE_HEARTBEAT_S="1")
    return InProcessEngine(STEPS, PIPELINES, environ=settings, workers=workers)
