"""An output whose gates could not judge it was paid for: the handler is not called again for it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold import (
    GateContext,
    GateEntry,
    GatePolicyFailure,
    PermanentError,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
    StepResult,
    testing,
)
from leasehold.domain.manifest import Manifest
from leasehold.errors import StoreUnavailableError
from leasehold.registry.pipelines import Catalog
from leasehold.testing import FrozenClock, InProcessEngine, RemoteStep

#: What the gate does when it is asked the first time, and the calls so far, each by its run.
ENDS: dict[str, Callable[[], object]] = {}
ASKED: Counter[str] = Counter()


def write(ctx: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Note the call where another process can, and return an output of the size that is wanted."""
    with Path(given["calls"]).open("a") as calls:
        calls.write(f"{ctx.attempt}\n")
    return {"text": "x" * given["size"], "calls": given["calls"]}


def send(ctx: StepContext, given: dict[str, Any]) -> int:
    """Go on with the judged output."""
    return len(given["text"])


def judge(ctx: GateContext, output: dict[str, Any]) -> None:
    """End as the test wants it the first time; let the output pass from then on."""
    ASKED[ctx.run_id] += 1
    if ASKED[ctx.run_id] == 1:
        ENDS["now"]()


def entry(name: str, handler: str, **more: Any) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=handler,
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        **more,
    )


def catalog_of(home: str, **more: Any) -> Catalog:
    path = f"{__name__}:write"
    where = {"handler": "remote"} if home == "remote" else {"handler": path, "isolation": home}
    steps = [
        entry("write", gates=("judge",), max_retries=2, **where, **more),
        entry("send", f"{__name__}:send", isolation="inline"),
    ]
    return Catalog(
        Registry("dispatch", steps),
        Registry("pipelines", [PipelineEntry(name="report", steps=("write", "send"))]),
        Registry("gates", [GateEntry(name="judge", check=f"{__name__}:judge")]),
    )


def opened(home: str, folder: Path) -> Any:
    remote = {"write": write} if home == "remote" else None
    return testing.engine(catalog_of(home), folder, remote=remote)


def started(engine: InProcessEngine, folder: Path, size: int = 10) -> str:
    return engine.start("report", {"calls": str(folder / "calls"), "size": size}).run_id


def called(folder: Path) -> int:
    return len((folder / "calls").read_text().splitlines())


def fail(error: BaseException) -> None:
    raise error


@pytest.mark.sandboxed
@pytest.mark.parametrize("size", [10, 100_000], ids=["inline", "artifact"])
@pytest.mark.parametrize(
    ("home", "end"),
    [
        *(
            (home, end)
            for home in ("inline", "process")
            for end in ("raises", "outage", "deadline")
        ),
        ("remote", "raises"),  # in an outage its worker is told so, and sends the output again
        ("remote", "deadline"),
    ],
)
def test_a_gate_that_cannot_judge_at_first_has_no_handler_called_again(
    tmp_path: Path, home: str, end: str, size: int
) -> None:
    with opened(home, tmp_path) as engine:
        away = StoreUnavailableError(store="a service", problem="it is away")
        ENDS["now"] = {
            "raises": lambda: fail(RuntimeError("the gate has a bug")),
            "outage": lambda: fail(away),
            "deadline": lambda: engine.advance(150),
        }[end]
        run_id = started(engine, tmp_path, size)
        done = engine.run_until_settled(run_id)

    assert (done.status, done.steps["send"].output) == ("COMPLETED", str(size))
    assert (called(tmp_path), ASKED[run_id]) == (1, 2)


