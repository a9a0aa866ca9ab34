"""The function derive_budgets: one derivation, which Cloud Scheduler has done each hour."""

from __future__ import annotations

import pytest

from leasehold.testing import InProcessEngine
from tests.api.functions.conftest import Function, function_of


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
