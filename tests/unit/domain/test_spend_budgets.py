"""A run whose budget is used up blocks between two calls, and goes on once it is given more."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.domain.notes import Notes
from leasehold.domain.spend import Budget, Spend, SpendLimit
from leasehold.domain.status import Outcome, Termination
from leasehold.errors import BudgetUsedUpError, NotAllowedError
from tests.unit.domain.runs import Runs

FIVE = SpendLimit(usd=5.0)
RUN_IS_OVER = "The run has spent 5.02 USD, 310k tokens of its budget of 5.00 USD."
SPENT = Spend(tokens=310_000, usd=5.02)


def begun(runs: Runs, budget: SpendLimit | None = FIVE) -> Manifest:
    """A run with a budget, whose step draft has a lease."""
    new = runs.new(budget=budget)
    return runs.leased(lifecycle.start(None, runs.at(0), rules=runs.rules, new=new).manifest)


def over(runs: Runs, run: Manifest, spend: Spend = SPENT, *, at: float = 5) -> Change:
    """Its attempt ends between two calls, having spent that."""
    return lifecycle.exceed_budget(
        run,
        runs.at(at),
        rules=runs.rules,
        fence=runs.fence(run),
        detail="So much.",
        notes=Notes(spent=spend),
    )


def resumed(runs: Runs, run: Manifest, budget: SpendLimit | None = None) -> Change:
    facts: dict[str, Any] = {"actor": "ada", "reason": "worth it", "budget": budget}
    return lifecycle.resume(run, runs.at(9), rules=runs.rules, **facts)


def with_step_budget(runs: Runs, budget: SpendLimit) -> Runs:
    draft, send = map(runs.rules.known_settings, ("draft", "send"))
    draft = replace(draft, options={**draft.options, "budget": budget})
    return replace(runs, rules=replace(runs.rules, settings_for={"draft": draft, "send": send}.get))


# -- the block -----------------------------------------------------------------------------------


def test_a_run_over_its_budget_blocks_without_a_failure_and_keeps_what_it_spent(
    runs: Runs,
) -> None:
    change = over(runs, begun(runs))

    run, block = change.manifest, change.manifest.block
    assert block is not None
    assert (change.outcome, run.status, run.alarm_at) == ("blocked", "BLOCKED", None)
    assert (block.code, block.finding, block.heals) == ("budget_exceeded", RUN_IS_OVER, False)
    assert "--budget usd=" in block.remediation
    assert (run.position.failures, run.steps["draft"].attempts.continued) == (0, 1)
    assert (run.spend, run.position.lease, change.owed) == (SPENT, None, ())
    assert [event.type for event in change.events] == ["step_continued", "budget_exceeded"]
    assert lifecycle.decisions(run) == (Operation.RESUME, Operation.CANCEL)


def test_a_child_is_given_a_share_of_its_parents_budget_once_for_each_block(runs: Runs) -> None:
    """The question that made the share may be answered late, once the child has spent it."""
    child = over(runs, begun(runs)).manifest
    generation = child.position.dispatch.generation
    give = partial(lifecycle.give_budget, rules=runs.rules, share=FIVE, generation=generation)
    given = give(child, runs.at(6)).manifest
    spent = over(runs, runs.leased(given, at=7, lease_id="lease-2"), at=8).manifest

    late = give(spent, runs.at(9))

    assert (given.status, given.budget) == ("PENDING", SpendLimit(usd=10.02))
    assert lifecycle.wants_budget(spent)
    assert (late.outcome, late.changed) == (Outcome.MOVED_ON, False)


def test_a_repeated_end_is_answered_as_the_first(runs: Runs) -> None:
    run = begun(runs)
    change = over(runs, run)

    fence = runs.fence(run)
    again = lifecycle.exceed_budget(
        change.manifest, runs.at(6), rules=runs.rules, fence=fence, detail="", notes=Notes()
    )

    assert (again.outcome, again.changed) == ("blocked", False)


def test_the_next_step_of_a_run_over_its_budget_does_not_begin(runs: Runs) -> None:
    run = begun(runs)
    change = lifecycle.complete(
        run,
        runs.at(5),
        rules=runs.rules,
        fence=runs.fence(run),
        output=KeptValue(text='"Dear Ada"'),
        notes=Notes(recorded_spend=SPENT),
    )

    run = change.manifest
    assert (change.outcome, run.status, run.position.step) == ("blocked", "BLOCKED", "send")
    assert (run.steps["draft"].status, run.steps["send"].status) == ("COMPLETED", "BLOCKED")
    assert run.steps["draft"].output == '"Dear Ada"'
    assert (run.announcement, change.events[-1].step) == (None, "send")
    arrived = lifecycle.arrive(
        run,
        runs.at(6),
        rules=runs.rules,
        generation=run.position.dispatch.generation,
        lease_id="lease-2",
        holder="host-b",
    )
    assert (arrived.outcome, arrived.changed) == ("blocked", False)


def test_a_failed_attempt_of_a_run_over_its_budget_is_not_repeated(runs: Runs) -> None:
    run = begun(runs)
    failed = lifecycle.fail(
        run,
        runs.at(5),
        rules=runs.rules,
        fence=runs.fence(run),
        error=runs.error(),
        notes=Notes(spent=SPENT),
    ).manifest

    assert (failed.status, failed.position.failures) == ("BLOCKED", 1)
    assert failed.block is not None
    assert failed.block.code == "budget_exceeded"


def test_a_run_that_ends_over_its_budget_is_completed(runs: Runs) -> None:
    run = runs.leased(runs.with_output(begun(runs), at=5), at=6, lease_id="lease-2")

    done = lifecycle.complete(
        run,
        runs.at(7),
        rules=runs.rules,
        fence=runs.fence(run),
        output=KeptValue(text='"sent"'),
        notes=Notes(spent=SPENT),
    )

    assert (done.manifest.status, done.manifest.spend) == ("COMPLETED", SPENT)


def test_an_output_that_was_not_judged_is_judged_over_the_budget_as_well(runs: Runs) -> None:
    """It was paid for, and a block would have a person approve what no gate has seen."""
    run = begun(runs)
    unable = runs.unable(run, output=KeptValue(text='"Dear Ada"'))
    run = runs.looked_at(unable.manifest, at=20, lease_id="lease-2")
    released = lifecycle.release(
        run,
        runs.at(21),
        rules=runs.rules,
        fence=runs.fence(run),
        reason=Termination.INSTANCE_SHUTDOWN,
        notes=Notes(spent=SPENT),
    )

    assert (released.manifest.status, released.manifest.spend) == ("PENDING", SPENT)


# -- its way back --------------------------------------------------------------------------------


def test_a_higher_budget_has_the_run_go_on_with_all_that_it_has(runs: Runs) -> None:
    blocked = over(runs, begun(runs, SpendLimit(usd=5.0, tokens=10**6))).manifest

    change = resumed(runs, blocked, SpendLimit(usd=10.0))

    run = change.manifest
    assert (change.outcome, run.status, run.block) == ("resumed", "PENDING", None)
    assert (run.budget, run.spend) == (SpendLimit(usd=10.0, tokens=10**6), SPENT)
    assert change.events[0].model_dump(include={"type", "actor", "budget"}) == {
        "type": "run_resumed",
        "actor": "ada",
        "budget": "10.00 USD",
    }
    assert len(change.owed) == 1


@pytest.mark.parametrize(
    ("budget", "example"), [(None, "usd=10"), (FIVE, "usd=10"), (SpendLimit(tokens=5), "usd=10")]
)
def test_too_low_a_budget_is_refused_and_the_line_says_what_to_give(
    runs: Runs, budget: SpendLimit | None, example: str
) -> None:
    blocked = over(runs, begun(runs)).manifest

    with pytest.raises(BudgetUsedUpError) as refused:
        resumed(runs, blocked, budget)

    line = str(refused.value)
    assert f"Run r-1 cannot go on: {RUN_IS_OVER.rstrip('.')}" in line
    assert f"`leasehold resume r-1 --budget {example}" in line
    assert "\n" not in line


def test_a_retry_does_not_get_round_the_budget(runs: Runs) -> None:
    blocked = over(runs, begun(runs)).manifest

    with pytest.raises(BudgetUsedUpError):
        lifecycle.retry(blocked, runs.at(9), rules=runs.rules, actor="ada", reason="")


def test_other_blocks_are_not_resumed(runs: Runs) -> None:
    with pytest.raises(NotAllowedError, match="paused, or blocked over its budget"):
        resumed(runs, runs.blocked(), SpendLimit(usd=10.0))


def test_a_run_that_is_blocked_and_paused_needs_one_resume(runs: Runs) -> None:
    blocked = over(runs, begun(runs)).manifest
    paused = runs.paused(blocked)

    run = resumed(runs, paused, SpendLimit(usd=10.0)).manifest

    assert (run.status, run.paused, run.block) == ("PENDING", False, None)


def test_a_budget_that_was_raised_meanwhile_blocks_nothing(runs: Runs) -> None:
    """The attempt saw the old one; a person paused and resumed the run while it was at work."""
    run = begun(runs)
    raised = resumed(runs, runs.paused(run), SpendLimit(usd=10.0)).manifest

    change = over(runs, raised, at=10)

    assert (change.outcome, change.manifest.status) == ("continued", "PENDING")


# -- the budget of a step ------------------------------------------------------------------------


def test_a_step_has_its_own_budget_over_all_its_attempts(runs: Runs) -> None:
    runs = with_step_budget(runs, SpendLimit(usd=6.0))
    once = over(runs, begun(runs, None))
    twice = over(runs, runs.leased(once.manifest, at=6, lease_id="lease-2"), at=7)

    assert (once.outcome, twice.outcome) == ("continued", "blocked")
    assert twice.manifest.block is not None
    assert twice.manifest.block.finding == (
        "Step draft has spent 10.04 USD, 620k tokens of its budget of 6.00 USD."
    )


def test_what_a_person_gives_a_run_its_step_may_spend(runs: Runs) -> None:
    runs = with_step_budget(runs, FIVE)
    blocked = over(runs, begun(runs, None)).manifest

    run = resumed(runs, blocked, SpendLimit(usd=10.0)).manifest
    again = over(runs, runs.leased(run, at=10, lease_id="lease-2"), at=11).manifest
    done = runs.with_output(runs.leased(run, at=10, lease_id="lease-2"), at=11)

    assert (run.status, run.budget) == ("PENDING", SpendLimit(usd=10.0))
    assert (again.status, again.spend.usd) == ("BLOCKED", 10.04)
    assert done.position.step_budget is None


def test_a_higher_budget_in_a_deploy_has_it_go_on_as_well(runs: Runs) -> None:
    strict = with_step_budget(runs, FIVE)
    blocked = over(strict, begun(strict, None)).manifest

    run = resumed(with_step_budget(runs, SpendLimit(usd=20.0)), blocked).manifest

    assert (run.status, run.position.dispatch.budget) == ("PENDING", SpendLimit(usd=20.0))


# -- a recreated run -----------------------------------------------------------------------------


def recreated(runs: Runs, run: Manifest, **how: Any) -> Manifest:
    new = runs.new("r-2", budget=run.budget)
    facts = {"rules": runs.rules, "actor": "ada", "reason": "", "new": new}
    created = lifecycle.recreate(run, runs.at(20), **facts, **how).created
    assert created is not None
    return created


def test_a_recreated_run_goes_on_with_the_spend_and_the_budget_of_the_work_that_it_keeps(
    runs: Runs,
) -> None:
    blocked = over(runs, begun(runs)).manifest
    cancelled = runs.cancelled(blocked)

    kept, anew = recreated(runs, cancelled), recreated(runs, cancelled, anew=True)

    assert (kept.spend, kept.spent_before, kept.budget) == (SPENT, SPENT, FIVE)
    assert (anew.spend, anew.spent_before, anew.budget) == (Spend(), None, FIVE)


# -- budgets as they are given -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "field", "allowed"),
    [
        (Budget(), "budget", "Budget(usd=…), Budget(tokens=…), or both"),
        (Budget(usd=0), "budget.usd", "a number of dollars above 0, at most 1,000,000"),
        (Budget(usd=-1), "budget.usd", "a number of dollars above 0, at most 1,000,000"),
        (Budget(usd=float("nan")), "budget.usd", "a number of dollars above 0, at most 1,000,000"),
        (Budget("5"), "budget.usd", "a number of dollars above 0, at most 1,000,000"),  # type: ignore[arg-type]
        (Budget(tokens=0), "budget.tokens", "a whole number of tokens above 0, at most "),
        (Budget(tokens=1.5), "budget.tokens", "a whole number of tokens above 0, at most "),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_a_budget_is_named(budget: Budget, field: str, allowed: str) -> None:
    ((found, _, words),) = budget.problems()

    assert found == field
    assert words.startswith(allowed)
