"""A person asks the attempt that runs what it does: the lease has the request until then."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.manifest import Manifest, to_document
from leasehold.domain.manifest_parts import StackRequest
from leasehold.domain.notes import Notes, TakenStack
from leasehold.domain.status import Outcome
from leasehold.domain.stored import replace
from leasehold.errors import NotAllowedError
from tests.unit.domain.runs import At, Runs
from tests.worlds.builders import at_position


@pytest.fixture
def ask(runs: Runs, at: At) -> Callable[..., Change]:
    def asked(run: Manifest, *, after: float = 5, actor: str = "ada") -> Change:
        return lifecycle.request_stack(run, at(after), rules=runs.rules, actor=actor)

    return asked


def request_in(run: Manifest) -> StackRequest | None:
    assert run.position.lease is not None
    return run.position.lease.stack_request


def noted(run: Manifest, detail: str = "It is at shop.py:7 (charge).") -> Notes:
    request = request_in(run)
    assert request is not None
    return Notes(stack=TakenStack(request, detail, "the calls"))


def test_the_lease_has_the_request_and_nothing_else_is_changed(
    ask: Callable[..., Change], runs: Runs, at: At
) -> None:
    run = runs.leased()

    change = ask(run)

    assert (change.outcome, change.events) == (Outcome.STACK_REQUESTED, ())
    assert request_in(change.manifest) == StackRequest(actor="ada", at=at(5))
    assert change.manifest.alarm_at == run.alarm_at
    lease = change.manifest.position.lease
    assert lease is not None
    without = at_position(change.manifest, lease=replace(lease, stack_request=None))
    assert replace(without, updated_at=run.updated_at) == run


def test_a_second_request_before_the_answer_is_the_same(
    ask: Callable[..., Change], runs: Runs
) -> None:
    first = ask(runs.leased()).manifest

    second = ask(first, after=6, actor="bob")

    assert (second.changed, second.manifest) == (False, first)


def test_a_renewal_brings_the_answer_once(ask: Callable[..., Change], runs: Runs, at: At) -> None:
    run = ask(runs.leased()).manifest
    notes = noted(run)
    renew = partial(lifecycle.renew, rules=runs.rules, fence=runs.fence(run), notes=notes)

    answered = renew(run, at(10))
    again = renew(answered.manifest, at(20))

    (event,) = answered.events
    assert event.model_dump(by_alias=True, exclude_none=True) == {
        "type": "stack_taken",
        "at": at(10),
        "step": "draft",
        "trial": 1,
        "attempt": 1,
        "actor": "ada",
        "requestedAt": at(5),
        "detail": "It is at shop.py:7 (charge).",
        "stacks": "the calls",
    }
    assert request_in(answered.manifest) is None
    assert "stackRequest" not in to_document(answered.manifest)["position"]["lease"]
    assert again.events == ()


def test_an_old_answer_is_none_to_a_new_request(
    ask: Callable[..., Change], runs: Runs, at: At
) -> None:
    run = ask(runs.leased()).manifest
    renew = partial(lifecycle.renew, rules=runs.rules, fence=runs.fence(run), notes=noted(run))
    answered = renew(run, at(10)).manifest

    renewed = renew(ask(answered, after=11).manifest, at(20))

    assert renewed.events == ()
    assert request_in(renewed.manifest) == StackRequest(actor="ada", at=at(11))


def test_the_end_of_the_attempt_keeps_an_answer_that_is_there(
    ask: Callable[..., Change], runs: Runs, at: At
) -> None:
    run = ask(runs.leased()).manifest

    ended = lifecycle.complete(
        run,
        at(10),
        rules=runs.rules,
        fence=runs.fence(run),
        output=KeptValue(text="1"),
        notes=noted(run),
    )

    assert ended.outcome is Outcome.HANDED_OFF
    assert [event.type for event in ended.events] == ["stack_taken"]


def test_a_request_ends_with_its_lease(ask: Callable[..., Change], runs: Runs, at: At) -> None:
    run = ask(runs.leased()).manifest

    taken_over = runs.leased(run, at=31, lease_id="lease-2")

    assert taken_over.position.lease is not None
    assert taken_over.position.lease.lease_id == "lease-2"
    assert request_in(taken_over) is None


def _without_heartbeat(runs: Runs) -> Manifest:
    run = runs.leased()
    return at_position(run, dispatch=replace(run.position.dispatch, heartbeat_s=None))


def _cancelled(runs: Runs) -> Manifest:
    return lifecycle.cancel(
        runs.leased(), runs.at(1), rules=runs.rules, actor="ada", reason=""
    ).manifest


@pytest.mark.parametrize(
    ("state", "after", "words"),
    [
        (Runs.pending, 5, "it is PENDING; allowed when it is at work in an attempt."),
        (_cancelled, 5, "allowed when it is at work in an attempt."),
        (Runs.leased, 30, "its worker was last heard of at 2026-01-01T12:00:00+00:00."),
        (lambda runs: runs.elsewhere().leased(), 5, "a remote worker has it"),
        (_without_heartbeat, 5, "a step with a heartbeat, by which its worker hears of requests."),
    ],
)
def test_where_no_attempt_can_answer_it_is_refused(
    ask: Callable[..., Change], runs: Runs, state: Callable[[Runs], Any], after: float, words: str
) -> None:
    with pytest.raises(NotAllowedError) as refused:
        ask(state(runs), after=after)

    assert refused.value.message.startswith("Cannot take the stack of run r-1: it is ")
    assert words in refused.value.message
