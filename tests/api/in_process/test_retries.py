"""How failed attempts are repeated: as the step says, as the error says, as the run says."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, field_serializer, field_validator

from leasehold import (
    AgentClientError,
    GateContext,
    GateEntry,
    PipelineEntry,
    Registry,
    RetryPolicy,
    StepContext,
    StepDispatchEntry,
)
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Attempts
from leasehold.errors import IdempotencyKeyReusedError, InvalidRequestError
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.start_run import StartRequest, start_run
from leasehold.testing import FrozenClock, InProcessEngine
from leasehold.worker.handler import handlers

pytestmark = pytest.mark.catalog(__name__)


class ClientError(Exception):
    """The error of a client library."""


class GoneError(ClientError):
    """A subclass of it."""


def fail(ctx: StepContext, given: Any) -> Any:
    """Fail in the way that is asked for."""
    match given:
        case "gone":
            raise GoneError("it is gone")
        case "code":
            raise AgentClientError("not yours", code="forbidden")
        case "busy":
            raise AgentClientError("busy", retry_after=timedelta(seconds=45))
        case "odd output":
            return ctx
    raise ValueError("no")


def misuse(ctx: StepContext, given: Any) -> Any:
    """Do what the engine refuses, whenever it is tried."""
    match given:
        case "not a number":
            return {"items": [{"score": 1.0}, {"score": float("nan")}]}
        case "too long a number":
            return {"items": [10**4300]}
        case "progress":
            ctx.progress(40)
        case "checkpoint":
            ctx.checkpoint(1, {"pages": [b"\xff"]})
        case "one key":
            ctx.once("ask", len, "a")
            ctx.once("ask", len, "ab")
        case "many calls":
            for number in range(101):
                ctx.once(f"ask {number}", len, "a")
        case "odd output":
            return ctx
    return None


async def fail_together(ctx: StepContext, given: Any) -> Any:
    """Fail in one of two tasks."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.sleep(60))
        tasks.create_task(_fail_later(ctx))


async def _fail_later(ctx: StepContext) -> None:
    await asyncio.sleep(0)
    raise GoneError("it is gone")


def refuse(ctx: GateContext, output: Any) -> None:
    """Fail as a gate."""
    raise GoneError("the checker is gone")


class Spoiled(BaseModel):
    """A model whose own code raises what pydantic does not expect."""

    n: int

    @field_validator("n")
    @classmethod
    def _check(cls, n: int) -> int:
        if n == 1:
            raise KeyError("no such unit")
        return n

    @field_serializer("n")
    def _write(self, n: int) -> int:
        raise ValueError("x" * 1_000_000 + f" {n}")


def spoil(ctx: StepContext, given: Any) -> Spoiled:
    """Return an output whose model fails."""
    return {"n": given}  # type: ignore[return-value] # what handlers do


POLICY = RetryPolicy(
    first=timedelta(seconds=3),
    factor=2,
    max=timedelta(seconds=5),
    non_retryable=(f"{__name__}:ClientError", "forbidden", "invalid_output"),
)


def _entry(name: str, handler: str, **limits: Any) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=handler,
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        **limits,
    )


STEPS = Registry(
    "dispatch",
    [
        _entry("fail", f"{__name__}:fail", retry=POLICY),
        _entry("fail_plainly", f"{__name__}:fail"),
        _entry("misuse", f"{__name__}:misuse"),
        _entry("fail_together", f"{__name__}:fail_together", retry=POLICY),
        _entry("pass", f"{__name__}:passing", retry=POLICY, gates=("refuse",)),
        _entry("spoil", f"{__name__}:spoil"),
        _entry("later", "handler_of_later:run"),
        _entry("guarded", f"{__name__}:passing", gates=("later",)),
    ],
)
GATES = Registry(
    "gates",
    [
        GateEntry(name="refuse", check=f"{__name__}:refuse"),
        GateEntry(name="later", check="handler_of_later:run"),
    ],
)
PIPELINES = Registry(
    "pipelines",
    [PipelineEntry(name=step.step_type, steps=(step.step_type,)) for step in STEPS],
)


