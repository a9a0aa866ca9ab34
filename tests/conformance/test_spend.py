"""Spend is kept through kills and blocks, on real stores, with handlers in real processes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from leasehold import StepContext
from leasehold.api import calls
from leasehold.api.call_row import CallRequest
from leasehold.api.operations import ResumeBody
from leasehold.api.runs import RunsQuery
from leasehold.attempt.attempt import Attempt
from leasehold.attempt.calls import AttemptCalls
from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.lease import fence_of
from leasehold.domain.ledger import ledger_ref
from leasehold.domain.manifest import Manifest
from leasehold.domain.spend import Spend, SpendLimit
from leasehold.domain.status import Outcome
from leasehold.domain.stored import replace
from leasehold.errors import BudgetUsedUpError, NothingToClaimError
from leasehold.remote_workers import calls as remote
from leasehold.remote_workers.calls import (
    CompleteBody,
    RecordCallBody,
    ReleaseBody,
    RenewBody,
)
from leasehold.remote_workers.claim_step import acquire_run
from leasehold.services.engine import Engine, change_run, find_run
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run
from tests.worlds.builders import at_position
from tests.worlds.waiting import until

pytestmark = [
    pytest.mark.sandboxed,
    pytest.mark.one_store,
    pytest.mark.catalog("tests.worlds.catalogs.spending"),
]


@pytest.fixture
def paid(tmp_path: Path) -> Path:
    return tmp_path / "paid"


def idle(engine: Engine, run_id: str) -> Manifest:
    """The run once it is over or blocked; each attempt begins as soon as it may."""

    def is_idle() -> bool:
        run = get_run(engine, run_id)
        if run.is_moving:
            execute_step(engine, Hint(run_id, run.position.dispatch.generation))
        return not get_run(engine, run_id).is_moving

    until(is_idle, 120)
    return get_run(engine, run_id)


def claimed(engine: Engine, budget: SpendLimit | None = None) -> tuple[str, dict[str, Any]]:
    """A run whose remote step a worker has claimed, and what that sends with each call."""
    run_id = start_run(engine, StartRequest("away", {}, budget=budget)).manifest.run_id
    run = acquire_run(engine, run_id, "vm-1").manifest
    assert run.position.lease is not None
    lease_id, token = run.position.lease.lease_id, run.fencing_token
    return run_id, {"runId": run_id, "leaseId": lease_id, "fencingToken": token}


def begin(engine: Engine, pipeline: str, budget: SpendLimit | None = None, **given: Any) -> str:
    given = given | {"paid": str(given["paid"])}
    return start_run(engine, StartRequest(pipeline, given, budget=budget)).manifest.run_id


def resume(engine: Engine, run_id: str, **body: Any) -> Any:
    request = CallRequest(ResumeBody.read(body), run_id=run_id, actor="ada")
    return calls.resume.answer(engine, request)


@pytest.mark.parametrize("pipeline", ["spends", "inline"])
def test_a_run_blocks_over_its_budget_and_goes_on_from_there(
    engine: Engine, paid: Path, pipeline: str
) -> None:
    run_id = begin(engine, pipeline, SpendLimit(usd=4.0), times=5, paid=paid)

    blocked = idle(engine, run_id)
    with pytest.raises(BudgetUsedUpError, match=r"spent 4\.50 USD, 3k tokens of its budget of 4"):
        resume(engine, run_id)
    resumed = resume(engine, run_id, budget={"usd": 20})
    done = idle(engine, run_id)

    assert blocked.block is not None
    assert (blocked.status, blocked.block.code) == ("BLOCKED", "budget_exceeded")
    assert (blocked.spend, blocked.position.failures) == (Spend(tokens=3000, usd=4.5), 0)
    assert (resumed.status, resumed.spend) == ("PENDING", Spend(tokens=3000, usd=4.5))
    assert (done.status, done.spend) == ("COMPLETED", Spend(tokens=5000, usd=7.5))
    assert paid.read_text().split() == ["0", "1", "2", "3", "4"]


def test_what_a_killed_attempt_spent_counts_for_the_next_one(engine: Engine, paid: Path) -> None:
    run_id = begin(engine, "spends", times=4, paid=paid, kill=True)

    done = idle(engine, run_id)
    ledger = engine.documents.get(ledger_ref(run_id))
    listed = calls.runs.answer(engine, CallRequest(RunsQuery(id_prefix=run_id)))

    assert (done.status, done.steps["spends"].attempts.failed) == ("COMPLETED", 1)
    assert done.steps["spends"].spend == Spend(tokens=4000, usd=6.0)
    assert [run.spend for run in listed.runs] == [Spend(tokens=4000, usd=6.0)]
    assert ledger is not None
    assert (ledger.document["usd"], ledger.document["tokens"]) == (6.0, 4000)


def test_a_step_over_its_own_budget_blocks_the_run(engine: Engine, paid: Path) -> None:
    run_id = begin(engine, "bounded", times=4, paid=paid)

    blocked = idle(engine, run_id)
    resume(engine, run_id, budget={"usd": 9})
    done = idle(engine, run_id)

    assert blocked.block is not None
    assert blocked.block.finding == (
        "Step spends-bounded has spent 4.50 USD, 3k tokens of its budget of 4.00 USD."
    )
    assert (done.status, done.spend.usd, done.budget) == ("COMPLETED", 6.0, SpendLimit(usd=9.0))


def test_the_next_step_waits_where_the_last_one_used_the_budget_up(
    engine: Engine, paid: Path
) -> None:
    """Its last amount comes with its output: there is no call that it could block at."""
    run_id = begin(engine, "calls", SpendLimit(usd=1.5), times=1, paid=paid)

    blocked = idle(engine, run_id)

    assert (blocked.status, blocked.position.step) == ("BLOCKED", "idle")
    assert blocked.budget == SpendLimit(usd=1.5, tokens=10**6)


def test_what_kills_did_not_cost_is_counted_beside_what_the_calls_cost(
    engine: Engine, paid: Path
) -> None:
    """Two kills: the second attempt is given two results, the third one all four."""
    run_id = begin(engine, "calls", times=4, paid=paid, kill=True)

    done = idle(engine, run_id)

    assert (done.status, done.steps["calls"].attempts.failed) == ("COMPLETED", 2)
    assert paid.read_text().split() == ["0", "1", "2", "3"]
    assert done.steps["calls"].spend == Spend(tokens=4000, usd=6.0)
    assert done.steps["calls"].spared == Spend(tokens=6000, usd=9.0)
    spared = "6 calls (9.00 USD, 6k tokens) were not paid for again after kills"
    assert done.cost_words == f"cost 6.00 USD, 4k tokens; {spared}"


def test_results_that_are_recorded_are_given_over_the_budget_and_no_further_call_is_made(
    engine: Engine, paid: Path
) -> None:
    run_id = begin(engine, "calls", SpendLimit(usd=3.0), times=4, paid=paid)

    blocked = idle(engine, run_id)
    resume(engine, run_id, budget={"usd": 6})
    done = idle(engine, run_id)

    assert (blocked.status, blocked.position.step, blocked.spend.usd) == ("BLOCKED", "calls", 3.0)
    assert paid.read_text().split() == ["0", "1", "2", "3"]
    assert done.steps["calls"].status == "COMPLETED"
    assert (done.status, done.position.step) == ("BLOCKED", "idle")  # 6.00 USD are spent by now
    assert done.spared.usd == 3.0


@pytest.mark.parametrize("usd", [4.0, 4.5])
def test_a_map_ends_with_its_siblings_recorded_where_the_budget_is_used_up(
    engine: Engine, paid: Path, usd: float
) -> None:
    """Three calls reach it exactly, or go over it: no other one begins."""
    run_id = begin(engine, "maps", SpendLimit(usd=usd), times=8, paid=paid)

    blocked = idle(engine, run_id)
    with pytest.raises(BudgetUsedUpError):
        resume(engine, run_id, budget={"usd": blocked.spend.usd})
    resume(engine, run_id, budget={"usd": 50})
    done = idle(engine, run_id)

    assert (blocked.status, blocked.position.failures) == ("BLOCKED", 0)
    assert blocked.spend.usd in (4.5, 6.0)  # one call may be under way beside the third
    assert (done.status, done.spend.usd) == ("COMPLETED", 12.0)
    assert sorted(paid.read_text().split()) == [str(number) for number in range(8)]


@pytest.mark.each_store
def test_what_a_killed_worker_recorded_and_did_not_count_the_next_one_counts(
    engine: Engine, paid: Path
) -> None:
    """A result has its own document: the run hears of its spend with the next write."""
    run_id = begin(engine, "calls", times=3, paid=paid)
    lost = at_work(engine, run_id)
    assert lost.once("call 0", paying(lost), 0) == 0
    unheard = get_run(engine, run_id)

    change_run(engine, run_id, without_time)
    done = idle(engine, run_id)

    assert (unheard.spend, unheard.position.recorded_calls) == (Spend(), 0)
    assert (done.status, paid.read_text().split()) == ("COMPLETED", ["1", "2"])
    assert done.steps["calls"].spend == Spend(tokens=3000, usd=4.5)
    assert done.steps["calls"].spared == Spend(tokens=1000, usd=1.5)


def at_work(engine: Engine, run_id: str) -> StepContext:
    """The context of an attempt whose worker writes nothing but what its handler records."""
    generation = get_run(engine, run_id).position.dispatch.generation
    facts = {"generation": generation, "lease_id": "lost", "holder": "vm-1"}
    engine.commit(run_id, partial(lifecycle.arrive, rules=engine.rules, **facts))
    known = find_run(engine, run_id)
    return StepContext(AttemptCalls(Attempt(engine, known, fence_of(known.manifest), patience=1)))


def paying(ctx: StepContext) -> Callable[[int], int]:
    def pay(number: int) -> int:
        ctx.spend(tokens=1000, usd=1.5)
        return number

    return pay


def without_time(run: Manifest, _: datetime) -> Change:
    assert run.position.lease is not None
    over = replace(run.position.lease, expires_at=run.position.lease.acquired_at)
    return Change(Outcome.RENEWED, at_position(run, lease=over))


# -- remote workers ------------------------------------------------------------------------------


def renewed(engine: Engine, body: dict[str, Any], **spent: Any) -> str | None:
    given = RenewBody.read({**body, "spent": spent})
    return remote.renew.answer(engine, CallRequest(given)).over_budget


def test_a_remote_worker_says_what_its_attempt_has_spent_and_repeats_it_freely(
    engine: Engine,
) -> None:
    run_id, lease = claimed(engine)

    for spent in ({"usd": 0.5}, {"usd": 0.5, "tokens": 900}, {"usd": 0.5, "tokens": 900}):
        assert renewed(engine, lease, **spent) is None
    body = CompleteBody.read({**lease, "output": 1, "spent": {"usd": 2, "tokens": 900}})
    for _ in range(2):
        remote.complete.answer(engine, CallRequest(body))

    assert get_run(engine, run_id).steps["away"].spend == Spend(tokens=900, usd=2.0)


def test_a_remote_worker_hears_that_the_budget_is_used_up_and_its_release_blocks_the_run(
    engine: Engine,
) -> None:
    run_id, lease = claimed(engine, SpendLimit(usd=4.0))

    assert renewed(engine, lease, usd=3) is None
    assert renewed(engine, lease, usd=4.5) == (
        "The run has spent 4.50 USD of its budget of 4.00 USD."
    )
    released = ReleaseBody.read({**lease, "continued": True, "spent": {"usd": 5}})
    answer = remote.release.answer(engine, CallRequest(released))

    run = get_run(engine, run_id)
    assert (answer.outcome, run.status, run.spend.usd) == ("blocked", "BLOCKED", 5.0)
    with pytest.raises(NothingToClaimError):
        acquire_run(engine, run_id, "vm-2")


@pytest.mark.each_store
def test_a_call_that_a_remote_worker_records_twice_is_paid_once(engine: Engine) -> None:
    run_id, lease = claimed(engine, SpendLimit(usd=1.0))

    recorded = {**lease, "key": "ask", "result": "so", "spent": {"usd": 1.25, "tokens": 40}}
    body = RecordCallBody.read(recorded)
    answers = [remote.record_call.answer(engine, CallRequest(body)) for _ in range(2)]

    sentence = "The run has spent 1.25 USD, 40 tokens of its budget of 1.00 USD."
    assert [answer.over_budget for answer in answers] == [sentence, sentence]
    assert get_run(engine, run_id).spend == Spend(tokens=40, usd=1.25)


def test_each_attempt_of_a_remote_worker_begins_to_count_anew(engine: Engine) -> None:
    run_id, lease = claimed(engine)
    renewed(engine, lease, usd=1)
    remote.release.answer(engine, CallRequest(ReleaseBody.read({**lease, "spent": {"usd": 2}})))

    run = acquire_run(engine, run_id, "vm-2").manifest
    assert run.position.lease is not None
    again = {**lease, "leaseId": run.position.lease.lease_id, "fencingToken": run.fencing_token}
    renewed(engine, again, usd=1.5)

    assert get_run(engine, run_id).spend == Spend(usd=3.5)
