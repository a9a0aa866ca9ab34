"""`ctx.map` on both stores, in a handler's own process: killed, short of time, and to its end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run

pytestmark = [
    pytest.mark.sandboxed,
    pytest.mark.one_store,
    pytest.mark.catalog(__name__, PIPELINE_MIN_BACKOFF_S="0.01"),
]

_ITEMS = 24
_AT_ONCE = 4
_WRITING = threading.Lock()


def maps(ctx: StepContext, given: Any) -> Any:
    """Map numbers; note each call in a file, and die in the middle of the tenth."""
    return ctx.map(_noting(ctx, given), range(_ITEMS), at_once=_AT_ONCE)


async def maps_in_a_loop(ctx: StepContext, given: Any) -> Any:
    """Do the same with threads of a loop."""
    return await ctx.amap(_noting(ctx, given), range(_ITEMS), at_once=_AT_ONCE)


def maps_slowly(ctx: StepContext, given: Any) -> Any:
    """Map more than an attempt has time for."""
    note = _noting(ctx, given)

    def slowly(number: int) -> int:
        time.sleep(1.0)
        return note(number)

    return ctx.map(slowly, range(_ITEMS), at_once=_AT_ONCE)


def maps_and_hangs(ctx: StepContext, given: Any) -> Any:
    """Map one item that hangs, and others that end soon after the soft limit."""

    def ask(number: int) -> int:
        time.sleep(5.0 if number else 60.0)
        return number

    return ctx.map(ask, range(_AT_ONCE), at_once=_AT_ONCE)


def _noting(ctx: StepContext, given: Any) -> Any:
    file = Path(given["file"])

    def note(number: int) -> int:
        with _WRITING, file.open("a") as calls:
            calls.write(f"{number}\n")
        if given.get("dies") and ctx.attempt == 1 and number == 9:
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGKILL)
        return 2 * number

    return note


def _step(handler: Any, timeout: float = 60, cleanup: float = 1) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=handler.__name__,
        handler=f"{__name__}:{handler.__name__}",
        agent_timeout=timedelta(seconds=timeout),
        dispatch_deadline=timedelta(seconds=120),
        cleanup_ttl=timedelta(seconds=cleanup),
    )


STEPS = Registry(
    "dispatch",
    [_step(maps), _step(maps_in_a_loop), _step(maps_slowly, 5), _step(maps_and_hangs, 8, 4)],
)
PIPELINES = Registry(
    "pipelines", [PipelineEntry(name=one.step_type, steps=(one.step_type,)) for one in STEPS]
)


@pytest.mark.parametrize("pipeline", ["maps", "maps_in_a_loop"])
def test_a_kill_repeats_the_calls_under_way_alone(
    engine: Engine, tmp_path: Path, pipeline: str
) -> None:
    file = tmp_path / "calls"
    given = {"file": str(file), "dies": True}
    run_id = start_run(engine, StartRequest(pipeline, given)).manifest.run_id

    outcomes = [execute_step(engine, Hint(run_id, generation)) for generation in (1, 2)]

    run, calls = get_run(engine, run_id), Counter(map(int, file.read_text().split()))
    assert outcomes == ["retry_scheduled", "completed"]
    assert run.steps[pipeline].output == f"[{','.join(str(2 * one) for one in range(_ITEMS))}]"
    assert sorted(calls) == list(range(_ITEMS))
    assert calls.total() <= _ITEMS + _AT_ONCE
    assert max(calls.values()) <= 2
    progress = run.steps[pipeline].progress
    assert progress is not None
    assert progress.message == f"{_ITEMS} of {_ITEMS}"


def test_a_longer_map_than_an_attempt_is_a_chain_of_attempts(
    engine: Engine, tmp_path: Path
) -> None:
    """Each ends between items, with all that was begun recorded."""
    file = tmp_path / "calls"
    run_id = start_run(engine, StartRequest("maps_slowly", {"file": str(file)})).manifest.run_id

    outcomes = []
    while not outcomes or outcomes[-1] == "continued":
        outcomes.append(execute_step(engine, Hint(run_id, len(outcomes) + 1)))

    run, calls = get_run(engine, run_id), Counter(map(int, file.read_text().split()))
    assert outcomes[-1] == "completed"
    assert len(outcomes) > 1
    assert run.position.attempts.failed == 0
    assert calls == dict.fromkeys(range(_ITEMS), 1)


def test_at_a_soft_limit_what_ends_within_the_clean_up_is_recorded(engine: Engine) -> None:
    """It is paid for, so the next attempt makes only the call that hung."""
    run_id = start_run(engine, StartRequest("maps_and_hangs", {})).manifest.run_id

    outcome = execute_step(engine, Hint(run_id, 1))

    run = get_run(engine, run_id)
    calls = run.steps["maps_and_hangs"].calls
    assert outcome == "retry_scheduled"
    assert run.error is not None
    assert run.error.code == "agent_timeout_exceeded"
    assert calls is not None
    assert calls.made == _AT_ONCE - 1
