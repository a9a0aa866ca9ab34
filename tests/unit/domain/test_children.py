"""Children: which items a lane has, gives away and counts, and what a pause keeps them from."""

from __future__ import annotations

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.children import (
    ChildLink,
    Lane,
    Span,
    flat,
    halved,
    items_in_chunk,
    spread,
)
from leasehold.domain.lifecycle import NewRun
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from tests.unit.domain.runs import Runs
from tests.worlds.builders import new_run


def lane_of(*todo: Span, batch: int = 2, failed: int = 0) -> Lane:
    return Lane(ahead=flat(todo), batch=batch, items=10, in_chunk=200, tolerated=4, failed=failed)


def lane_run(*todo: Span, failed: int = 0) -> NewRun:
    """A run that does items for the place draft of the run r-1."""
    return new_run(
        run_id="l-1",
        plan=("draft",),
        parent=ChildLink(
            run_id="r-1",
            life="life-1",
            place="draft",
            name="lane 1",
            generation=1,
            queue="draft",
            deadline_s=180,
            nonce="nonce-1",
        ),
        lane=lane_of(*todo, failed=failed),
        is_listed=False,
    )


def begun(runs: Runs, new: NewRun) -> Manifest:
    return lifecycle.start(None, runs.at(0), rules=runs.rules, new=new).manifest


def test_a_lane_counts_each_item_that_is_done_or_has_failed() -> None:
    lane = lane_of((0, 5), (8, 10))

    one_left = lane.without_unit(failed=True).without_unit(failed=True)
    last = one_left.without_unit(failed=False)

    assert (one_left.unit, one_left.failed, one_left.done) == ((4, 5), 4, 0)
    assert (last.todo, last.failed, last.done) == (((8, 10),), 4, 1)


@pytest.mark.parametrize(
    ("todo", "kept", "taken"),
    [
        ([(0, 9)], ((0, 7),), ((7, 9),)),
        ([(0, 2), (4, 6), (8, 10)], ((0, 2), (4, 6)), ((8, 10),)),
        ([(0, 3)], ((0, 2),), ((2, 3),)),
        ([(0, 5)], ((0, 5),), ()),
        ([(0, 2)], ((0, 2),), ()),
    ],
)
def test_a_lane_keeps_what_is_at_hand_and_gives_half_of_the_rest_away(
    todo: list[Span], kept: tuple[Span, ...], taken: tuple[Span, ...]
) -> None:
    """No item is in both, or in none; and one attempt's items are not divided."""
    assert halved(lane_of(*todo)) == (kept, taken)


def test_items_are_spread_over_lanes_in_batches() -> None:
    found = spread([(0, 5), (7, 9)], lanes=3, batch=2)

    assert found == [((0, 4),), ((4, 5), (7, 8)), ((8, 9),)]


def test_a_lane_that_takes_items_begins_with_no_failure(runs: Runs) -> None:
    """The failures of the first one would count twice among those that are tolerated."""
    change = lifecycle.take_items(
        begun(runs, lane_run((0, 6), failed=2)),
        runs.at(1),
        rules=runs.rules,
        run_id="l-2",
        nonce="nonce-2",
    )

    made = change.created
    assert made is not None
    assert (change.manifest.lane, made.lane) == (lane_of((0, 4), failed=2), lane_of((4, 6)))


def test_a_paused_lane_gives_no_items_away(runs: Runs) -> None:
    """They would go on, though a person wants that nothing does."""
    paused = runs.paused(begun(runs, lane_run((0, 6))))

    change = lifecycle.take_items(
        paused, runs.at(7), rules=runs.rules, run_id="l-2", nonce="nonce-2"
    )

    assert (change.outcome, change.changed) == (Outcome.MOVED_ON, False)


def test_the_children_of_a_run_that_is_paused_as_they_begin_are_told(runs: Runs) -> None:
    change = _split(runs, runs.paused(runs.leased()))

    children = change.position.children
    assert children is not None
    assert (children.word, children.say, children.told) == (1, "pause", 0)


def test_children_have_heard_the_word_that_they_were_told_and_no_later_one(runs: Runs) -> None:
    """The person resumes the run while the word of the pause goes out."""
    paused = runs.paused(_split(runs, runs.leased()))
    resumed = lifecycle.resume(
        paused, runs.at(8), rules=runs.rules, actor="ada", reason="go"
    ).manifest

    told = lifecycle.note_told(resumed, runs.at(9), rules=runs.rules, word=1).manifest

    children = told.position.children
    assert children is not None
    assert (children.word, children.told) == (2, 1)


def _split(runs: Runs, run: Manifest) -> Manifest:
    """The run once its attempt has made a lane of six items."""
    return lifecycle.begin_children(
        run,
        runs.at(7),
        rules=runs.rules,
        fence=runs.fence(run),
        kind="each",
        items=6,
        runs=[lane_run((0, 6))],
    ).manifest


@pytest.mark.parametrize(
    ("largest", "batch", "items"),
    [
        (10, 1, 200),
        (10, 7, 196),
        (10, 300, 300),
        (1024, 300, 300),
        (20_000, 1, 10),
        (20_000, 7, 7),
        (20_000, 40, 40),
        (27_000, 40, 7),
    ],
)
def test_items_lie_where_lanes_of_earlier_versions_look_for_them(
    largest: int, batch: int, items: int
) -> None:
    """With another number a lane that another version began takes the items of others."""
    assert items_in_chunk(largest, batch) == items
