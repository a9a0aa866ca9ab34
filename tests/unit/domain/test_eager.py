"""The eager hand-off: the next lease in the commit of the output."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import Transition
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.dispatch import Rules, dispatch_in_request
from leasehold.domain.lease import Fence
from leasehold.domain.status import Outcome
from leasehold.domain.stored import replace
from tests.unit.domain.runs import At, Bound, Runs
from tests.worlds.builders import step_settings


@pytest.fixture
def complete(rules: Rules) -> Bound:
    return partial(
        lifecycle.complete,
        rules=rules,
        fence=Fence("lease-1", 1),
        output=KeptValue(text='"Dear Ada"'),
    )


@pytest.fixture
def eagerly(rules: Rules) -> Callable[[Transition], Transition]:
    return partial(lifecycle.then_arrive, rules=rules, lease_id="lease-2", holder="host-a")


def test_who_hands_a_step_off_has_the_next_one_in_the_same_commit(
    runs: Runs, complete: Bound, eagerly: Callable[[Transition], Transition], at: At
) -> None:
    change = eagerly(complete)(runs.leased(), at(5))

    run = change.manifest
    assert (change.outcome, run.status, run.current_step) == ("handed_off", "IN_PROGRESS", "send")
    assert (run.position.lease.lease_id, run.fencing_token, run.position.dispatch.generation) == (
        "lease-2",
        2,
        2,
    )
    assert (run.steps["draft"].handed_off_at, run.steps["send"].started_at) == (at(5), at(5))
    assert (run.position.last_settlement.lease_id, change.owed) == ("lease-1", ())


def test_a_run_that_was_paused_is_handed_off_and_left(
    runs: Runs, complete: Bound, eagerly: Callable[[Transition], Transition], at: At
) -> None:
    change = eagerly(complete)(runs.paused(runs.leased()), at(9))

    assert (change.outcome, change.manifest.position.lease) == (Outcome.HANDED_OFF, None)


def test_a_step_that_is_not_known_any_more_is_left_to_others(
    runs: Runs, eagerly: Callable[[Transition], Transition], at: At
) -> None:
    """Its attempt goes on later, and its handler cannot be called here."""
    nothing = runs.knowing_nothing()
    later = partial(lifecycle.continue_later, rules=nothing, fence=Fence("lease-1", 1))
    change = partial(lifecycle.then_arrive, rules=nothing, lease_id="lease-2", holder="host-a")(
        later
    )(runs.leased(), at(5))

    assert (change.outcome, change.manifest.position.lease) == (Outcome.CONTINUED, None)


def test_the_last_step_has_nothing_after_it(
    runs: Runs, complete: Bound, eagerly: Callable[[Transition], Transition], at: At
) -> None:
    run = runs.leased(runs.handed_off(), at=6, lease_id="lease-2")

    change = eagerly(partial(complete, fence=Fence("lease-2", 2)))(run, at(9))

    assert (change.outcome, change.manifest.position.lease) == (Outcome.COMPLETED, None)


def test_a_repeated_settlement_takes_no_second_lease(
    runs: Runs, complete: Bound, eagerly: Callable[[Transition], Transition], at: At
) -> None:
    """The task of the next step is owed, and may have been followed by another worker."""
    first = complete(runs.leased(), at(5)).manifest

    again = eagerly(complete)(first, at(6))

    assert (again.outcome, again.changed, again.manifest) == (Outcome.HANDED_OFF, False, first)


def test_a_repeated_settlement_leaves_the_lease_of_who_has_the_next_step(
    runs: Runs, complete: Bound, eagerly: Callable[[Transition], Transition], at: At
) -> None:
    """Its own lease ran out before the answer came, and another worker took the step over."""
    taken = runs.leased(complete(runs.leased(), at(5)).manifest, at=6, lease_id="lease-9")

    again = eagerly(complete)(taken, at(7))

    assert (again.changed, again.manifest) == (False, taken)


def test_in_the_time_of_a_request_the_next_step_follows_and_no_further_attempt_of_the_same(
    runs: Runs, complete: Bound, rules: Rules, at: At
) -> None:
    """A step that is continued has used up its time: the next attempt needs all of its own."""
    fence = Fence("lease-1", 1)
    later = partial(lifecycle.continue_later, rules=rules, fence=fence)
    facts = {"rules": rules, "lease_id": "lease-2", "holder": "host-a", "in_request": True}

    next_step = lifecycle.then_arrive(complete, **facts)(runs.leased(), at(1))
    same_step = lifecycle.then_arrive(later, **facts)(runs.leased(), at(1))

    assert (next_step.outcome, next_step.manifest.position.lease is None) == ("handed_off", False)
    assert (same_step.outcome, same_step.manifest.position.lease) == ("continued", None)


@pytest.mark.parametrize(
    ("timeout_s", "deadline_s", "left_s", "given"),
    [
        (60, 120, 90, (90, "request")),
        (60, 120, 89.9, None),  # half a minute is to be left behind its timeout
        (60, 600, 90, (90, "request")),  # and no more, however much its own deadline would leave
        (10, 20, 15, (15, "request")),  # or half of what that would leave
        (1, 20, 14, None),  # Cloud Tasks takes no such deadline
        (60, 120, 300, (120, "entry")),
    ],
)
def test_the_next_step_follows_where_the_rest_of_the_request_leaves_it_room(
    runs: Runs, timeout_s: int, deadline_s: int, left_s: float, given: tuple[int, str] | None
) -> None:
    own = replace(
        runs.pending().position.dispatch,
        timeout_ms=timeout_s * 1000,
        deadline_s=deadline_s,
        sources={"dispatchDeadline": "entry"},
    )

    found = dispatch_in_request(own, step_settings(), timedelta(seconds=left_s), task_of=7)

    if given is None:
        assert found is None
    else:
        assert found is not None
        assert (found.deadline_s, found.sources["dispatchDeadline"]) == given
        assert found.task_of == 7
