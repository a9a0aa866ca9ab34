"""An agent of Pydantic AI goes on where its process was killed, and pays for nothing again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.domain.lifecycle import Operation
from leasehold.ports.documents import Documents
from leasehold.services.engine import Engine
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.read_runs import get_run, timeline_of
from tests.integrations.kills import Deeds, attempt, engine_of, settled, start
from tests.integrations.pydantic_ai import catalog
from tests.worlds.waiting import until

pytestmark = pytest.mark.sandboxed

FETCHED = [f"fetch {page}" for page in range(catalog.AT_ONCE)]
EXPECTED = ["model 0", "search leases", "model 1", *FETCHED, "model 2"]
ANSWER = "Be brief. " + " ".join(f"page {page}" for page in range(catalog.AT_ONCE))


@pytest.fixture
def deeds(tmp_path: Path) -> Deeds:
    (tmp_path / "prompt").write_text("Be brief.")
    return Deeds(tmp_path)


@pytest.fixture(scope="module")
def engine(documents: Documents, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine_of(catalog, documents, tmp_path_factory.mktemp("artifacts")) as engine:
        yield engine


def test_an_agent_that_is_not_killed_makes_each_call_once(
    engine: Engine, deeds: Deeds, tmp_path: Path
) -> None:
    run = settled(engine, start(engine, "research", {"folder": str(tmp_path)}))

    assert json.loads(run.steps["research"].output or "") == ANSWER
    assert sorted(deeds.done) == sorted(EXPECTED)


@pytest.mark.parametrize(
    ("place", "repeated"),
    [("model 0", "model 0"), ("model 2", "model 2"), ("search", "search leases")],
)
def test_only_the_call_that_was_interrupted_is_made_again(
    engine: Engine, deeds: Deeds, tmp_path: Path, place: str, repeated: str
) -> None:
    deeds.kill_at(place)

    run = settled(engine, start(engine, "research", {"folder": str(tmp_path)}))

    assert json.loads(run.steps["research"].output or "") == ANSWER
    made = [deed for deed in deeds.done if not deed.startswith("killed")]
    assert sorted(made) == sorted([*EXPECTED, repeated])
    spend = run.steps["research"].spend
    assert spend is not None
    assert (spend.tokens, spend.usd) == (3 * 1_500, pytest.approx(3 * catalog.USD))


def test_of_a_batch_of_tools_only_those_under_way_are_called_again(
    engine: Engine, deeds: Deeds, tmp_path: Path
) -> None:
    deeds.kill_at("fetch 2", "fetch 5")

    run = settled(engine, start(engine, "research", {"folder": str(tmp_path)}))

    assert json.loads(run.steps["research"].output or "") == ANSWER
    for deed in ("model 0", "search leases", "model 1", "model 2"):
        assert deeds.done.count(deed) == 1
    assert set(FETCHED) <= set(deeds.done)


def test_what_a_deploy_asks_otherwise_is_asked_again_from_there_on(
    engine: Engine, deeds: Deeds, tmp_path: Path
) -> None:
    deeds.kill_at("model 2")
    run_id = start(engine, "research", {"folder": str(tmp_path)})
    attempt(engine, run_id)

    (tmp_path / "prompt").write_text("Be long.")
    run = settled(engine, run_id)

    assert json.loads(run.steps["research"].output or "") == ANSWER.replace("brief", "long")
    assert [deed for deed in deeds.done if deed.startswith("model")] == [
        *("model 0", "model 1", "model 2"),
        *("model 0", "model 1", "model 2"),
    ]
    assert deeds.done.count("search leases") == 1  # the model asks for it as before
    (event,) = [each for each in timeline_of(engine, run_id) if each.type == "call_diverged"]
    assert event.detail is not None
    assert event.detail.endswith("/1/model': another instructions")


def test_of_a_tool_that_must_not_be_repeated_a_person_says_what_became_of_it(
    engine: Engine, deeds: Deeds, tmp_path: Path
) -> None:
    deeds.kill_at("charge")
    run_id = start(engine, "pay", {"folder": str(tmp_path)})
    until(lambda: attempt(engine, run_id).status == "BLOCKED", 60)
    block = get_run(engine, run_id).block

    told = OperationRequest(Operation.APPROVE, actor="ada", output="charged by hand")
    operate(engine, run_id, told)
    run = settled(engine, run_id)

    assert block is not None
    assert block.code == "call_unconfirmed"
    assert "It was called with: usd=5." in block.finding
    assert json.loads(run.steps["pay"].output or "") == "charged by hand"
    assert deeds.done.count("charge 5") == 1