def passing(ctx: StepContext, given: Any) -> Any:
    """Return what it is given."""
    return given


HANDLER = "handler_of_later"


@pytest.fixture
def deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Deploys a module, in place of the one before."""
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def put(source: str) -> None:
        (folder / f"{HANDLER}.py").write_text(source)
        forget_handlers()

    yield put
    forget_handlers()


def forget_handlers() -> None:
    """Let handlers be imported anew, as in a new process."""
    sys.modules.pop(HANDLER, None)
    for cached in vars(handlers).values():
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


def started(engine: InProcessEngine, pipeline: str, given: Any, **options: Any) -> str:
    request = StartRequest(pipeline, given, **options)
    return start_run(engine.engine, request).manifest.run_id


def ended(engine: InProcessEngine, pipeline: str, given: Any, **options: Any) -> Manifest:
    run_id = started(engine, pipeline, given, **options)
    engine.run_until_idle()
    return engine.show(run_id)


def wait_of(run: Manifest) -> timedelta:
    return run.position.dispatch.not_before - run.updated_at


def test_a_step_with_a_policy_waits_as_that_says(
    engine: InProcessEngine, clock: FrozenClock
) -> None:
    run = ended(engine, "fail", "plain")
    waits = []
    while not run.is_terminal:
        waits.append(wait_of(run).total_seconds())
        clock.advance(waits[-1])
        engine.run_until_idle()
        run = engine.show(run.run_id)

    assert waits == [3, 5, 5, 5, 5]
    assert run.dead_letter_reason == "RETRIES_EXHAUSTED"


@pytest.mark.parametrize(
    ("pipeline", "given", "kind"),
    [
        ("fail", "gone", "GoneError"),
        ("fail", "code", "AgentClientError"),
        ("fail_together", None, "ExceptionGroup"),
        ("pass", None, "GoneError"),
    ],
)
def test_what_a_policy_lists_is_not_retried(
    engine: InProcessEngine, pipeline: str, given: Any, kind: str
) -> None:
    """A subclass of a class, a code, a task, an error of a gate."""
    run = ended(engine, pipeline, given)

    assert run.dead_letter_reason == "PERMANENT_FAILURE"
    assert run.position.attempts.failed == 1
    assert run.error is not None
    assert (run.error.type, run.error.permanent) == (kind, True)


@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        ("not a number", "invalid_output", "output.items[1].score is NaN: JSON has no such number"),
        ("too long a number", "invalid_output", "output.items[0] is a number of more than 4,300 d"),
        ("odd output", "invalid_output", "output is of the class StepContext: JSON has no such"),
        ("progress", "invalid_request", "fraction is 40; allowed: a share from 0 to 1; of 100 it"),
        ("checkpoint", "invalid_request", "partial_results.pages[0] is of the class bytes"),
        ("one key", "call_key_reused", "give each call its own key"),
    ],
)
def test_a_mistake_of_a_handler_blocks_the_run_and_says_what_to_change(
    engine: InProcessEngine, clock: FrozenClock, given: str, code: str, says: str
) -> None:
    """It uses up nothing, and is not tried again by itself: each try may pay for something."""
    run = ended(engine, "misuse", given)
    clock.advance(3600)
    engine.run_until_idle()
    later = engine.show(run.run_id)

    assert (later.status, later.dead_lettered, later.position.attempts) == (
        "BLOCKED",
        False,
        Attempts(),
    )
    assert later.block is not None
    assert later.block.code == "handler_mistake"
    assert later.position.dispatch.generation == run.position.dispatch.generation
    assert run.error is not None
    assert run.error.code == code
    assert says in run.error.message


def test_more_calls_than_a_step_keeps_are_not_retried(
    engine: InProcessEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.attempt.recorded_calls.MAX_RESULTS_PER_STEP", 100)
    run = ended(engine, "misuse", "many calls")

    assert (run.dead_letter_reason, run.position.attempts.failed) == ("PERMANENT_FAILURE", 1)
    assert run.error is not None
    assert "a step keeps at most 100" in run.error.message


def test_an_error_may_say_when_to_come_again(engine: InProcessEngine, clock: FrozenClock) -> None:
    """It still counts as a retry, and what the backoff says is the least."""
    run = ended(engine, "fail_plainly", "busy")

    assert wait_of(run) == timedelta(seconds=45)
    assert run.position.attempts.failed == 1
    clock.advance(40)
    assert engine.run_until_idle() == 0
    for _ in range(4):
        clock.advance(300)
        engine.run_until_idle()
    assert wait_of(engine.show(run.run_id)) == timedelta(seconds=160)


def test_the_error_and_its_event_have_the_traceback(engine: InProcessEngine) -> None:
    run = ended(engine, "fail_plainly", "busy")

    event = next(event for event in engine.trace(run.run_id) if event.type == "step_error")
    assert run.error is not None
    assert run.error.origin == event.model_dump()["origin"]
    assert (run.error.origin or "").endswith("(fail)")
    assert 'raise AgentClientError("busy"' in (run.error.traceback or "")
    assert "leasehold/" not in (run.error.traceback or "")
    assert event.traceback == run.error.traceback


def test_the_traceback_of_a_task_that_failed_is_there(engine: InProcessEngine) -> None:
    error = ended(engine, "fail_together", None).error

    assert error is not None
    assert (error.origin or "").endswith("(_fail_later)")
    assert 'raise GoneError("it is gone")' in (error.traceback or "")


@pytest.mark.parametrize(
    ("given", "failed", "says"), [(1, 1, "no such unit"), (2, 0, "cannot be kept as JSON")]
)
def test_an_output_whose_model_raises_ends_its_attempt(
    engine: InProcessEngine, given: int, failed: int, says: str
) -> None:
    """The code of a model is the user's, too: it must not take the worker with it."""
    run = ended(engine, "spoil", given)

    assert run.position.attempts.failed == failed
    assert run.error is not None
    assert run.error.code == "invalid_output"
    assert says in run.error.message
    assert len(run.error.message) <= 4000


