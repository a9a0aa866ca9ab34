"""Ctrl-C while the caller's thread runs a handler: the attempt is released, then it is raised."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial

import pytest

from leasehold import in_process
from leasehold.domain.manifest import Manifest
from leasehold.testing import InProcessEngine
from tests.api.in_process.interrupted import GATES, PIPELINES, STEPS
from tests.worlds.catalogs.sample import CALLS
from tests.worlds.own_process import own_process

pytestmark = pytest.mark.catalog("tests.api.in_process.interrupted")

PLACES = ["press", "press_later", "gated"]

#: What the trace says of an attempt that was cut short by what is raised.
SAID = {
    KeyboardInterrupt: "Ctrl-C: the process was interrupted; the lease was released.",
    SystemExit: "A signal had the process exit; the lease was released.",
}


def leaves_once_and_goes_on(
    engine: in_process.InProcessEngine, run_id: str, raised: type[BaseException]
) -> None:
    """Run what is due, which is cut short: the attempt is released, and the next one completes."""
    with pytest.raises(raised) as cut:
        engine.run_until_idle()

    assert not isinstance(cut.value, SystemExit) or cut.value.code == 3
    left = engine.show(run_id)
    assert (left.status, left.position.lease) == ("PENDING", None)
    assert (left.position.attempts.interrupted, left.position.attempts.failed) == (1, 0)
    (released,) = [event for event in engine.trace(run_id) if event.type == "step_terminated"]
    assert released.detail == SAID[raised]
    assert engine.run_until_idle() == 1
    assert engine.show(run_id).status == "COMPLETED"


@pytest.mark.parametrize("pipeline", PLACES)
def test_an_interrupt_reaches_the_caller_of_run_due(engine: InProcessEngine, pipeline: str) -> None:
    """Swallowed, a loop around it could not be left; and the next attempt may begin at once."""
    run = engine.start(pipeline, {"n": 1})

    leaves_once_and_goes_on(engine, run.run_id, KeyboardInterrupt)


@pytest.mark.parametrize("pipeline", PLACES)
def test_an_interrupt_reaches_the_thread_that_runs_a_run(
    engine: InProcessEngine, pipeline: str
) -> None:
    idle: list[Manifest] = []
    engine.on_idle(idle.append)

    with pytest.raises(KeyboardInterrupt):
        engine.run(pipeline, {"n": 1})

    assert idle == []
    assert engine.run_until_idle() == 1
    assert [(run.status, run.position.attempts.interrupted) for run in idle] == [("COMPLETED", 1)]


def test_a_loop_that_is_interrupted_keeps_what_it_has_done(engine: InProcessEngine) -> None:
    run = engine.start("press_in_a_loop", {"n": 1})

    with pytest.raises(KeyboardInterrupt):
        engine.run_until_idle()

    engine.run_until_idle()
    assert engine.show(run.run_id).status == "COMPLETED"
    assert [CALLS[run.run_id, f"item {item}"] for item in range(6)] == [1, 1, 1, 2, 1, 1]


@pytest.mark.parametrize("pipeline", PLACES)
def test_a_program_that_exits_at_a_signal_leaves_a_handler_or_a_gate(
    engine: InProcessEngine, pipeline: str
) -> None:
    """Taken for an exit of the handler's, it would fail the attempt, and the program go on."""
    with own_process():
        signal.signal(signal.SIGINT, lambda *_: sys.exit(3))
        run = engine.start(pipeline, {"n": 1})

        leaves_once_and_goes_on(engine, run.run_id, SystemExit)


class Leaves:
    def __call__(self, *_: object) -> None:
        sys.exit(3)


@pytest.mark.parametrize("leave", [Leaves(), Leaves().__call__, partial(lambda *_: sys.exit(3), 0)])
def test_an_exit_is_that_of_a_signal_whatever_its_handler_is(
    engine: InProcessEngine, leave: Callable[..., None]
) -> None:
    with own_process():
        signal.signal(signal.SIGINT, leave)
        run = engine.start("press", {"n": 1})

        leaves_once_and_goes_on(engine, run.run_id, SystemExit)


def test_a_program_that_exits_at_a_signal_leaves_a_handler_in_its_own_process(
    environ: dict[str, str],
) -> None:
    environ = {**environ, "LEASEHOLD_ISOLATION": ""}  # as a step says, so in its own process
    with (
        in_process.InProcessEngine(STEPS, PIPELINES, GATES, environ=environ, workers=0) as engine,
        own_process(),
    ):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
        run = engine.start("press_from_afar", {"n": os.getpid()})

        leaves_once_and_goes_on(engine, run.run_id, SystemExit)
