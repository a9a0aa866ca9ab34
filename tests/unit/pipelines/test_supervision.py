"""Supervision: five looks at a digest, each kept, each with one call to the agent made once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from leasehold import AgentClientError, IncrementalState
from leasehold.testing import FrozenClock, InProcessEngine, step_context
from pipelines.review.local_agent import LocalAgent
from pipelines.review.models import Citation, Digest, Point
from pipelines.review.questions import Inspection, Objection
from pipelines.review.supervision import ASPECTS, PHASE, account, looks_at, objected
from tests.worlds.builders import environ_of

RENEW = "A worker must renew its lease."
DIGEST = Digest(
    agent="test",
    points=(
        Point(
            text=RENEW,
            citations=(Citation(claim="a.md:3", document="a.md", line=3, quote=RENEW),),
        ),
    ),
    summaries=(),
)


class CountingAgent:
    """Counts what it is asked, and answers the same to all of it."""

    def __init__(self, *objections: Objection) -> None:
        self.asked: list[str] = []
        self._objections = objections

    def objections(self, given: Inspection) -> Sequence[Objection]:
        self.asked.append(given.aspect)
        return self._objections


def test_each_look_is_a_checkpoint_with_one_call() -> None:
    agent = CountingAgent()

    with step_context() as ctx:
        looks = looks_at(ctx, agent, DIGEST)

    assert agent.asked == [look.aspect for look in looks] == list(ASPECTS)
    assert [kept.iteration_count for kept in ctx.recorded.checkpoints] == [1, 2, 3, 4, 5]
    assert {kept.phase for kept in ctx.recorded.checkpoints} == {PHASE}


def test_without_anything_to_check_no_model_is_asked() -> None:
    agent = CountingAgent()

    with step_context() as ctx:
        looks = looks_at(ctx, agent, DIGEST.model_copy(update={"points": ()}))

    assert (list(looks), agent.asked, ctx.recorded.checkpoints) == ([], [], [])


def test_an_attempt_that_comes_later_asks_what_was_not_asked() -> None:
    """The fifth call was made, too, and its worker was killed before the checkpoint."""
    with step_context() as first:
        looks_at(first, CountingAgent(), DIGEST)
    kept = first.recorded.checkpoints[3]
    last = {"aspect": ASPECTS[4], "attempt": 1, "objections": [{"point": 1, "reason": "No."}]}

    agents = [CountingAgent(), CountingAgent()]
    accounts = []
    for agent, calls in zip(agents, ({}, {f"{PHASE}:{ASPECTS[4]}": last}), strict=True):
        with step_context(attempt=2, resume=kept, calls=calls) as ctx:
            accounts.append(account(ctx, looks_at(ctx, agent, DIGEST)))

    assert [agent.asked for agent in agents] == [[ASPECTS[4]], []]
    assert [(each.calls, each.calls_before) for each in accounts] == [(5, 4), (5, 5)]
    assert {(each.iterations, each.attempts, each.trial) for each in accounts} == {(5, 2, 1)}


@pytest.mark.parametrize("point", [0, 2, -1, 10**30])
def test_an_objection_to_a_point_that_there_is_not_is_refused_and_not_kept(point: int) -> None:
    agent = CountingAgent(Objection(point=point, reason="No."))

    with step_context() as ctx, pytest.raises(AgentClientError) as refused:
        looks_at(ctx, agent, DIGEST)

    assert refused.value.code == "bad_objections"
    assert ctx.recorded.checkpoints == []


def test_a_point_is_objected_to_once_in_a_look_and_in_so_many_words() -> None:
    long = "so " * 5000
    agent = CountingAgent(Objection(point=1, reason="No."), Objection(point=1, reason=long))

    with step_context() as ctx:
        looks = looks_at(ctx, agent, DIGEST)
    findings = list(objected(looks, DIGEST))

    assert len(findings) == len(ASPECTS)
    assert all(len(each.message) < 400 for each in findings)


def test_a_checkpoint_of_another_kind_begins_it_anew() -> None:
    """As an earlier version may have left one, or that of the cached answers."""
    agent = CountingAgent()

    with step_context(attempt=2, resume=IncrementalState("answers", 4, {"k": "v"})) as ctx:
        looks = looks_at(ctx, agent, DIGEST)

    assert len(looks) == len(agent.asked) == 5


@pytest.mark.parametrize("kept", range(1, 6))
def test_a_kill_at_each_iteration_repeats_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    asked: Counter[str] = Counter()
    objections = LocalAgent.objections

    def counting(agent: LocalAgent, given: Inspection) -> Any:
        asked[given.aspect] += 1
        return objections(agent, given)

    monkeypatch.setattr(LocalAgent, "objections", counting)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\nA worker must renew its lease in time.\n")
    with InProcessEngine(clock=FrozenClock(), workers=0, environ=environ_of(tmp_path)) as engine:
        engine.faults.kill_at_checkpoint("review", n=kept)
        run_id = engine.start("review", {"folder": str(tmp_path / "docs")}).run_id

        run = engine.run_until_settled(run_id)
        made = engine.output(run_id, "review")["supervision"]
        types = [str(event.type) for event in engine.trace(run_id)]

    assert run.status == "COMPLETED"
    assert asked == dict.fromkeys(ASPECTS, 1)
    assert (made["calls"], made["callsBefore"], made["attempts"]) == (5, kept, 2)
    assert "checkpoint_resumed" in types
