"""The budget of a run that waits for lanes, on each store: all of them together stay within it."""

# ruff: noqa: F811 - the fixtures are those of test_children
from __future__ import annotations

from functools import partial
from random import Random

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.manifest import Manifest
from leasehold.domain.spend import Budget, total_of
from leasehold.domain.status import RunStatus
from leasehold.errors import BudgetUsedUpError
from leasehold.services.children_budget import share_again
from leasehold.services.engine import Engine
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run
from tests.conformance.test_children import (  # noqa: F401 - fixtures
    Queue,
    ask_by_alarm,
    drain,
    engine,
    lanes,
    queue,
    total,
)
from tests.worlds.catalogs.lists import COSTS, FAILS

pytestmark = pytest.mark.one_store

LANES = 4
PRICE = 10


def start(engine: Engine, name: str, count: int, tokens: int) -> Manifest:
    budget = Budget(tokens=tokens).as_limit()
    request = StartRequest("paid", {"name": name, "count": count}, budget=budget)
    return start_run(engine, request).manifest


def spent(engine: Engine, run: Manifest) -> int:
    return total_of(lane.spend for lane in lanes(engine, run)).tokens


def may_spend(engine: Engine, run: Manifest) -> int:
    """Return what all lanes together take at most, if each is at its end."""
    found = lanes(engine, run)
    over = [lane.spend.tokens for lane in found if lane.is_terminal]
    rest = [max(lane.budget.tokens, lane.spend.tokens) for lane in found if not lane.is_terminal]
    return sum(over) + sum(rest)


def resume(engine: Engine, run: Manifest, tokens: int | None) -> None:
    budget = None if tokens is None else Budget(tokens=tokens).as_limit()
    request = OperationRequest(lifecycle.Operation.RESUME, actor="ada", budget=budget)
    operate(engine, run.run_id, request)


@pytest.mark.parametrize("seed", range(4))
def test_lanes_together_may_never_spend_more_than_the_run(
    engine: Engine,
    queue: Queue,
    unique: str,
    seed: int,
) -> None:
    """In any order, with tasks that come twice: a lane that is through takes a share as well."""
    run = start(engine, unique, count=12, tokens=300)
    COSTS[unique, 0] = 90
    most: list[int] = []

    def note() -> bool:
        most.append(may_spend(engine, run))
        return False

    drain(engine, queue, until=note, chance=Random(seed))  # noqa: S311
    ask_by_alarm(engine, run)
    drain(engine, queue)

    assert max(most) <= 300 + 90  # the first call of a lane is not known before
    assert total(engine, run)[1] == 12
    assert get_run(engine, run.run_id).spend.tokens == 200


def test_a_lane_that_takes_items_takes_its_part_of_the_budget_too(
    engine: Engine, queue: Queue, unique: str
) -> None:
    run = start(engine, unique, count=40, tokens=400)
    drain(engine, queue, until=lambda: get_run(engine, run.run_id).is_resting)
    lane = lanes(engine, run)[0]

    take = partial(lifecycle.take_items, rules=engine.rules, run_id=f"l-{unique}", nonce="n")
    taken = engine.commit(lane.run_id, take).answer

    assert taken.created is not None
    budgets = [one.budget for one in (lane, taken.manifest, taken.created)]
    assert [budget and budget.tokens for budget in budgets] == [100, 50, 50]
    drain(engine, queue)


@pytest.mark.each_store
def test_what_lanes_leave_over_goes_to_those_that_want_more(
    engine: Engine,
    queue: Queue,
    unique: str,
) -> None:
    run = start(engine, unique, count=8, tokens=200)
    COSTS.update({(unique, 0): 60, (unique, 1): 60})  # of the first lane, whose share is 50

    drain(engine, queue)

    assert total(engine, run)[1] == 8
    assert get_run(engine, run.run_id).spend.tokens == 180