@pytest.mark.parametrize(
    "source",
    [
        "import no_such_module_anywhere\n",
        "def run(ctx, given:\n",
        "def other(ctx, given): pass\n",
        "run = 7\n",
        "def run(ctx): pass\n",
        "1 / 0\n",
        "raise SystemExit(3)\n",
    ],
)
@pytest.mark.parametrize("pipeline", ["later", "guarded"])
def test_a_handler_that_cannot_be_called_blocks_the_run_until_it_is_put_right(
    engine: InProcessEngine,
    clock: FrozenClock,
    deploy: Callable[[str], None],
    source: str,
    pipeline: str,
) -> None:
    """No attempt failed: it goes on where it stood, with its alarm, without a request."""
    deploy("def run(ctx, given): return given\n")
    run_id = started(engine, pipeline, {})
    deploy(source)
    engine.run_until_idle()
    blocked = engine.show(run_id)

    deploy("def run(ctx, given): return given\n")
    clock.advance(10)
    engine.run_until_idle()

    assert blocked.block is not None
    assert (blocked.status, blocked.block.code) == ("BLOCKED", "handler_unavailable")
    assert blocked.error is not None
    assert blocked.error.type == "HandlerNotFoundError"
    assert "does not resolve" in blocked.block.finding
    healed = engine.show(run_id)
    assert (healed.status, healed.position.attempts.ended) == ("COMPLETED", 0)


def test_an_engine_that_begins_looks_at_once_at_what_waits_for_other_code(
    engine: InProcessEngine, clock: FrozenClock, deploy: Callable[[str], None]
) -> None:
    """No sweep has come since its alarm."""
    deploy("def run(ctx, given): return given\n")
    run_id = started(engine, "later", {})
    deploy("run = 7\n")
    engine.run_until_idle()
    blocked = engine.show(run_id)

    deploy("def run(ctx, given): return given\n")
    clock.advance(10)
    engine.adopt_all()

    assert (blocked.status, engine.show(run_id).status) == ("BLOCKED", "PENDING")


