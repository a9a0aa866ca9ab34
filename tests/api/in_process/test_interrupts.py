"""Ctrl-C while the caller's thread runs a handler: the attempt is released, then it is raised."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leasehold.domain.manifest import Manifest
from leasehold.testing import FrozenClock, InProcessEngine
from tests.api.in_process.interrupted import GATES, PIPELINES, STEPS
from tests.api.in_process.sample import CALLS

PLACES = ["press", "press_later", "gated"]


@pytest.fixture
def engine(environ: dict[str, str], clock: FrozenClock) -> Iterator[InProcessEngine]:
    with InProcessEngine(
        STEPS, PIPELINES, GATES, environ=environ, clock=clock, workers=0
    ) as engine:
        yield engine


@pytest.mark.parametrize("pipeline", PLACES)
def test_an_interrupt_reaches_the_caller_of_run_due(engine: InProcessEngine, pipeline: str) -> None:
    """Swallowed, a loop around it could not be left; and the next attempt may begin at once."""
    run = engine.start(pipeline, {"n": 1})

    with pytest.raises(KeyboardInterrupt):
        engine.run_until_idle()

    left = engine.show(run.run_id)
    assert (left.status, left.position.lease) == ("PENDING", None)
    assert (left.position.attempts.interrupted, left.position.attempts.failed) == (1, 0)
    assert engine.run_until_idle() == 1
    assert engine.show(run.run_id).status == "COMPLETED"


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
