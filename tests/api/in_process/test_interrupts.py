"""Ctrl-C while the caller's thread runs a handler: the attempt is released, then it is raised."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from leasehold import (
    GateContext,
    GateEntry,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
    in_process,
)
from leasehold.domain.manifest import Manifest
from leasehold.testing import InProcessEngine
from tests.worlds.catalogs.sample import CALLS, Number, add
from tests.worlds.own_process import own_process

pytestmark = pytest.mark.catalog(__name__)


def _press(run_id: str) -> None:
    CALLS[run_id, "pressed"] += 1
    if CALLS[run_id, "pressed"] == 1:
        signal.raise_signal(signal.SIGINT)


def press(ctx: StepContext, given: Number) -> Number:
    """Be interrupted once, then add one."""
    _press(ctx.run_id)
    return add(ctx, given)


async def press_later(ctx: StepContext, given: Number) -> Number:
    """Be interrupted once, in a coroutine."""
    await asyncio.sleep(0)
    return press(ctx, given)


def press_in_a_loop(ctx: StepContext, given: Number) -> Number:
    """Be interrupted once at the fourth of six items."""
    items = ctx.checkpointed(range(6))
    for item in items:
        CALLS[ctx.run_id, f"item {item}"] += 1
        if item == 3:
            _press(ctx.run_id)
    return add(ctx, given)


def press_from_afar(ctx: StepContext, given: Number) -> Number:
    """Have the process that started the run told to end, once, from the handler's own."""
    if ctx.attempt == 1:
        os.kill(given.n, signal.SIGTERM)
        ctx.wait_or_shutdown(60)
    return given


def check(ctx: GateContext, output: Number) -> None:
    """Be interrupted once, then let all pass."""
    _press(ctx.run_id)


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=name,
            handler=handler,
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
            gates=gates,
        )
        for name, handler, gates in (
            ("press", f"{__name__}:press", ()),
            ("press_later", f"{__name__}:press_later", ()),
            ("press_in_a_loop", f"{__name__}:press_in_a_loop", ()),
            ("press_from_afar", f"{__name__}:press_from_afar", ()),
            ("gated", "tests.worlds.catalogs.sample:add", ("press",)),
        )
    ],
)
PIPELINES = Registry(
    "pipelines", [PipelineEntry(name=step.step_type, steps=(step.step_type,)) for step in STEPS]
)
GATES = Registry("gates", [GateEntry(name="press", check=f"{__name__}:check")])


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
