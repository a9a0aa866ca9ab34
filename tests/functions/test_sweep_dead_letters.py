"""The sweep finds what nobody did, and does it."""

from __future__ import annotations

import pytest

from leasehold.testing import FrozenClock, InProcessEngine
from tests.functions.conftest import Function
from tests.in_process.sample import PIPELINES, STEPS

NOTHING = {
    "deadLettered": 0,
    "byReason": {},
    "recovered": 0,
    "redispatched": 0,
    "reannounced": 0,
    "archived": 0,
    "documentsRead": 0,
    "more": False,
}


@pytest.fixture
def long_ago(environ: dict[str, str]) -> InProcessEngine:
    """An engine whose time is past: what it leaves is overdue today."""
    return InProcessEngine(STEPS, PIPELINES, environ=environ, clock=FrozenClock(), workers=0)


def test_a_sweep_with_nothing_due_does_nothing(
    engine: InProcessEngine, sweep_dead_letters: Function
) -> None:
    engine.start("three", {"n": 1})

    assert sweep_dead_letters.post() == (200, NOTHING)


def test_a_dispatch_whose_task_is_lost_gets_a_new_one(
    long_ago: InProcessEngine, engine: InProcessEngine, sweep_dead_letters: Function
) -> None:
    """The queue of this process does not know the task of the other: it is lost."""
    with long_ago:
        run = long_ago.start("three", {"n": 1})

    answer = sweep_dead_letters.post()
    again = sweep_dead_letters.post()

    moved = engine.show(run.run_id)
    assert answer == (200, NOTHING | {"redispatched": 1, "documentsRead": 1})
    assert again == (200, NOTHING)
    assert (moved.status, moved.dispatch.generation) == ("PENDING", 2)
    assert [event.type for event in engine.trace(run.run_id)][-1] == "step_redispatched"


def test_more_due_runs_than_a_page_are_said_to_be_more(
    long_ago: InProcessEngine, sweep_dead_letters: Function
) -> None:
    with long_ago:
        for number in range(103):
            long_ago.start("three", {"n": number})

    first, second = sweep_dead_letters.post(), sweep_dead_letters.post()

    assert (first[1]["redispatched"], first[1]["more"]) == (100, True)
    assert (second[1]["redispatched"], second[1]["more"]) == (3, False)


def test_a_sweep_is_posted(sweep_dead_letters: Function) -> None:
    assert sweep_dead_letters.get("/")[0] == 405
