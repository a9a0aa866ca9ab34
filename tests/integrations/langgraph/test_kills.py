"""An agent or a graph goes on where its process was killed: what is recorded is not made again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from leasehold.ports.documents import Documents
from leasehold.services.engine import Engine
from tests.integrations.kills import Deeds, attempt, engine_of, settled, start
from tests.integrations.langgraph import catalog
from tests.integrations.langgraph.catalog import AT_ONCE, TURNS

pytestmark = pytest.mark.sandboxed

SEEN: Final = [f"{turn}.{number}" for turn in range(TURNS) for number in range(AT_ONCE)]
LOOKS: Final = [f"look {each}" for each in SEEN]
MODEL: Final = [f"model {turn}" for turn in range(TURNS + 1)]


@pytest.fixture(scope="module")
def engine(documents: Documents, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine_of(catalog, documents, tmp_path_factory.mktemp("artifacts")) as engine:
        yield engine


def made_again(deeds: Deeds) -> dict[str, int]:
    """Return the calls that were made more than once; check that none is missing."""
    made = Counter(deed for deed in deeds.done if deed.startswith(("model", "look")))
    assert set(made) == {*MODEL, *LOOKS}
    return {call: count for call, count in made.items() if count > 1}


@pytest.mark.parametrize(
    ("pipeline", "given"),
    [("agent", {}), ("agent", {"saver": True}), ("graph", {})],
    ids=["agent", "agent and saver", "graph and saver"],
)
def test_a_kill_repeats_what_was_under_way(
    engine: Engine, tmp_path: Path, pipeline: str, given: dict[str, Any]
) -> None:
    """In the middle of a model call, and of a batch of tools of which two were under way."""
    deeds, last = Deeds(tmp_path), AT_ONCE - 1
    deeds.kill_at("model 0", f"look 0.{last}", "model 1", f"look 1.{last}", "model 2")

    run = settled(engine, start(engine, pipeline, {"folder": str(tmp_path), **given}))

    assert json.loads(run.steps[pipeline].output or "")["seen"] == SEEN
    under_way = [f"look {turn}.{number}" for turn in range(TURNS) for number in (0, last)]
    assert made_again(deeds) == dict.fromkeys([*MODEL, *under_way], 2)
    if pipeline == "agent":
        spend = run.steps[pipeline].spend
        assert (spend.tokens, spend.usd) == (10 * len(MODEL), 0)
        assert run.steps[pipeline].bootstrap_seconds is not None


def test_after_a_deploy_that_changes_the_prompt_the_agent_begins_again(
    engine: Engine, tmp_path: Path
) -> None:
    """Its answers to another prompt do not count, nor the results of tools that they asked for."""
    deeds = Deeds(tmp_path)
    deeds.kill_at("model 1")
    run_id = start(engine, "agent", {"folder": str(tmp_path)})
    attempt(engine, run_id)

    (tmp_path / "prompt").write_text("In French:")
    run = settled(engine, run_id)

    output = json.loads(run.steps["agent"].output or "")
    assert output == {"said": f"In French: {TURNS} turns", "seen": SEEN}
    assert made_again(deeds) == dict.fromkeys(["model 0", *LOOKS[:AT_ONCE], "model 1"], 2)