@pytest.mark.sandboxed
@pytest.mark.parametrize("home", ["inline", "process"])
def test_a_shutdown_during_a_gate_keeps_the_output(tmp_path: Path, home: str) -> None:
    is_asked, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        is_asked.set()
        go_on.wait(60)

    ENDS["now"] = wait
    with testing.engine(catalog_of(home), tmp_path, clock=FrozenClock(), workers=1) as stopped:
        run_id = started(stopped, tmp_path)
        assert is_asked.wait(60)
        stopped.drain(grace=0)
        released = stopped.show(run_id)
        go_on.set()

    with opened(home, tmp_path) as engine:
        engine.adopt_all()
        done = engine.run_until_settled(run_id)

    assert (released.status, released.position.attempts.interrupted) == ("PENDING", 1)
    assert done.status == "COMPLETED"
    assert (called(tmp_path), ASKED[run_id]) == (1, 2)


def given_up(engine: InProcessEngine, folder: Path) -> tuple[str, Manifest]:
    """A run whose gate raised for good."""
    ENDS["now"] = lambda: fail(PermanentError("the gate has a bug"))
    run_id = started(engine, folder)
    return run_id, engine.run_until_settled(run_id)


def test_a_run_that_its_gate_gave_up_is_judged_again_by_recreate(tmp_path: Path) -> None:
    with opened("inline", tmp_path) as engine:
        run_id, dead = given_up(engine, tmp_path)
        ENDS["now"] = lambda: None  # it is put right
        again = engine.recreate(run_id)
        done = engine.run_until_settled(again.run_id)
        calls = called(tmp_path)
        anew = engine.recreate(run_id, anew=True)
        engine.run_until_settled(anew.run_id)

    assert dead.dead_letter_reason == "PERMANENT_FAILURE"
    assert (done.status, calls) == ("COMPLETED", 1)
    assert called(tmp_path) == 2, "a person said --anew"


def test_a_gate_that_raises_again_and_again_uses_up_the_retries(tmp_path: Path) -> None:
    """The output was progress, so the retries count from there: one attempt and two retries."""

    def raise_again() -> None:
        ASKED.clear()
        raise RuntimeError("the gate has a bug")

    with opened("inline", tmp_path) as engine:
        ENDS["now"] = raise_again
        run_id = started(engine, tmp_path)
        dead = engine.run_until_settled(run_id)

    assert (dead.dead_letter_reason, dead.position.attempts.failed) == ("RETRIES_EXHAUSTED", 3)
    assert called(tmp_path) == 1


def test_a_gate_that_refuses_has_the_handler_called_again(tmp_path: Path) -> None:
    """Also where it could not judge before: what it refuses was judged."""
    refusal = GatePolicyFailure(check_id="short", finding="Too short.", remediation="Add to it.")
    ends = iter([RuntimeError("the gate has a bug"), refusal])

    def end() -> None:
        ASKED.clear()
        error = next(ends, None)
        if error is not None:
            raise error

    with opened("inline", tmp_path) as engine:
        ENDS["now"] = end
        run_id = started(engine, tmp_path)
        blocked = engine.run_until_settled(run_id)
        calls = called(tmp_path)
        engine.retry(run_id)
        done = engine.run_until_settled(run_id)

    assert (blocked.status, calls) == ("BLOCKED", 1)
    assert blocked.block is not None
    assert blocked.block.finding == "Too short."
    assert (done.status, called(tmp_path)) == ("COMPLETED", 2)


def test_an_output_that_says_error_is_no_work_to_keep(tmp_path: Path) -> None:
    """It fails the attempt, also where the model of a worker's output cannot be imported."""
    calls: list[int] = []

    def half_at_first(step: RemoteStep, given: Any) -> Any:
        calls.append(step.attempt)
        return StepResult("half", status="ERROR") if len(calls) == 1 else "whole"

    catalog = catalog_of("remote", output="no_such_module:Text")
    with testing.engine(catalog, tmp_path, remote={"write": half_at_first}) as engine:
        blocked = engine.run_until_settled(started(engine, tmp_path))

    assert (blocked.status, blocked.position.attempts.failed, len(calls)) == ("BLOCKED", 1, 2)
    assert blocked.steps["write"].output == '"whole"'
