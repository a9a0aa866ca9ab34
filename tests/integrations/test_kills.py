"""Processes are killed in the middle of what an agent calls: what was under way is repeated."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.ports.documents import Documents
from leasehold.services.engine import Engine
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.read_runs import timeline_of
from tests.integrations.conftest import HERE
from tests.integrations.kills import Deeds, attempt, blocked, settled, start
from tests.worlds.engines import engine_on_store

pytestmark = [pytest.mark.sandboxed, pytest.mark.one_store]

#: The agent of the library whose environment this is.
answering: Final[Any] = importlib.import_module(f"tests.integrations.{HERE}.answering")
#: Where its process is killed, and what was under way there.
PLACES: Final = {"tool": ["d"], "model": ["model 2"], "batch": ["b", "c"]}
MODELS: Final = [f"model {turn}" for turn in range(1, answering.TURNS + 1)]
ONCE: Final = Counter([*MODELS, "a", "b", "c", "d"])
#: The first way to run the agent is killed at each place where a tool must not be repeated, and the
#: others at one place each: so the gate has all ways and all places.
FIRST: Final = answering.SPENDING[0]
PIPELINES: Final = [
    pytest.param(each.name, marks=[pytest.mark.nightly] if each.name == FIRST else [])
    for each in answering.PIPELINES
]
SPENDING: Final = [
    FIRST,
    *(pytest.param(name, marks=pytest.mark.nightly) for name in answering.SPENDING[1:]),
]
#: The gate kills in one library for it; in each, `test_changed_prompt.py` changes the prompt.
DEPLOYED: Final = [
    FIRST if HERE == "pydantic_ai" else pytest.param(FIRST, marks=pytest.mark.nightly),
    *SPENDING[1:],
]


@pytest.fixture(scope="module")
def engine(documents: Documents, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("artifacts")
    with engine_on_store(documents, folder, answering, LEASEHOLD_ISOLATION="") as engine:
        yield engine


def output_of(run: Manifest) -> object:
    assert run.status == "COMPLETED"
    return json.loads(run.steps[run.plan[0]].output or "")


def answer(prompt: str = "Be brief", d: str = "d of x") -> str:
    text: str = answering.ANSWER
    return text.format(prompt=prompt, d=d)


@pytest.mark.cover(1)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_kill_repeats_what_was_under_way(
    engine: Engine, tmp_path: Path, pipeline: str, place: str
) -> None:
    """In a tool, a model call and a batch of tools, of which one was recorded and two were not."""
    deeds, under_way = Deeds(tmp_path), PLACES[place]
    deeds.kill_at(under_way[0])

    run = settled(engine, start(engine, pipeline, {"folder": str(tmp_path)}))

    assert output_of(run) == answer()
    assert Counter(deeds.made) == ONCE + Counter(under_way)
    if pipeline in answering.SPENDING:
        assert_paid_once(run)


def assert_paid_once(run: Manifest) -> None:
    step = run.steps[run.plan[0]]
    assert step.spend is not None
    assert step.spend.tokens == answering.TOKENS * len(MODELS)
    assert step.spend.usd == pytest.approx(answering.USD * len(MODELS))
    assert step.bootstrap_seconds is not None


@pytest.mark.parametrize("pipeline", DEPLOYED)
def test_a_deploy_that_changes_the_prompt_asks_again_from_there_on(
    engine: Engine, tmp_path: Path, pipeline: str
) -> None:
    """An answer to another prompt is none."""
    deeds = Deeds(tmp_path)
    deeds.kill_at("d")
    run_id = start(engine, pipeline, {"folder": str(tmp_path)})
    attempt(engine, run_id)

    (tmp_path / "prompt").write_text("Be thorough")
    run = settled(engine, run_id)

    assert output_of(run) == answer(prompt="Be thorough")
    assert Counter(deeds.made) == ONCE + Counter(answering.AFTER_A_DEPLOY)
    diverged = [each.detail for each in timeline_of(engine, run_id) if each.type == "call_diverged"]
    assert f"another {answering.PROMPT}" in str(diverged[0])


@pytest.mark.parametrize("documents", ["sqlite"], indirect=True)
@pytest.mark.parametrize("pipeline", SPENDING)
def test_a_tool_that_must_not_be_repeated_waits_for_a_person(
    engine: Engine, tmp_path: Path, pipeline: str
) -> None:
    """After kills in a model call and in a batch of tools, which are repeated."""
    deeds = Deeds(tmp_path)
    deeds.kill_at("b", "model 2", "d")
    run_id = start(engine, pipeline, {"folder": str(tmp_path), "on_unknown": {"d": "ask"}})
    block = blocked(engine, run_id).block

    operate(engine, run_id, OperationRequest(Operation.APPROVE, actor="ada", output="d by hand"))
    run = settled(engine, run_id)

    assert block is not None
    assert block.code == "call_unconfirmed"
    assert "It was called with: of='x'." in block.finding
    assert output_of(run) == answer(d="d by hand")
    assert Counter(deeds.made) == ONCE + Counter(["b", "c", "model 2"])
    assert_paid_once(run)
