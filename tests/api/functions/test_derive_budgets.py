"""The function derive_budgets: one derivation, which Cloud Scheduler has done each hour."""

from __future__ import annotations

import pytest

from leasehold.services.derive_budgets import derive_and_report
from leasehold.services.derive_budgets import derive_budgets as derive
from leasehold.testing import InProcessEngine
from tests.worlds.functions import Function, function_of


def test_nothing_is_derived_where_no_step_asks_for_it(derive_budgets: Function) -> None:
    assert derive_budgets.post() == (200, {"derived": 0, "changed": [], "problems": {}})


def test_a_derivation_is_posted(derive_budgets: Function) -> None:
    assert derive_budgets.get("/")[0] == 405


def test_each_step_has_its_own_budget(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPELINE_LIMIT_STRATEGY", "propose")
    with InProcessEngine(environ=environ, workers=0) as engine:
        steps = list(engine.engine.catalog.steps)
    for function in function_of("derive_budgets"):
        answer = function.post()

    assert answer == (200, {"derived": len(steps), "changed": [], "problems": {}})


def test_steps_whose_turn_did_not_come_are_the_first_of_the_next_derivation(
    environ: dict[str, str],
) -> None:
    """A function is ended at its time limit: where a source is slow, the last would never come."""
    environ = {**environ, "PIPELINE_LIMIT_STRATEGY": "propose"}
    with InProcessEngine(environ=environ, workers=0) as engine:
        steps = [one.step_type for one in engine.engine.catalog.steps]
        turns = iter([False, True])
        first = derive_and_report(engine.engine, lambda: next(turns, True))

        then = derive(engine.engine)

    assert [one.step_type for one in first] == steps[:1]
    assert [one.step_type for one in then] == [*steps[1:], steps[0]]


def test_a_store_that_is_away_is_one_line_for_all_steps(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    environ = {**environ, "PIPELINE_LIMIT_STRATEGY": "propose"}
    with InProcessEngine(environ=environ, workers=0) as engine:
        parts = engine.engine
        steps = ", ".join(one.step_type for one in parts.catalog.steps)
    derive_and_report(parts)

    (line,) = [one.message for one in caplog.records if "budgets stay" in one.message]
    assert line.startswith(f"budgets stay as they are, of {steps}: The store ")