def test_why_a_module_cannot_be_imported_is_told_whole(
    engine: InProcessEngine, deploy: Callable[[str], None]
) -> None:
    deploy("def run(ctx, given): return given\n")
    run_id = started(engine, "later", {})
    deploy("\nimport no_such_module_anywhere\n")
    engine.run_until_idle()

    error = engine.show(run_id).error

    assert error is not None
    assert error.origin == f"{HANDLER}.py:2 (<module>)"
    assert f'File "{HANDLER}.py", line 2, in <module>' in (error.traceback or "")
    assert "ModuleNotFoundError: No module named" in (error.traceback or "")
    assert "<frozen importlib" not in (error.traceback or "")


@pytest.mark.parametrize(
    ("pipeline", "error", "meanwhile"),
    [
        ("later", "OSError('the mount is away')", "BLOCKED"),
        ("later", "MemoryError()", "PENDING"),  # the machine's, not the module's: it is put off
        ("guarded", "OSError('the mount is away')", "BLOCKED"),
        ("guarded", "MemoryError()", "BLOCKED"),
    ],
)
def test_what_a_module_met_while_it_was_imported_may_be_over_the_next_time(
    engine: InProcessEngine,
    clock: FrozenClock,
    deploy: Callable[[str], None],
    pipeline: str,
    error: str,
    meanwhile: str,
) -> None:
    deploy("def run(ctx, given): return given\n")
    run_id = started(engine, pipeline, {})
    deploy(f"raise {error}\n")
    engine.run_until_idle()
    failed = engine.show(run_id)

    deploy("def run(ctx, given): return given\n")
    clock.advance(10)
    engine.run_until_idle()

    assert (failed.status, failed.position.attempts.failed) == (meanwhile, 0)
    assert engine.show(run_id).status == "COMPLETED"


def test_a_store_that_is_away_during_an_import_defers_the_attempt(
    engine: InProcessEngine, deploy: Callable[[str], None]
) -> None:
    deploy("def run(ctx, given): return given\n")
    run_id = started(engine, "later", {})
    deploy(
        "from leasehold.errors import StoreUnavailableError\n"
        "raise StoreUnavailableError(store='s', problem='away')\n"
    )

    engine.run_until_idle()

    run = engine.show(run_id)
    assert (run.position.attempts.deferred, run.position.attempts.failed) == (1, 0)


def test_a_run_without_retries_ends_at_the_first_failure(engine: InProcessEngine) -> None:
    run = ended(engine, "fail", "plain", max_retries=0)

    assert run.dead_letter_reason == "RETRIES_EXHAUSTED"
    assert (run.dead_letter_detail or "").startswith(
        "Step fail failed 1 of 1 times without progress; last: Value"
    )
    assert (run.position.dispatch.max_retries, run.position.dispatch.sources["maxRetries"]) == (
        0,
        "run",
    )


def test_a_run_keeps_how_often_it_is_retried_when_it_is_recreated(engine: InProcessEngine) -> None:
    run = ended(engine, "fail", "plain", max_retries=1)
    engine.engine.clock.advance(60)  # type: ignore[attr-defined] # it is frozen
    engine.run_until_idle()
    request = OperationRequest(Operation.RECREATE, actor="ada")

    change = operate(engine.engine, run.run_id, request)

    assert change.created is not None
    assert (change.created.max_retries, change.created.position.dispatch.max_retries) == (1, 1)


def test_a_key_is_not_used_again_with_another_number_of_retries(engine: InProcessEngine) -> None:
    started(engine, "fail", "plain", idempotency_key="k", max_retries=0)

    started(engine, "fail", "plain", idempotency_key="k", max_retries=0)
    with pytest.raises(IdempotencyKeyReusedError, match="another maxRetries"):
        started(engine, "fail", "plain", idempotency_key="k")


@pytest.mark.parametrize("count", [-1, 1001, True, "0", 0.5])
def test_a_number_of_retries_that_cannot_be_is_refused(engine: InProcessEngine, count: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"maxRetries is .* allowed: a whole number"):
        started(engine, "fail", "plain", max_retries=count)
