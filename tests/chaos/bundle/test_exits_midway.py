"""A server that ends where it stands, wherever that is: no lease is left behind.

`test_endings.py` has the real server; here each place is met, one process after the other.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import functions_framework
import pytest

from leasehold.domain.status import RunStatus
from leasehold.services.read_runs import get_run, timeline_of
from leasehold.testing import InProcessEngine
from leasehold.web.engine_provider import SHUTDOWN
from tests.worlds.builders import environ_of

ROOT = Path(__file__).parents[3]
PACKAGE = str(ROOT / "shared/leasehold")
CATALOG = "tests.worlds.catalogs.sample"
FORKED = multiprocessing.get_context("fork")


class Left(NamedTuple):
    """How a process ended that ran an attempt."""

    calls: int
    place: str
    is_left: bool


def leave(_number: int, _frame: FrameType | None) -> NoReturn:
    """As the handler of a sync worker of gunicorn: at SIGQUIT, which it is sent at SIGINT too."""
    SHUTDOWN.wait_or_shutdown(0.1)
    sys.exit(0)


def work(run_id: str, at: int, told: SimpleQueue[Left]) -> NoReturn:
    """Have a function run the first step of a run, in the main thread, as in a sync worker.

    Args:
        run_id: the run.
        at: the call of Leasehold's code at which the process is told to end; 0: none.
        told: where it is said how that went.
    """
    calls, place = 0, ""

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls, place
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls += 1
            if calls == at:
                place = f"{frame.f_code.co_filename}:{frame.f_code.co_name}"
                signal.raise_signal(signal.SIGQUIT)

    is_left, entry = False, str(ROOT / "shared/leasehold/functions/execute_step.py")
    client = functions_framework.create_app("execute_step", entry).test_client()
    signal.signal(signal.SIGQUIT, leave)
    sys.setprofile(count)
    try:
        client.post("/", json={"runId": run_id, "generation": 1})
    except SystemExit:
        is_left = True
    finally:
        sys.setprofile(None)
        told.put(Left(calls, place, is_left))
        os._exit(0)


@pytest.fixture
def engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[InProcessEngine]:
    isolation = request.param.removeprefix("process")  # a step has its own process unless told
    environ = environ_of(tmp_path, LEASEHOLD_CATALOG=CATALOG, LEASEHOLD_ISOLATION=isolation)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with InProcessEngine(environ=environ, workers=0) as engine:
        yield engine


@pytest.mark.parametrize(
    ("engine", "places"),
    [
        ("inline", 8),
        ("process", 4),
        pytest.param("inline", 120, marks=pytest.mark.nightly),
        pytest.param("process", 120, marks=pytest.mark.nightly),
    ],
    indirect=["engine"],
)
def test_an_attempt_that_its_server_leaves_anywhere_gives_its_lease_back(
    engine: InProcessEngine, places: int
) -> None:
    def left_at(at: int) -> tuple[Left, str]:
        """Run the attempt elsewhere, and tell that process to end at this call of it."""
        run_id = engine.start("large", {"n": 1}).run_id
        told: SimpleQueue[Left] = FORKED.SimpleQueue()
        process = FORKED.Process(target=work, args=(run_id, at, told))
        process.start()
        left = told.get()
        process.join()
        return left, run_id

    whole, run_id = left_at(0)
    assert get_run(engine.engine, run_id).status is RunStatus.COMPLETED
    ends = set()
    for at in range(1, whole.calls, whole.calls // places):
        left, run_id = left_at(at)
        run, events = get_run(engine.engine, run_id), timeline_of(engine.engine, run_id)
        assert left.is_left or not left.place, left
        assert run.position.lease is None, left
        attempts = run.steps["large"].attempts
        assert (attempts.failed, attempts.expired) == (0, 0), left
        ends.add(str(events[-1].reason or events[-1].type))
        engine.run_until_idle()
        assert get_run(engine.engine, run_id).status is RunStatus.COMPLETED, left

    assert ends == {"run_started", "instance_shutdown", "run_completed"}
