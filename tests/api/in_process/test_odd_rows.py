"""One run whose row cannot be read: it is reported and left as it is, and all others go on."""

from __future__ import annotations

import functools
import json
import logging
import operator
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from leasehold.api.call_row import CallRequest
from leasehold.api.calls import overview
from leasehold.api.runs import RunsQuery
from leasehold.domain.lifecycle import Operation
from leasehold.errors import UnreadableRunError
from leasehold.remote_workers.claim_step import acquire_run
from leasehold.services.audit import audit
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.read_runs import RunFilter, list_runs
from leasehold.services.sweep import sweep
from leasehold.testing import FrozenClock, InProcessEngine
from tests.worlds.catalogs.sample import PIPELINES, STEPS
from tests.worlds.waiting import until

BODIES = {
    "no JSON": "{",
    "no object": "[]",
    "no run": "{}",
    "too deep": '{"a":' * 5000 + "1" + "}" * 5000,
    "a number of 5,000 digits": '{"shard": ' + "9" * 5000 + "}",
}


#: What a person may write into a run: the field, and what nothing can compute with or store.
EDITS = {
    "a deadline of 2**62 s": ("position.dispatch.deadlineS", 2**62),
    "a claim within 8,000 years": ("position.dispatch.scheduleToStartS", 253_402_300_799),
    "a limit of 10**30 ms": ("position.dispatch.timeoutMs", 10**30),
    "the last time": ("position.dispatch.notBefore", "9999-12-31T23:59:59.999999Z"),
    "a time before all": ("updatedAt", "0001-01-01T00:00:00Z"),
    "a shard of 40 digits": ("shard", 10**40),
    "a name of a mebibyte": ("pipeline", "x" * 2**20),
}


def spoil(folder: Path, run_id: str, body: str, alarm: str | None = None) -> None:
    """Write a body as no Leasehold would; with `alarm`, have it looked at from then on."""
    with sqlite3.connect(folder / "runs.db", timeout=10) as other:
        set_ = "body = ?, alarmAt = coalesce(?, alarmAt)"
        other.execute(f"UPDATE runs SET {set_} WHERE id = ?", (body, alarm, run_id))  # noqa: S608
    other.close()


def body_of(folder: Path, run_id: str) -> str:
    with sqlite3.connect(folder / "runs.db") as other:
        found = other.execute("SELECT body FROM runs WHERE id = ?", (run_id,)).fetchone()
    other.close()
    return str(found[0])


@pytest.mark.parametrize("body", BODIES)
def test_all_others_are_swept_listed_and_audited(
    engine: InProcessEngine,
    clock: FrozenClock,
    caplog: pytest.LogCaptureFixture,
    body: str,
    tmp_path: Path,
) -> None:
    odd, good = (engine.start("three", {"n": number}).run_id for number in (1, 2))
    spoil(tmp_path, odd, BODIES[body])
    clock.advance(timedelta(minutes=5))

    with caplog.at_level(logging.WARNING):
        swept = sweep(engine.engine)
        listed = [run.run_id for run in list_runs(engine.engine, RunFilter()).runs]
        found = {one.run_id: one.breaches[0].code for one in audit(engine.engine)}

    assert swept.documents_read == 2
    assert listed == [good]
    assert found[odd] == "unreadable"
    assert f"Run {odd} cannot be read by this version" in caplog.text
    assert body_of(tmp_path, odd) == BODIES[body]


@pytest.mark.parametrize("body", BODIES)
def test_all_others_are_taken_up_after_a_restart(
    environ: dict[str, str], clock: FrozenClock, tmp_path: Path, body: str
) -> None:
    with InProcessEngine(STEPS, PIPELINES, environ=environ, clock=clock, workers=0) as before:
        odd, good = (before.start("three", {"n": number}).run_id for number in (1, 2))
    spoil(tmp_path, odd, BODIES[body], alarm="soon")

    with InProcessEngine(STEPS, PIPELINES, environ=environ, clock=clock, workers=0) as after:
        assert after.adopt_all() == 1
        assert after.run_until_idle() == 1
        assert after.show(good).status == "COMPLETED"


@pytest.mark.parametrize("body", BODIES)
def test_what_is_asked_of_it_is_refused_and_writes_nothing(
    engine: InProcessEngine, tmp_path: Path, body: str
) -> None:
    odd = engine.start("three", {"n": 1}, idempotency_key="k").run_id
    spoil(tmp_path, odd, BODIES[body])

    for ask in (
        lambda: engine.show(odd),
        lambda: engine.trace(odd),
        lambda: engine.start("three", {"n": 1}, idempotency_key="k"),
        lambda: operate(engine.engine, odd, OperationRequest(Operation.CANCEL, "me")),
    ):
        with pytest.raises(UnreadableRunError, match="cannot be read by this version"):
            ask()

    assert body_of(tmp_path, odd) == BODIES[body]


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_number_or_time_keeps_no_other_run_from_being_swept_or_shown(
    engine: InProcessEngine, clock: FrozenClock, tmp_path: Path, edit: str
) -> None:
    odd, good = (engine.start("three", {"n": number}).run_id for number in (1, 2))
    document = json.loads(body_of(tmp_path, odd))
    *above, name = EDITS[edit][0].split(".")
    functools.reduce(operator.getitem, above, document)[name] = EDITS[edit][1]
    spoil(tmp_path, odd, json.dumps(document))
    clock.advance(timedelta(minutes=5))

    swept = sweep(engine.engine)
    shown = overview.answer(engine.engine, CallRequest(RunsQuery()))

    assert swept.documents_read == 2
    assert [one.run_id for one in shown.runs] == [good]
    with pytest.raises(UnreadableRunError, match=EDITS[edit][0]):
        engine.show(odd)


def test_the_timer_goes_on(threaded: Callable[..., InProcessEngine], tmp_path: Path) -> None:
    """The lease of the other run runs out, and only the timer looks for that."""
    with threaded(PIPELINE_LEASE_TTL_S="0.6", PIPELINE_HEARTBEAT_S="0.1") as engine:
        odd, good = (engine.start("away", {"n": number}).run_id for number in (1, 2))
        until(lambda: engine.show(odd).claimable and engine.show(good).claimable)
        spoil(tmp_path, odd, "{", alarm="2026-01-01T00:00:00.000000+00:00")
        acquire_run(engine.engine, good, "somebody")

        until(lambda: engine.show(good).position.lease is None)

        assert engine.show(good).position.attempts.expired == 1


def test_an_unreadable_run_is_reported_once(
    engine: InProcessEngine,
    clock: FrozenClock,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The sweep comes each second in one process, and each minute where functions are deployed."""
    odd = engine.start("three", {"n": 1}).run_id
    spoil(tmp_path, odd, "{")
    clock.advance(timedelta(minutes=5))

    for _ in range(60):
        clock.advance(timedelta(seconds=1))
        sweep(engine.engine)

    assert caplog.text.count(f"Run {odd} cannot be read") == 1

    clock.advance(timedelta(hours=1))
    sweep(engine.engine)

    assert caplog.text.count(f"Run {odd} cannot be read") == 2