def test_what_a_waiting_lane_has_left_is_given_to_no_other(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """Each of four lanes may spend 50: one has spent 60, two 20, and one waits after 10."""
    run = start(engine, unique, count=8, tokens=200)
    COSTS[unique, 0] = 60

    def at_work() -> list[Manifest]:
        return [lane for lane in lanes(engine, run) if lane.spend.tokens == PRICE]

    drain(engine, queue, until=lambda: bool(at_work()))
    pause = OperationRequest(lifecycle.Operation.PAUSE, actor="ada")
    operate(engine, at_work()[0].run_id, pause)
    drain(engine, queue)

    spent = {lane.spend.tokens: lane.budget for lane in lanes(engine, run)}
    assert sorted(spent) == [10, 20, 70]
    assert spent[70] == Budget(tokens=60 + 200 - (60 + 2 * 20 + 10) - (50 - 10)).as_limit()


def test_lanes_that_begin_later_share_what_those_before_have_left(
    engine: Engine, queue: Queue, unique: str
) -> None:
    run, later = retried(engine, queue, unique, tokens=400)

    assert run.status is RunStatus.COMPLETED
    assert [lane.budget for lane in later] == [Budget(tokens=(400 - 8 * PRICE) // 3).as_limit()] * 3


def test_no_lane_follows_those_that_have_spent_the_budget(
    engine: Engine, queue: Queue, unique: str
) -> None:
    run, later = retried(engine, queue, unique, tokens=8 * PRICE)

    assert (run.status, run.block and run.block.code) == (RunStatus.BLOCKED, "budget_exceeded")
    assert later == []


def test_a_step_that_begins_anew_has_what_those_beside_it_have_left(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """A person cancels the one that failed, and retries the run, which lacks its output."""
    FAILS[unique], COSTS[unique, 7] = {7}, 40
    budget = Budget(tokens=200).as_limit()
    request = StartRequest("both", {"name": unique, "count": 7}, budget=budget)
    run = start_run(engine, request).manifest
    drain(engine, queue)
    (failed,) = [one for one in lanes(engine, run) if one.status is RunStatus.BLOCKED]
    operate(engine, failed.run_id, OperationRequest(lifecycle.Operation.CANCEL, actor="ada"))
    drain(engine, queue)
    before = {one.run_id for one in lanes(engine, run)}

    del FAILS[unique]
    operate(engine, run.run_id, OperationRequest(lifecycle.Operation.RETRY, actor="ada"))
    drain(engine, queue)

    (later,) = [one for one in lanes(engine, run) if one.run_id not in before]
    assert get_run(engine, run.run_id).status is RunStatus.COMPLETED
    assert later.budget == Budget(tokens=200 - 40).as_limit()


def retried(
    engine: Engine, queue: Queue, unique: str, tokens: int
) -> tuple[Manifest, list[Manifest]]:
    """Retry a run of eight items, three of which have failed; return it, and its later lanes."""
    FAILS[unique] = {1, 3, 6}
    budget = Budget(tokens=tokens).as_limit()
    request = StartRequest("paid-most", {"name": unique, "count": 8}, budget=budget)
    run = start_run(engine, request).manifest
    drain(engine, queue)
    before = {lane.run_id for lane in lanes(engine, run)}
    del FAILS[unique]
    operate(engine, run.run_id, OperationRequest(lifecycle.Operation.RETRY, actor="ada"))
    drain(engine, queue)
    later = [lane for lane in lanes(engine, run) if lane.run_id not in before]
    return get_run(engine, run.run_id), later


def test_a_run_whose_lanes_have_spent_its_budget_blocks_until_a_person_raises_it(
    engine: Engine,
    queue: Queue,
    unique: str,
) -> None:
    run = start(engine, unique, count=12, tokens=50)

    drain(engine, queue)

    blocked = get_run(engine, run.run_id)
    assert (blocked.status, blocked.block.code) == (RunStatus.BLOCKED, "budget_exceeded")
    assert 50 <= spent(engine, run) <= 50 + LANES * PRICE
    assert blocked.block.finding.startswith("The run and its children have spent ")
    for too_little in (None, 50):
        with pytest.raises(BudgetUsedUpError, match="tokens=100"):
            resume(engine, run, too_little)
    resume(engine, run, 1000)
    drain(engine, queue)
    ask_by_alarm(engine, run)
    drain(engine, queue)
    assert total(engine, run)[1] == 12


def test_a_pause_of_a_run_over_its_budget_is_heard_and_taken_back(
    engine: Engine,
    queue: Queue,
    unique: str,
) -> None:
    """A lane that has used up its share cannot go on when it hears the word: it waits on."""
    run = start(engine, unique, count=12, tokens=50)
    drain(engine, queue)
    operate(engine, run.run_id, OperationRequest(lifecycle.Operation.PAUSE, actor="ada"))
    assert {lane.paused for lane in lanes(engine, run) if not lane.is_terminal} == {True}

    resume(engine, run, 1000)
    drain(engine, queue)
    ask_by_alarm(engine, run)
    drain(engine, queue)

    assert total(engine, run)[1] == 12


@pytest.mark.each_store
def test_a_second_question_shares_nothing_twice_and_blocks_no_run_whose_lanes_go_on(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """Two ends at one moment ask twice, and the second question has seen the lanes before."""
    run = start(engine, unique, count=8, tokens=200)
    COSTS.update({(unique, 0): 60, (unique, 1): 60})
    drain(engine, queue, until=lambda: any(map(lifecycle.wants_budget, lanes(engine, run))))
    others = [lane.run_id for lane in lanes(engine, run) if lane.run_id != wanting(engine, run)]
    drain(engine, queue, until=lambda: all(get_run(engine, one).is_terminal for one in others))
    before = lanes(engine, run)
    shared = [share_again(engine, get_run(engine, run.run_id), before) for _ in range(2)]
    again = share_again(engine, get_run(engine, run.run_id), lanes(engine, run))

    assert [*shared, again] == ["", "", ""]
    assert may_spend(engine, run) <= 200
    drain(engine, queue)
    assert total(engine, run)[1] == 8


def wanting(engine: Engine, run: Manifest) -> str:
    return next(lane.run_id for lane in lanes(engine, run) if lifecycle.wants_budget(lane))
