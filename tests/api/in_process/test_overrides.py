"""Overrides where they count: the dispatch that the next attempt gets, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold import (
    AgentClientError,
    Client,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
)
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.client.connection import EngineConnection
from leasehold.domain.manifest_parts import Dispatch
from leasehold.domain.override import override_ref
from leasehold.domain.stored import Write
from leasehold.errors import LeaseLostError
from leasehold.in_process import InProcessEngine as PlainEngine
from leasehold.registry.pipelines import Catalog
from leasehold.services.execute_step import Hint, arrive
from leasehold.testing import FrozenClock, InProcessEngine
from leasehold.testing import engine as open_engine

TIMEOUT, DEADLINE = "PIPELINE_THINK_TIMEOUT_MS", "PIPELINE_THINK_DEADLINE_S"


def think(ctx: StepContext, given: dict[str, Any]) -> dict[str, Any]:
    """Fail as often, and take as long, as ordered."""
    ctx.wait_or_shutdown(given.get("seconds", 0))
    if ctx.attempt <= given.get("fails", 0):
        raise AgentClientError("busy")
    return given


def _entry(name: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:think",
        agent_timeout=timedelta(seconds=600),
        dispatch_deadline=timedelta(seconds=900),
    )


STEPS = Registry("dispatch", [_entry("think"), _entry("rest")])
PIPELINES = Registry("pipelines", [PipelineEntry(name="thought", steps=("think", "rest"))])
CATALOG = Catalog(STEPS, PIPELINES)


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def engine(tmp_path: Path, warnings: list[str]) -> Iterator[InProcessEngine]:
    with open_engine(CATALOG, tmp_path, warn=warnings.append) as engine:
        yield engine


def set_(engine: PlainEngine, step: str = "think", hours: float = 2, **limits: Any) -> None:
    """Set an override as the API of this very process does."""
    until = engine.engine.clock.now() + timedelta(hours=hours)
    client = Client(EngineConnection(engine.engine), actor="ada")
    client.override(step, until=until, why="slow day", **limits)


def write(engine: PlainEngine, step: str = "think", **fields: Any) -> None:
    """Write a document as the console does, without notice to any process."""
    engine.engine.documents.transact(override_ref(step), lambda _, __: Write(None, fields))


def dispatched(engine: InProcessEngine, run_id: str) -> tuple[float, int, str, str]:
    return limits_of(engine.show(run_id).position.dispatch)


def limits_of(dispatch: Dispatch) -> tuple[float, int, str, str]:
    sources = dispatch.sources
    deadline_source = sources["dispatchDeadline"]
    return (
        dispatch.timeout_ms / 1000,
        dispatch.deadline_s,
        sources["agentTimeout"],
        deadline_source,
    )


OWN = (600, 900, "entry", "entry")


def test_a_run_is_dispatched_with_the_override_and_says_so(engine: InProcessEngine) -> None:
    set_(engine, timeout_s=1200, deadline_s=1500)

    run = engine.start("thought", {})

    assert dispatched(engine, run.run_id) == (1200, 1500, "override", "override")
    done = engine.run_until_settled(run.run_id)
    assert (done.status, dispatched(engine, run.run_id)) == ("COMPLETED", OWN)  # `rest` has none


def test_a_retry_has_the_override_of_meanwhile_and_the_attempt_before_had_not(
    engine: InProcessEngine,
) -> None:
    run = engine.start("thought", {"fails": 1})
    set_(engine, deadline_s=1500)
    before = dispatched(engine, run.run_id)

    engine.run_until_idle()

    assert before == OWN
    assert engine.show(run.run_id).status == "ERROR"
    assert dispatched(engine, run.run_id) == (600, 1500, "entry", "override")


def test_the_attempt_after_one_that_hung_has_the_override_of_meanwhile(
    engine: InProcessEngine,
) -> None:
    run = engine.start("thought", {"seconds": 1000})
    for step in ("think", "rest"):
        write(engine, step, deadlineS=1500, until=engine.clock.now() + timedelta(hours=1))

    done = engine.run_until_settled(run.run_id)

    assert done.status == "COMPLETED"
    assert [done.steps[step].attempts.failed for step in ("think", "rest")] == [1, 0]


def test_so_it_is_where_a_late_renewal_ends_the_attempt(engine: InProcessEngine) -> None:
    run = engine.start("thought", {})
    acquired = arrive(engine.engine, Hint(run.run_id, 1))
    attempt = engine.engine.leases.attempt_of(engine.engine, acquired)
    write(engine, deadlineS=1500, until=engine.clock.now() + timedelta(hours=1))

    with pytest.raises(LeaseLostError):  # noqa: PT012 - each renewal but the last one is in time
        while True:
            engine.clock.advance(10)  # type: ignore[attr-defined] # a FrozenClock
            attempt.renew()

    assert engine.show(run.run_id).status == "ERROR"
    assert dispatched(engine, run.run_id) == (600, 1500, "entry", "override")


def test_a_run_that_waits_is_dispatched_anew_by_a_pause_and_a_resume(
    engine: InProcessEngine,
) -> None:
    run = engine.start("thought", {})
    set_(engine, timeout_s=120)

    engine.pause(run.run_id)
    engine.resume(run.run_id)

    assert dispatched(engine, run.run_id) == (120, 900, "override", "entry")


def test_what_the_console_wrote_is_in_force_ten_seconds_later_at_the_latest(
    engine: InProcessEngine,
) -> None:
    first = engine.start("thought", {})
    write(engine, timeoutS=120, until=engine.clock.now() + timedelta(hours=1))
    at_once = engine.start("thought", {})
    engine.advance(10)
    later = engine.start("thought", {})

    assert dispatched(engine, first.run_id) == OWN
    assert dispatched(engine, at_once.run_id) == OWN
    assert dispatched(engine, later.run_id) == (120, 900, "override", "entry")


def test_an_override_ends_by_itself_in_the_middle_of_a_run(engine: InProcessEngine) -> None:
    set_(engine, hours=0.01, timeout_s=120)
    run = engine.start("thought", {"fails": 1, "seconds": 60})
    first = dispatched(engine, run.run_id)

    engine.run_until_idle()

    assert first == (120, 900, "override", "entry")
    assert engine.show(run.run_id).status == "ERROR"
    assert dispatched(engine, run.run_id) == OWN


def test_the_environment_goes_over_it(tmp_path: Path) -> None:
    with open_engine(CATALOG, tmp_path, settings={TIMEOUT: "60000"}) as engine:
        set_(engine, timeout_s=1200, deadline_s=1500)
        run = engine.start("thought", {})

        assert dispatched(engine, run.run_id) == (60, 1500, TIMEOUT, "override")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"timeoutS": "20 min", "until": "2027-01-01"}, "timeoutS is '20 min'"),
        ({"timeoutS": float("nan"), "until": "2027-01-01"}, "it cannot be read: it is not JSON"),
        ({"timeoutS": 1700, "until": "2027-01-01"}, "agent_timeout would be 0:28:20"),
        ({"timeoutMs": 60000, "until": "2027-01-01"}, "unknown field 'timeoutMs'"),
        ({"timeoutS": 60}, "until is missing"),
        ({}, "it sets no limit"),
        ({"timeoutS": 60, "until": {"seconds": 1}}, "until is {'seconds': 1}"),
    ],
)
def test_a_document_that_a_person_spoiled_breaks_no_dispatch_and_is_logged_once(
    engine: InProcessEngine, warnings: list[str], fields: dict[str, Any], says: str
) -> None:
    write(engine, **fields)

    for _ in range(3):
        run = engine.start("thought", {})
        assert dispatched(engine, run.run_id) == OWN
        assert engine.run_until_settled(run.run_id).status == "COMPLETED"
        engine.advance(20)

    (line,) = warnings
    assert line.startswith("overrides/think")
    assert says in line


def test_a_store_that_is_away_at_the_settlement_leaves_the_override_in_force(
    engine: InProcessEngine,
) -> None:
    set_(engine, timeout_s=120)
    run = engine.start("thought", {"fails": 1, "seconds": 12})
    engine.faults.store_away(15, step="think")

    engine.run_until_idle()

    assert engine.show(run.run_id).status == "ERROR"
    assert dispatched(engine, run.run_id) == (120, 900, "override", "entry")


def test_two_processes_on_one_file_see_the_same_override(tmp_path: Path) -> None:
    clock = FrozenClock(skips_waits=True)
    with (
        open_engine(CATALOG, tmp_path, clock=clock) as one,
        open_engine(CATALOG, tmp_path, clock=clock) as other,
    ):
        one.start("thought", {})
        set_(other, timeout_s=120)
        clock.advance(10)
        run = one.start("thought", {})

        assert dispatched(one, run.run_id) == (120, 900, "override", "entry")


def test_a_purge_and_an_audit_leave_overrides_alone(engine: InProcessEngine) -> None:
    set_(engine, timeout_s=120)
    run = engine.start("thought", {})
    engine.run_until_settled(run.run_id)

    assert engine.audit() == []
    engine.audit(repair=True)

    assert engine.engine.documents.get(override_ref("think")) is not None


def test_an_idle_engine_asks_for_no_overrides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    query = SqliteDocuments.query

    def counted(self: SqliteDocuments, what: Any) -> Any:
        asked.append(what.collection)
        return query(self, what)

    monkeypatch.setattr(SqliteDocuments, "query", counted)
    with open_engine(CATALOG, tmp_path) as engine:
        for _ in range(5):
            engine.run_until_idle()
            engine.sweep()
            engine.advance(60)

    assert "runs" in asked
    assert "overrides" not in asked
