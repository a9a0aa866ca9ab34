"""The figures of a store as Prometheus reads them, on both stores."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from leasehold.api.call_row import CallRequest
from leasehold.api.calls import metrics
from leasehold.api.metrics import metrics_text
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import run_ref
from leasehold.domain.stored import Ref, Write
from leasehold.registry.pipelines import NO_CATALOG
from leasehold.services.count_runs import Figures, RunCounts
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.start_run import StartRequest, start_run

pytestmark = pytest.mark.one_store

_LINE = re.compile(r"(\w+)(?:\{(\w+)=\"((?:[^\"\\\\\n]|\\\\.)*)\"\})? (\d+(?:\.\d+)?)")


def read(text: str) -> dict[str, float]:
    """Return the samples by name and value of the label; each family has its help and type."""
    found: dict[str, float] = {}
    family = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
        elif line.startswith("# TYPE "):
            assert line == f"# TYPE {family} gauge"
        else:
            sample = _LINE.fullmatch(line)
            assert sample is not None, line
            name, label, key, value = sample.groups()
            assert name == family
            found[f"{name} {key}" if label else name] = float(value)
    assert text.endswith("\n")
    return found


def asked(engine: Engine) -> dict[str, float]:
    return read(metrics.answer(engine, CallRequest(None)))


def begun(engine: Engine, pipeline: str = "three", **fields: Any) -> str:
    run_id = start_run(engine, StartRequest(pipeline, {"n": 1})).manifest.run_id

    def changed(found: Any, _: datetime) -> Write[None]:
        return Write(None, {**found, **fields})

    engine.documents.transact(run_ref(run_id), changed)
    return run_id


def growth(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    before, after = without_spend(before), without_spend(after)
    assert set(before) == set(after)
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


def without_spend(found: Mapping[str, float]) -> dict[str, float]:
    """Return the samples that are always there."""
    return {name: each for name, each in found.items() if not name.startswith("leasehold_spend")}


@pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="Prometheus is not installed; get it: apt install prometheus",
)
def test_prometheus_reads_the_text(engine: Engine) -> None:
    begun(engine)
    text = metrics.answer(engine, CallRequest(None))

    checked = subprocess.run(
        ["promtool", "check", "metrics"],  # noqa: S607 - on the path
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@pytest.mark.each_store
def test_what_happens_to_runs_is_counted(engine: Engine) -> None:
    before = asked(engine)

    begun(engine)
    execute_step(engine, Hint(begun(engine, "refuses"), 1))
    operate(engine, begun(engine), OperationRequest(Operation.CANCEL, "ann"))

    changed = growth(before, asked(engine))
    changed.pop("leasehold_oldest_due_alarm_seconds", None)
    assert changed == {
        "leasehold_runs pending": 1,
        "leasehold_runs dead_lettered": 1,
        "leasehold_dead_letters PERMANENT_FAILURE": 1,
        "leasehold_attempts failed": 1,
    }


def test_what_the_newest_runs_have_spent_is_counted_by_pipeline(engine: Engine) -> None:
    before = asked(engine)

    for spend in ({"tokens": 1_234_567, "usd": 0.25}, {"tokens": 3, "usd": 1.5}, "edited", None):
        begun(engine, steps={"add": {"status": "PENDING", "spend": spend}})
    begun(
        engine,
        steps={"add": {"status": "PENDING", "spend": {"tokens": 9, "usd": 2.0}}},
        spentBefore={"tokens": 9, "usd": 1.75},
    )

    after = asked(engine)
    spent = {
        name: value - before.get(name, 0.0)
        for name, value in after.items()
        if name.startswith("leasehold_spend")
    }
    assert spent == {
        "leasehold_spend_usd three": 2.0,
        "leasehold_spend_tokens three": 1_234_570,
    }


@pytest.mark.each_store
def test_runs_without_owner_or_alarm_are_counted(engine: Engine) -> None:
    long_past = engine.clock.now() - timedelta(hours=1)
    before = asked(engine)

    begun(engine, alarmAt=long_past)
    begun(engine, alarmAt=None)
    begun(engine, alarmAt=None, paused=True)
    begun(engine, alarmAt=None, status="COMPLETED")
    begun(engine, alarmAt=engine.clock.now() + timedelta(hours=1))

    after = asked(engine)
    unowned = {
        name.split()[1]: change
        for name, change in growth(before, after).items()
        if name.startswith("leasehold_unowned_runs")
    }
    assert unowned == {"overdue": 1, "no_alarm": 1}
    assert after["leasehold_oldest_due_alarm_seconds"] >= 3600


@pytest.mark.each_store
def test_deliveries_are_counted_by_their_outcome(engine: Engine, unique: str) -> None:
    before = asked(engine)

    for number, state in enumerate(("due", "announced", "given_up", "given_up")):
        document = {"state": state, "createdAt": engine.clock.now()}
        ref = Ref("deliveries", f"{unique}:{number}:log")
        engine.documents.transact(ref, lambda _, __, it=document: Write(None, it))

    assert {
        name: change
        for name, change in growth(before, asked(engine)).items()
        if name.startswith("leasehold_deliveries")
    } == {
        "leasehold_deliveries due": 1,
        "leasehold_deliveries announced": 1,
        "leasehold_deliveries given_up": 2,
    }


def test_the_bound_is_said_and_odd_runs_do_no_harm(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.services.count_runs.MAX_COUNTED", 2)
    for odd in ({"steps": []}, {"steps": {"add": {"attempts": {"failed": "x"}}}}, {"position": 1}):
        begun(engine, **odd)

    found = asked(engine)

    assert found["leasehold_counted_up_to"] == found["leasehold_runs pending"] == 2
    assert found["leasehold_newest_runs"] == 200


def test_without_a_catalog_all_but_the_attempts_are_known(engine: Engine) -> None:
    before = asked(engine)

    assert growth(before, asked(replace(engine, catalog=NO_CATALOG))).keys() <= {
        *(name for name in before if name.startswith("leasehold_attempts")),
        "leasehold_oldest_due_alarm_seconds",
    }


def test_a_label_can_be_any_text() -> None:
    figures = Figures(RunCounts({}, {'a"b\\c\nd': 1}, 1000), 0.0, {}, {}, {}, {})

    text = metrics_text(figures)

    assert r'leasehold_dead_letters{reason="a\"b\\c\nd"} 1' in text.splitlines()
