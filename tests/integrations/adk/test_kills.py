"""Processes are killed in the middle of what an agent calls: what was under way is repeated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.domain.lifecycle import Operation
from leasehold.ports.documents import Documents
from leasehold.services.engine import Engine
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.read_runs import timeline_of
from tests.integrations.adk import answering
from tests.integrations.kills import Deeds, attempt, engine_of, settled, start
from tests.worlds.waiting import until

pytestmark = pytest.mark.sandboxed

#: To import the library takes each process two seconds.
KILLS = ["b", "model 3"]
ONCE = ["model 1", "a", "b", "c", "model 2", "model 3", "d", "model 4"]
#: The last one is how many events the session has in the end.
ANSWER = ["d of x after x", 8]


@pytest.fixture(scope="module")
def engine(documents: Documents, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine_of(answering, documents, tmp_path_factory.mktemp("artifacts")) as engine:
        yield engine


def test_a_kill_repeats_what_was_under_way(engine: Engine, tmp_path: Path) -> None:
    """A model call, and one of several tools at once: that a is recorded is awaited."""
    deeds = Deeds(tmp_path)
    deeds.kill_at(*KILLS)

    run = settled(engine, start(engine, "answers", {"folder": str(tmp_path)}))

    killed = [f"killed at {place}" for place in KILLS]
    assert Counter(deeds.done) == Counter([*ONCE, "b", "c", "model 3", *killed])
    assert (run.status, json.loads(run.steps["answer"].output or "")) == ("COMPLETED", ANSWER)


@pytest.mark.parametrize("documents", ["sqlite"], indirect=True)
def test_a_deploy_that_changes_the_prompt_asks_again_from_there_on(
    engine: Engine, tmp_path: Path
) -> None:
    """An answer to another prompt is none; tools that are asked the same are spared."""
    deeds = Deeds(tmp_path)
    deeds.kill_at("d")
    run_id = start(engine, "answers", {"folder": str(tmp_path)})
    attempt(engine, run_id)

    (tmp_path / "prompt").write_text("Be thorough")
    run = settled(engine, run_id)

    diverged = [each.detail for each in timeline_of(engine, run_id) if each.type == "call_diverged"]
    assert "another instructions" in str(diverged[0])
    again = ["model 1", "model 2", "killed at d", "d"]
    assert Counter(deeds.done) == Counter([*ONCE, *again])
    assert (run.status, json.loads(run.steps["answer"].output or "")) == ("COMPLETED", ANSWER)


@pytest.mark.parametrize("documents", ["sqlite"], indirect=True)
def test_a_tool_that_must_not_be_repeated_waits_for_a_person(
    engine: Engine, tmp_path: Path
) -> None:
    deeds = Deeds(tmp_path)
    deeds.kill_at("d")
    run_id = start(engine, "answers", {"folder": str(tmp_path), "on_unknown": {"d": "ask"}})
    attempt(engine, run_id)

    until(lambda: attempt(engine, run_id).status == "BLOCKED")
    operate(engine, run_id, OperationRequest(Operation.APPROVE, actor="ada", output="d by hand"))
    run = settled(engine, run_id)

    assert deeds.done.count("d") == 1
    assert json.loads(run.steps["answer"].output or "") == ["d by hand", 8]
