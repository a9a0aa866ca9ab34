"""Code of a project that its server leaves in odd places: each asks for that at its first call."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from leasehold import (
    GateContext,
    GateEntry,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
)
from leasehold.in_process import InProcessEngine
from tests.worlds.builders import environ_of

#: Longer than any test waits, and an end where it is not cut short.
_TOO_LONG_S = 20.0


def _leave_once(run_id: str) -> None:
    """Have the server leave, and wait for that; once a run."""
    file = Path(os.environ["EXITS_TEST_FOLDER"]) / run_id
    with contextlib.suppress(FileExistsError):
        file.touch(exist_ok=False)
        signal.raise_signal(signal.SIGQUIT)
        time.sleep(_TOO_LONG_S)
        file.write_text("went on")


def leaves(ctx: StepContext, given: Any) -> Any:
    _leave_once(ctx.run_id)
    return given


def leaves_by_an_error(ctx: StepContext, given: Any) -> Any:
    """Make another error of the exit."""
    try:
        _leave_once(ctx.run_id)
    except SystemExit:
        raise RuntimeError("it was cut short") from None
    return given


def leaves_after_a_run(ctx: StepContext, given: Any) -> Any:
    """Do so after two runs of its own engine, in this thread and in another one."""
    with TemporaryDirectory() as folder:
        environ = environ_of(Path(folder), LEASEHOLD_CATALOG=__name__)
        with InProcessEngine(environ=environ, workers=1) as engine:
            engine.run("passes")
            engine.wait(engine.start("passes").run_id)
    _leave_once(ctx.run_id)
    return given


def passes(_: StepContext, given: Any) -> Any:
    return given


def check(ctx: GateContext, _: Any) -> None:
    _leave_once(ctx.run_id)


def check_by_an_error(ctx: GateContext, given: Any) -> None:
    leaves_by_an_error(cast("StepContext", ctx), given)


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=name,
            handler=f"{__name__}:{handler}",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
            gates=gates,
            entry_actions=tuple(f"{__name__}:{action}" for action in actions),
        )
        for name, handler, gates, actions in (
            ("leaves", "leaves", (), ()),
            ("leaves_by_an_error", "leaves_by_an_error", (), ()),
            ("leaves_after_a_run", "leaves_after_a_run", (), ()),
            ("leaves_in_an_action", "passes", (), ("leaves",)),
            ("leaves_in_a_gate", "passes", ("leaves",), ()),
            ("leaves_in_a_gate_by_an_error", "passes", ("leaves_by_an_error",), ()),
            ("passes", "passes", (), ()),
        )
    ],
)
PIPELINES = Registry(
    "pipelines", [PipelineEntry(name=step.step_type, steps=(step.step_type,)) for step in STEPS]
)
GATES = Registry(
    "gates",
    [
        GateEntry(name="leaves", check=f"{__name__}:check"),
        GateEntry(name="leaves_by_an_error", check=f"{__name__}:check_by_an_error"),
    ],
)
