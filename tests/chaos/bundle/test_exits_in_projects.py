"""A server that ends where it stands, in code of a project: that is cut short, wherever it is."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import NoReturn

import functions_framework
import pytest

from leasehold.errors import StoreUnavailableError
from leasehold.services.read_runs import get_run
from leasehold.testing import InProcessEngine
from leasehold.web.engine_provider import SHUTDOWN
from leasehold.worker.stopping.system_signals import ENDING, SERVER_EXIT
from tests.worlds.builders import environ_of
from tests.worlds.bundles import INLINE

ENTRY = str(Path(__file__).parents[3] / "shared/leasehold/functions/execute_step.py")
CATALOG = "tests.chaos.bundle.catalog_of_exits"
FORKED = multiprocessing.get_context("fork")


def leave(_number: int, _frame: FrameType | None) -> NoReturn:
    """As the handler of a sync worker of gunicorn."""
    SHUTDOWN.wait_or_shutdown(0.1)
    sys.exit(0)


def leave_at_once(_number: int, _frame: FrameType | None) -> NoReturn:
    """As that of another server: the attempt ends before it is asked to."""
    sys.exit(0)


def leave_again(number: int, frame: FrameType | None) -> NoReturn:
    """As after Ctrl-C: the worker hears it, and SIGQUIT from its master while it waits."""
    if number == signal.SIGQUIT:
        signal.raise_signal(signal.SIGINT)
    leave(number, frame)


def answer(run_id: str) -> object:
    """Run the first attempt of a run in a function, in the main thread, as in a sync worker."""
    client = functions_framework.create_app("execute_step", ENTRY).test_client()
    return client.post("/", json={"runId": run_id, "generation": 1})


def is_left(
    handle: Callable[[int, FrameType | None], NoReturn], call: Callable[[], object]
) -> bool:
    """Make a call in a process with such a handler of signals; return whether that was left."""
    end, there = FORKED.Pipe(duplex=False)

    def make(there: Connection) -> None:
        SHUTDOWN.listen(*ENDING)
        for number in ENDING:
            signal.signal(number, handle)
        try:
            call()
            there.send(False)
        except SystemExit:
            there.send(True)
        finally:
            os._exit(0)

    process = FORKED.Process(target=make, args=(there,))
    process.start()
    there.close()
    left = bool(end.recv())
    process.join()
    return left


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessEngine]:
    names = {"LEASEHOLD_CATALOG": CATALOG, "EXITS_TEST_FOLDER": str(tmp_path)}
    environ = environ_of(tmp_path, **names) | INLINE
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with InProcessEngine(environ=environ, workers=0) as engine:
        yield engine


@pytest.mark.parametrize(
    ("pipeline", "handle"),
    [
        ("leaves", leave_again),
        ("leaves_after_a_run", leave),
        ("leaves_by_an_error", leave_at_once),
        ("leaves_in_an_action", leave),
        ("leaves_in_a_gate", leave),
        ("leaves_in_a_gate_by_an_error", leave_at_once),
    ],
)
def test_an_exit_cuts_code_of_a_project_short(
    engine: InProcessEngine,
    tmp_path: Path,
    pipeline: str,
    handle: Callable[[int, FrameType | None], NoReturn],
) -> None:
    """Code that goes on is killed by its server half a minute later, and has no lease by then."""
    run_id = engine.start(pipeline).run_id

    assert is_left(handle, partial(answer, run_id))

    run = get_run(engine.engine, run_id)
    assert (tmp_path / run_id).read_text() == ""
    assert run.position.lease is None
    assert (run.position.attempts.interrupted, run.position.attempts.failed) == (1, 0)
    engine.run_until_idle()
    assert engine.show(run_id).status == "COMPLETED"


def test_a_server_leaves_after_an_attempt_that_could_not_be_committed() -> None:
    """Its exit was lost where the attempt that held it back ended by an error."""

    def attempt() -> None:
        signal.raise_signal(signal.SIGQUIT)
        raise StoreUnavailableError(store="runs.db", problem="it is away")

    assert is_left(leave, partial(SERVER_EXIT.held_back, attempt))
