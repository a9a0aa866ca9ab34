"""A load test whose connection fails on the way, and the percentiles that it reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold import Client
from leasehold.api import calls
from leasehold.budgets.phases import Phase
from leasehold.budgets.samples import AttemptSample, Outcome
from leasehold.client.connection import EngineConnection
from leasehold.client.load_test import Load, LoadLevel, figures_of, nearest_rank, put_load
from leasehold.errors import InvalidInputError, LeaseholdError, UnknownPipelineError
from leasehold.services.engine import Engine
from leasehold.testing import InProcessEngine
from tests.worlds.builders import environ_of
from tests.worlds.catalogs.sample import PIPELINES, STEPS

AT = datetime(2026, 6, 1, tzinfo=UTC)


@dataclass
class Refusing(EngineConnection):
    """A connection that refuses each start but the first ones."""

    engine: Engine
    left: int

    def __post_init__(self) -> None:
        super().__init__(self.engine)

    def call(self, row: Any, request: Any) -> Any:
        if row is calls.start:
            self.left -= 1
            if self.left < 0:
                raise InvalidInputError(pipeline="three", model="Number", problem="not any more")
        return super().call(row, request)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[InProcessEngine]:
    with InProcessEngine(STEPS, PIPELINES, environ=environ_of(tmp_path), workers=2) as engine:
        yield engine


def load_of(pipeline: str) -> Load:
    return Load("1", pipeline, {"n": 1}, rate=100, duration=timedelta(minutes=10))


def test_what_goes_wrong_after_the_first_start_ends_the_level_with_what_there_is(
    local: InProcessEngine,
) -> None:
    level = LoadLevel(1)

    put_load(Client(Refusing(local.engine, 3)), load_of("three"), level, lambda *_: None)

    assert "does not fit Number: not any more" in level.problem
    assert (level.started, level.ends, level.live) == (3, {"completed": 3}, {})
    assert {step: len(found) for step, found in level.samples.items()} == {
        "add": 3,
        "add_later": 3,
        "add_again": 3,
    }


@pytest.mark.parametrize(
    ("pipeline", "starts", "error"),
    [("three", 0, InvalidInputError), ("nope", 9, UnknownPipelineError)],
)
def test_a_first_run_that_cannot_be_started_is_an_error(
    local: InProcessEngine, pipeline: str, starts: int, error: type[LeaseholdError]
) -> None:
    level = LoadLevel(1)

    with pytest.raises(error):
        put_load(Client(Refusing(local.engine, starts)), load_of(pipeline), level, lambda *_: None)

    assert (level.started, level.problem) == (0, "")


def test_a_run_that_waits_for_a_person_is_not_waited_for(tmp_path: Path) -> None:
    with InProcessEngine(STEPS, PIPELINES, environ=environ_of(tmp_path), workers=0) as engine:
        client, level = Client(Refusing(engine.engine, 1)), LoadLevel(1)

        def pause(level: LoadLevel, _: float) -> None:
            for run_id in level.live:
                client.pause(run_id)

        put_load(client, Load("1", "three", {"n": 1}, 100, timedelta(seconds=1)), level, pause)

    assert level.ends == {"waiting for a person": 1}


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 0.5, None),
        ([7], 0.5, 7),
        ([7], 1, 7),
        ([1, 2, 3, 4], 0.5, 2),
        (list(range(1, 21)), 0.95, 19),
        (list(range(1, 21)), 0.99, 20),
        (list(range(1, 101)), 0.99, 99),
    ],
)
def test_a_percentile_is_the_smallest_value_that_its_share_does_not_pass(
    values: list[float], share: float, expected: float | None
) -> None:
    assert nearest_rank(values, share) == expected


def test_cold_and_warm_attempts_have_figures_apart_and_failures_have_none() -> None:
    def attempt(seconds: float, outcome: Outcome, *, cold: bool) -> AttemptSample:
        return AttemptSample(AT, outcome, 1, seconds, cold=cold)

    level = LoadLevel(1)
    level.samples["draft"] = [
        attempt(9, Outcome.SUCCESS, cold=True),
        attempt(2, Outcome.SUCCESS, cold=False),
        attempt(4, Outcome.SUCCESS, cold=False),
        attempt(30, Outcome.CLIPPED, cold=False),
        attempt(50, Outcome.FAILED, cold=False),
    ]
    level.samples["fail"] = [attempt(50, Outcome.FAILED, cold=False)]

    found = [
        (one.step, one.cold, one.complete, one.censored, one.p50, one.longest)
        for one in figures_of(level)
        if one.phase is Phase.EXECUTION
    ]

    assert found == [("draft", True, 1, 0, 9, 9), ("draft", False, 2, 1, 2, 4)]
