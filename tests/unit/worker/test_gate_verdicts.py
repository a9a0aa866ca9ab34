"""Outputs whose gate does not behave like a gate."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from leasehold import GateEntry, GatePolicyFailure, PermanentError
from leasehold.domain.result import Failed, Finished, Refused
from leasehold.testing import FrozenClock, InProcessEngine
from tests.worlds.builders import environ_of
from tests.worlds.catalogs.sample import PIPELINES, STEPS


class Inner(BaseModel):
    n: int


def odd_words(ctx: Any, output: Any) -> None:
    raise GatePolicyFailure(404, ["a"], None)  # type: ignore[arg-type]


def permanent(ctx: Any, output: Any) -> None:
    raise PermanentError("nobody can pass", code="impossible")


def misreads(ctx: Any, output: Any) -> None:
    Inner.model_validate({"n": "many"})


@pytest.fixture
def verdict(tmp_path: Any) -> Any:
    environ = environ_of(tmp_path)
    with InProcessEngine(
        STEPS, PIPELINES, environ=environ, clock=FrozenClock(), workers=0
    ) as engine:
        run = engine.start("three", {"n": 1})

        def of(check: Any) -> Any:
            gate = GateEntry(name="odd", check=f"{__name__}:{check.__name__}")
            return engine.engine.handlers.gates.run(gate, run, Finished('{"n":1}'))

        yield of


def test_words_that_are_not_text_block_all_the_same(verdict: Any) -> None:
    result = verdict(odd_words)

    assert isinstance(result, Refused)
    assert (result.found.check_id, result.found.finding) == ("404", "['a']")


def test_a_permanent_error_of_a_gate_is_one(verdict: Any) -> None:
    result = verdict(permanent)

    assert isinstance(result, Failed)
    assert result.permanent


def test_what_a_gate_misreads_is_its_own_failure(verdict: Any) -> None:
    result = verdict(misreads)

    assert isinstance(result, Failed)
    assert (result.permanent, result.error.code) == (False, "gate_raised")
