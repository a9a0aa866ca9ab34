"""The writes that a change asks of a store."""

from __future__ import annotations

from functools import partial

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import as_write, on_run
from leasehold.domain.dispatch import Rules
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import to_document
from leasehold.domain.stored import Ref, replace
from leasehold.domain.trace import trace_ref
from leasehold.errors import UnknownRunError
from tests.unit.domain.runs import At, Bound, Runs


@pytest.fixture
def release(rules: Rules) -> Bound:
    return partial(
        lifecycle.release, rules=rules, fence=Fence("lease-1", 1), reason="instance_shutdown"
    )


def test_events_are_stored_in_the_same_commit_and_numbered_on(
    runs: Runs, release: Bound, at: At
) -> None:
    """The number is the manifest's own count, so that no two commits take the same."""
    run = replace(runs.leased(), traced=7)

    write = as_write(release(run, at(5)))

    assert write.document["traced"] == 8
    (ref,) = write.creates
    assert ref == trace_ref(run, 7)
    assert ref.id.startswith("000007-")
    assert write.creates[ref]["type"] == "step_terminated"


def test_a_recreated_run_is_stored_in_the_commit_that_names_it(
    runs: Runs, rules: Rules, at: At
) -> None:
    change = lifecycle.recreate(
        runs.completed(),
        at(20),
        rules=rules,
        from_step="draft",
        new=runs.new("r-2"),
        actor="ada",
        reason="",
    )

    write = as_write(change)

    assert [*write.creates] == [trace_ref(runs.completed(), 0), Ref("runs", "r-2")]
    assert write.document["recreatedAs"] == ("r-2",)


def test_what_changes_nothing_writes_nothing(runs: Runs, rules: Rules, at: At) -> None:
    change = lifecycle.start(runs.pending(), at(5), rules=rules, new=runs.new(idempotency_key="k"))

    write = as_write(change)

    assert (write.document, write.creates, write.answer) == (None, None, change)


def test_a_transition_is_called_on_what_is_stored(runs: Runs, release: Bound, at: At) -> None:
    run = runs.leased()

    write = on_run("r-1", release)(to_document(run), at(5))

    assert write.answer == release(run, at(5))


def test_a_run_that_is_not_there_is_named(release: Bound, at: At) -> None:
    with pytest.raises(UnknownRunError, match="Run 'r-1' is not in the store"):
        on_run("r-1", release)(None, at(5))
