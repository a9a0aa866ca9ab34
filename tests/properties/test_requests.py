"""People who insist: operations come twice, late and bound to what was long ago.

The world is that of the lifecycle. Each operation is asked for as a person does it, and may come
again, because its answer was lost; and a person may decide about what was looked at a while ago.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition
from leasehold.domain.lifecycle import BoundOperation, Operation
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.errors import LeaseholdError, StateChangedError
from tests.properties.machine import Lifecycle
from tests.properties.world import RECENT

#: What somebody else can undo without the run moving on.
UNDONE = (Operation.PAUSE, Operation.RESUME)


@dataclass(frozen=True)
class Done:
    """An operation that was done, and what it was answered."""

    run_id: str
    request: BoundOperation
    operate: Transition
    outcome: Outcome


@dataclass(frozen=True)
class Look:
    """A run as a person saw it: its generation, and how many blocks it had come to."""

    run_id: str
    generation: int
    blocks: int


class Insistence(Lifecycle):
    """The world, with people who ask again and people who are late."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[Done] = []
        self.looks: list[Look] = []

    def as_transition(self, operation: Callable[..., Change]) -> Transition:
        """Return the operation as a new request; every other one is bound."""
        return lifecycle.on_request(self.request_for(operation), self.plain(operation))

    def plain(self, operation: Callable[..., Change]) -> Transition:
        return partial(operation, rules=self.in_force, actor="ada", reason="testing")

    def request_for(self, operation: Callable[..., Change]) -> BoundOperation:
        name = getattr(operation, "func", operation).__name__
        call = self.new_id()
        return BoundOperation(id=call, operation=Operation(name), actor="ada", reason=call)

    def operate(
        self, run_id: str, operation: Callable[..., Change], allowed: bool, expected: Outcome
    ) -> Change | None:
        if not allowed:
            return super().operate(run_id, operation, allowed, expected)
        request = self.request_for(operation)
        if int(request.id) % 2:
            request = replace(request, generation=self.runs[run_id].position.dispatch.generation)
        plain = self.plain(operation)
        change = self.commit(run_id, lifecycle.on_request(request, plain))
        assert (change.changed, change.outcome) == (True, expected)
        self.done.append(Done(run_id, request, plain, expected))
        return change

    @precondition(lambda self: self.done)
    @rule(recent=RECENT, by_store=st.booleans())
    def ask_again(self, recent: int, by_store: bool) -> None:
        """An answer was lost: a store, or the person, asks once more, whatever happened since."""
        done = self.done[-1 - recent % len(self.done)]
        run, request = self.runs[done.run_id], done.request
        if all(record.id != request.id for record in run.operations):
            return  # sixteen others ago
        if not by_store:
            request = replace(request, id=self.new_id())
        again = lifecycle.on_request(request, done.operate)
        if by_store or (request.generation is not None and not self.is_undone(run, request)):
            change = self.commit(done.run_id, again)
            assert (change.changed, change.outcome) == (False, done.outcome)
            return
        try:
            change = again(run, self.now)
        except LeaseholdError:
            return
        if change.changed:  # it means the run wherever it is, and no block of it
            # or whoever undid it, at the same generation, means it once more
            assert request.generation is None or run.operations[-1].actor == request.actor
            assert request.operation not in (Operation.APPROVE, Operation.CANCEL)
            if request.operation is Operation.RETRY:
                assert not lifecycle.is_allowed(run, Operation.APPROVE), "no output is dropped"

    def is_undone(self, run: Manifest, request: BoundOperation) -> bool:
        return request.operation in UNDONE and lifecycle.is_allowed(run, request.operation)

    @rule(then=st.sampled_from(["nothing", "approve", "approve", "retry", "pause"]))
    def come_to_a_gate(self, then: str) -> None:
        run_id = self.nth_run(0)
        self.look(recent=0)
        self.by_the_book(what="block", keeps=False)
        self.look(recent=0)
        if then != "nothing":
            getattr(self, then)(run_id)

    @rule(recent=RECENT)
    def look(self, recent: int) -> None:
        run_id = self.nth_run(recent)
        blocks = len(self.known[run_id].blocks)
        self.looks.append(Look(run_id, self.runs[run_id].position.dispatch.generation, blocks))

    @precondition(lambda self: self.looks)
    @rule(
        recent=RECENT,
        what=st.sampled_from(["approve", "approve", "retry", "cancel", "pause", "resume"]),
    )
    def decide_late(self, recent: int, what: str) -> None:
        """A person decides about what was looked at; no other block is hit."""
        look = self.looks[-1 - recent % len(self.looks)]
        run, operation = self.runs[look.run_id], getattr(lifecycle, what)
        bound = replace(self.request_for(operation), generation=look.generation)
        decide = lifecycle.on_request(bound, self.plain(operation))
        if look.generation != run.position.dispatch.generation:
            with pytest.raises(StateChangedError):
                decide(run, self.now)
            return
        assert look.blocks == len(self.known[look.run_id].blocks), "it is the block that was seen"
        getattr(self, what)(look.run_id)


def test_a_repeated_or_late_request_passes_no_unseen_state() -> None:
    """No output is handed off by an approval that was meant for another block."""
    half = settings(max_examples=settings().max_examples // 2)
    run_state_machine_as_test(Insistence, settings=half)
