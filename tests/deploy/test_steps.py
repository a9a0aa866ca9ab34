"""How resources are gone through: what fails, waits or is not there yet stops nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from google.api_core.exceptions import (
    AlreadyExists,
    DeadlineExceeded,
    PermissionDenied,
    ServiceUnavailable,
)

from leasehold.deploy.resources.resource import MISSING, PRESENT, Difference, Look, Resource, State
from leasehold.deploy.steps import Action, Patience, apply, survey

DIFFERENT = Look(State.DIFFERENT, (Difference("size", "1", "2"),))
KNOWN = AlreadyExists("it exists")


@dataclass
class Thing:
    """A resource that answers as ordered."""

    name: str
    looks: list[Look | Exception] = field(default_factory=lambda: [MISSING])
    creates: list[Exception | None] = field(default_factory=lambda: [None])
    needs: Sequence[Resource] = ()
    did: list[str] = field(default_factory=list)
    kind: str = "thing"

    def look(self) -> Look:
        found = self.looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def create(self) -> None:
        self.did.append("create")
        if error := self.creates.pop(0):
            raise error

    def update(self) -> None:
        self.did.append("update")


@dataclass
class Free:
    """A resource that needs no other one, and does not say so."""

    name: str
    kind: str = "thing"

    def look(self) -> Look:
        return PRESENT

    def create(self) -> None:
        raise AssertionError


def patience(tries: int = 3, total: float = 60.0) -> tuple[Patience, list[float]]:
    waits: list[float] = []
    return Patience(tries, 1.0, total, sleep=waits.append), waits


def actions(things: Sequence[Thing], **how: bool) -> list[Action]:
    return [step.action for step in apply(things, "p", patience=patience()[0], **how)]


def test_what_is_missing_is_created_and_what_exists_is_left_alone() -> None:
    things = [Thing("a"), Thing("b", [PRESENT]), Thing("c", [DIFFERENT])]

    assert actions(things) == [Action.CREATED, Action.NONE, Action.NONE]
    assert [thing.did for thing in things] == [["create"], [], []]


def test_what_differs_is_changed_only_where_that_is_asked_for_and_can_be_done() -> None:
    by_hand = Look(State.DIFFERENT, DIFFERENT.differences, by_hand=True)
    things = [Thing("a", [DIFFERENT]), Thing("b", [by_hand])]

    assert actions(things, update=True) == [Action.UPDATED, Action.NONE]


def test_a_survey_creates_nothing() -> None:
    thing = Thing("a")

    (step,) = survey([thing], "p", patience()[0])

    assert step.look is MISSING
    assert thing.did == []


def test_a_failure_stops_what_needs_it_and_nothing_else() -> None:
    failed = Thing("a", creates=[PermissionDenied("no")])
    needs_it = Thing("b", needs=(failed,))
    needs_that = Thing("c", needs=(needs_it,))
    other = Thing("d")
    things = [failed, needs_it, needs_that, other, Free("e")]

    steps = list(apply(things, "p", patience=patience()[0]))

    assert [step.action for step in steps] == [
        Action.FAILED,
        Action.NONE,
        Action.NONE,
        Action.CREATED,
        Action.NONE,
    ]
    assert steps[1].look == Look(State.WAITING, why="thing a, which is not there")
    assert steps[2].look == Look(State.WAITING, why="thing b, which is not there")


def test_what_could_not_be_looked_at_is_not_said_to_be_missing() -> None:
    refused = Thing("a", [PermissionDenied("no")])

    _, step = apply([refused, Thing("b", needs=(refused,))], "p", patience=patience()[0])

    assert step.look == Look(State.WAITING, why="thing a, which is not in order")


@pytest.mark.parametrize(
    ("looks", "creates", "expected"),
    [
        ([MISSING, PRESENT], [KNOWN], Action.NONE),  # somebody else was first
        ([MISSING, PRESENT], [ServiceUnavailable("lost"), KNOWN], Action.CREATED),  # it was us
        ([MISSING, MISSING, PRESENT], [KNOWN], Action.NONE),  # it is known everywhere a bit later
        ([MISSING] * 4, [KNOWN], Action.FAILED),  # it cannot be seen: nobody knows
    ],
)
def test_a_create_of_what_exists_is_looked_at_again(
    looks: list[Look | Exception], creates: list[Exception | None], expected: Action
) -> None:
    assert actions([Thing("a", looks, creates)]) == [expected]


def test_an_outage_is_waited_for_with_growing_waits_and_in_the_end_told() -> None:
    trying, waits = patience(tries=4)
    thing = Thing("a", [ServiceUnavailable("down")] * 4)

    (step,) = survey([thing], "p", trying)

    assert step.look == Look(State.UNKNOWN, why="it does not answer: down")
    assert len(waits) == 3
    assert 1 <= waits[0] <= 2 <= waits[1] <= 3  # doubled each time, and up to a second more
    assert 4 <= waits[2] <= 5


def test_what_was_waited_in_vain_is_not_waited_for_each_resource() -> None:
    """A region that is down is told in a minute, and not in an hour."""
    trying, waits = patience(tries=3, total=3.0)
    things = [Thing(name, [ServiceUnavailable("down")] * 3) for name in "abc"]

    steps = list(survey(things, "p", trying))

    assert [step.look.state for step in steps] == [State.UNKNOWN] * 3
    assert len(waits) == 2
    assert [len(thing.looks) for thing in things] == [0, 2, 2]


def test_who_says_nothing_is_not_asked_for_each_resource_of_its_kind() -> None:
    """A server that accepts and never answers holds each call for its whole time."""
    times = iter(range(0, 10_000, 20))  # each look at the clock is 20 s later
    trying = Patience(5, 1.0, 60.0, sleep=lambda _: None, now=lambda: next(times))
    things = [Thing(name, [DeadlineExceeded("silent")] * 5) for name in "abcd"]
    other = Thing("e", [DeadlineExceeded("silent")], kind="other")

    steps = list(survey([*things, other], "p", trying))

    assert [step.look.state for step in steps] == [State.UNKNOWN] * 5
    assert [5 - len(thing.looks) for thing in things] == [3, 0, 0, 0]
    assert other.looks == []
    assert "so it was not asked" in steps[-2].look.why


def test_who_is_slow_and_answers_in_the_end_costs_no_patience() -> None:
    times = iter(range(0, 10_000, 20))
    trying = Patience(5, 1.0, 60.0, sleep=lambda _: None, now=lambda: next(times))
    things = [Thing(name, [DeadlineExceeded("slow"), PRESENT]) for name in "abcdef"]

    assert {step.look.state for step in survey(things, "p", trying)} == {State.PRESENT}


def test_an_unknown_resource_is_not_created() -> None:
    thing = Thing("a", [PermissionDenied("no")])

    assert actions([thing]) == [Action.NONE]
    assert thing.did == []


def test_a_mistake_of_ours_in_one_resource_stops_no_other() -> None:
    assert actions([Thing("a", [KeyError("x")]), Thing("b")]) == [Action.NONE, Action.CREATED]
