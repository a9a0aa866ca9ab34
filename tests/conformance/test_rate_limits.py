"""A provider that takes no more for now (429, Retry-After) uses up no retry, within a bound."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from leasehold import (
    AgentClientError,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
    testing,
)
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import RateLimits
from leasehold.registry.pipelines import Catalog
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.read_runs import get_run, timeline_of
from leasehold.services.start_run import StartRequest, start_run
from leasehold.testing import FrozenClock

pytestmark = [
    pytest.mark.one_store,
    pytest.mark.catalog(__name__, PIPELINE_MIN_BACKOFF_S="0.01", PIPELINE_MAX_RETRIES="0"),
]


class Answer:
    """The answer of a provider, as client libraries have it."""

    status_code = 429

    def __init__(self, after: float) -> None:
        self.headers = {"retry-after": f"{after}"}


class BusyError(Exception):
    """The error of a client library."""

    def __init__(self, after: float) -> None:
        super().__init__("too many requests")
        self.response = Answer(after)


def ask(ctx: StepContext, given: Any) -> Any:
    """Be refused as often, and for as long, as is said; keep an iteration before that."""
    if ctx.attempt <= given.get("progresses", 0):
        ctx.checkpoint(ctx.attempt, [])
    if ctx.attempt > given["times"]:
        return ctx.attempt
    if given.get("translates"):
        raise AgentClientError("busy", code="rate_limited", retry_after=given["after"])
    raise BusyError(given["after"])


def _step(name: str, **fields: Any) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:ask",
        agent_timeout=timedelta(seconds=60),
        dispatch_deadline=timedelta(seconds=120),
        **fields,
    )


STEPS = Registry("dispatch", [_step("sandboxed"), _step("ask", isolation="inline")])
PIPELINES = Registry(
    "pipelines", [PipelineEntry(name=step.step_type, steps=(step.step_type,)) for step in STEPS]
)


@pytest.mark.sandboxed
@pytest.mark.parametrize("pipeline", ["sandboxed", "ask"])
def test_it_uses_up_no_retry(engine: Engine, pipeline: str) -> None:
    run_id = start_run(engine, StartRequest(pipeline, {"times": 2, "after": 0.02})).manifest.run_id

    outcomes = [execute_step(engine, Hint(run_id, generation)) for generation in (1, 2, 3)]

    run = get_run(engine, run_id)
    assert outcomes == ["retry_scheduled", "retry_scheduled", "completed"]
    assert (run.position.attempts.deferred, run.position.attempts.failed) == (2, 0)
    assert run.position.failures == 0
    assert run.position.rate_limits is not None
    assert run.position.rate_limits.count == 2
    errors = [one for one in timeline_of(engine, run_id) if one.type == "step_error"]
    assert [one.model_dump(by_alias=True)["retryAfterS"] for one in errors] == [0.02, 0.02]


def limited(clock: FrozenClock, given: dict[str, Any]) -> Manifest:
    """Return a run of one retry, in time that its waits move."""
    with testing.engine(Catalog(steps=STEPS, pipelines=PIPELINES), clock=clock) as engine:
        run = engine.start("ask", {"after": 30, **given}, max_retries=1)
        return engine.run_until_settled(run.run_id)


@pytest.mark.parametrize("translates", [False, True])
def test_one_that_never_takes_more_ends_the_run(translates: bool) -> None:
    """It puts the step off for no longer than its dispatch deadline: 30, 30 and 40 s of 120."""
    clock = FrozenClock(skips_waits=True)
    begun = clock.now()

    run = limited(clock, {"times": 100, "translates": translates})

    assert run.dead_letter_reason == "RETRIES_EXHAUSTED"
    assert (run.position.attempts.deferred, run.position.attempts.failed) == (3, 2)
    assert run.position.rate_limits == RateLimits(count=3, waited_s=100)
    assert clock.now() - begun == timedelta(seconds=100 + 30)


def test_progress_in_between_gives_the_step_all_of_that_time_back() -> None:
    run = limited(FrozenClock(skips_waits=True), {"times": 8, "progresses": 8})

    assert run.status == "COMPLETED"
    assert (run.position.attempts.deferred, run.position.attempts.failed) == (8, 0)


def test_a_longer_wait_than_the_dispatch_deadline_is_a_failure_that_waits() -> None:
    clock = FrozenClock(skips_waits=True)
    begun = clock.now()

    run = limited(clock, {"times": 1, "after": 300})

    assert run.status == "COMPLETED"
    assert (run.position.attempts.deferred, run.position.attempts.failed) == (0, 1)
    assert clock.now() - begun == timedelta(seconds=300)
