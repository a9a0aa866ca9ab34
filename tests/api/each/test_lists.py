"""Lists item by item, steps at once, and runs that are waited for: on one machine."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold import (
    Child,
    Each,
    LogChannel,
    Parallel,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
)
from leasehold.domain.children import MAX_ITEMS
from leasehold.domain.manifest import Manifest, manifest_of
from leasehold.domain.status import Outcome, RunStatus
from leasehold.errors import ChainError, InvalidEntryError, InvalidRequestError, NotAllowedError
from leasehold.ports.documents import Query
from leasehold.registry.pipelines import Catalog
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.purge import purge
from leasehold.services.read_runs import RunFilter, get_run, list_summaries
from leasehold.testing import FrozenClock, InProcessEngine
from leasehold.testing import engine as opened
from tests.worlds.builders import environ_of
from tests.worlds.catalogs import lists
from tests.worlds.catalogs.lists import DONE, FAILS, PIPELINES, STEPS

pytestmark = pytest.mark.catalog(lists)


def settled(engine: InProcessEngine, pipeline: str, **asked: Any) -> Manifest:
    run = engine.start(pipeline, asked)
    return engine.run_until_settled(run.run_id)


def test_each_item_is_done_once_and_the_list_comes_out_in_order(engine: InProcessEngine) -> None:
    run = settled(engine, "squares", name="in-order", count=10)

    assert run.status is RunStatus.COMPLETED
    assert engine.output(run.run_id) == {"total": 285, "count": 10, "failed": []}
    assert {DONE["in-order", n] for n in range(10)} == {1}


def test_the_empty_chord(engine: InProcessEngine) -> None:
    """Elsewhere the join of an empty list never comes; here it needs no alarm."""
    began = engine.clock.now()

    run = settled(engine, "squares", name="empty", count=0)

    assert (run.status, engine.clock.now()) == (RunStatus.COMPLETED, began)
    assert engine.output(run.run_id) == {"total": 0, "count": 0, "failed": []}


def zeros(_: StepContext, given: int) -> list[int]:
    return [0] * given


def same(_: StepContext, given: int) -> int:
    return given


@pytest.mark.parametrize("count", [MAX_ITEMS + 1, 1_000_000])
def test_a_list_that_is_too_long_is_refused_in_one_line_before_any_item(
    tmp_path: Path, count: int
) -> None:
    steps = [
        StepDispatchEntry(
            step_type=name,
            handler=f"{__name__}:{name}",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
        )
        for name in ("zeros", "same")
    ]
    pipelines = [PipelineEntry(name="long", steps=("zeros", Each("same")))]
    catalog = Registry("dispatch", steps), Registry("pipelines", pipelines)
    with InProcessEngine(
        *catalog, environ=environ_of(tmp_path), clock=FrozenClock(), workers=0
    ) as engine:
        run = engine.start("long", count)
        engine.run_until_idle()
        blocked = engine.show(run.run_id)

    assert blocked.block is not None
    assert (blocked.block.code, blocked.block.heals) == ("input_mismatch", True)
    assert f"its input has {count} items; at most 100000 are allowed" in blocked.block.finding
    assert blocked.position.children is None


def test_items_that_fail_are_left_and_told_where_some_may(engine: InProcessEngine) -> None:
    FAILS["some"] = {2, 5}

    run = settled(engine, "most", name="some", count=8)

    assert run.status is RunStatus.COMPLETED
    assert run.steps["square"].output_status == "PARTIAL"
    assert engine.output(run.run_id) == {"total": 140 - 4 - 25, "count": 6, "failed": [2, 5]}
    assert DONE["some", 2] == DONE["some", 5] == 1


def test_a_run_of_which_more_fail_blocks_and_does_those_alone_once_more(
    engine: InProcessEngine,
) -> None:
    FAILS["many"] = {1, 3, 6}

    blocked = settled(engine, "most", name="many", count=8)

    assert blocked.block is not None
    assert (blocked.status, blocked.block.code) == (RunStatus.BLOCKED, "items_missing")
    assert blocked.block.finding == (
        "3 of 8 items of square failed, and at most 2 may: "
        "1 (odd_item), 3 (odd_item), 6 (odd_item)."
    )

    hint = Hint(blocked.run_id, blocked.position.dispatch.generation)
    assert execute_step(engine.engine, hint) is Outcome.BLOCKED  # one that comes late

    assert engine.show(blocked.run_id).updated_at == blocked.updated_at
    FAILS["many"] = {6}
    engine.retry(blocked.run_id)
    run = engine.run_until_settled(blocked.run_id)

    assert run.status is RunStatus.COMPLETED
    assert engine.output(run.run_id) == {"total": 140 - 36, "count": 7, "failed": [6]}
    assert [DONE["many", n] for n in range(8)] == [1, 2, 1, 2, 1, 1, 2, 1]


def test_an_item_that_may_not_fail_blocks_its_lane_and_all_others_are_done(
    engine: InProcessEngine,
) -> None:
    FAILS["one"] = {3}

    blocked = settled(engine, "squares", name="one", count=12)

    assert blocked.block is not None
    assert (blocked.status, blocked.block.code) == (RunStatus.BLOCKED, "children_blocked")
    assert "Item 3: PERMANENT_FAILURE: PermanentError: item 3 cannot" in blocked.block.finding
    assert [DONE["one", n] for n in range(12)] == [1] * 12

    FAILS["one"] = set()
    engine.retry(blocked.run_id)
    run = engine.run_until_settled(blocked.run_id)

    assert engine.output(run.run_id)["count"] == 12
    assert DONE["one", 3] == 2
    assert DONE["one", 4] == 1


def test_batches_are_given_as_lists(engine: InProcessEngine) -> None:
    run = settled(engine, "batches", name="batch", count=10)

    assert engine.output(run.run_id) == {"total": 285, "count": 10, "failed": []}
    assert (DONE["batch", 4], DONE["batch", 2]) == (2, 1)


def test_a_batch_with_an_output_too_few_fails(engine: InProcessEngine) -> None:
    run = settled(engine, "too-few", name="few", count=8)

    assert run.block is not None
    assert "its handler returned 3 outputs for a batch of 4 items" in run.block.finding


def test_an_item_that_skips_fails_alone_and_at_once(engine: InProcessEngine) -> None:
    """Its lane blocked, with the advice to declare what no pipeline can, and the run waited."""
    run = settled(engine, "skips", name="skips", count=6)

    assert run.status is RunStatus.COMPLETED
    assert engine.output(run.run_id) == {"total": 0 + 4 + 16, "count": 3, "failed": [1, 3, 5]}
    assert {DONE["skips", n] for n in range(6)} == {1}


def test_a_step_among_several_that_skips_blocks_with_one_line(engine: InProcessEngine) -> None:
    run = settled(engine, "both-skip", name="ada", count=3)

    assert run.block is not None
    assert (run.status, run.block.code) == (RunStatus.BLOCKED, "children_blocked")
    assert (
        "Step 'skip_all' skips to 'join_any'; "
        "allowed: no skip, as its place gives the next step all outputs together."
    ) in run.block.finding


def test_steps_at_once_are_given_the_same_and_come_out_under_their_names(
    engine: InProcessEngine,
) -> None:
    run = settled(engine, "both", name="ada", count=3)

    assert engine.output(run.run_id) == "ada 3"
    assert run.plan == ("ask", "count_up-and-name_it", "join_both")


def test_one_of_the_steps_at_once_that_fails_blocks_and_is_tried_again_alone(
    engine: InProcessEngine,
) -> None:
    FAILS["nobody"] = {7}

    blocked = settled(engine, "both", name="nobody", count=7)

    assert blocked.block is not None
    assert blocked.block.code == "children_blocked"
    FAILS["nobody"] = set()
    engine.retry(blocked.run_id)
    assert engine.run_until_settled(blocked.run_id).status is RunStatus.COMPLETED
    assert engine.output(blocked.run_id) == "nobody 7"


def test_a_run_waits_for_a_run_of_another_pipeline_that_has_lanes_itself(
    engine: InProcessEngine,
) -> None:
    run = settled(engine, "outer", name="outer", count=5)

    assert engine.output(run.run_id) == "5 make 30"
    listed = [one.pipeline for one in engine.runs()]
    assert sorted(listed) == ["outer", "squares"]  # no lane is in a list


@pytest.mark.parametrize("pipeline", ["both", "outer"])
def test_an_engine_follows_children_whose_beginning_it_never_heard_of(
    engine: InProcessEngine, pipeline: str
) -> None:
    """No commit that ends an attempt is answered: those that begin children are among them."""
    for _ in range(30):
        engine.faults.lose_answer()

    run = settled(engine, pipeline, name=f"unheard-{pipeline}", count=2)

    assert run.status is RunStatus.COMPLETED
    assert {DONE[f"unheard-{pipeline}", n] for n in range(2)} == {pipeline == "outer"}


def test_a_run_of_a_pipeline_that_begins_with_a_wait_waits_and_is_announced(tmp_path: Path) -> None:
    """Its first place was taken for a step: the approval was passed over."""
    channels = Registry("channels", [LogChannel(name="ops")])
    with opened(Catalog(STEPS, PIPELINES, channels=channels), tmp_path) as engine:
        run = engine.start("asks-first", {"name": "ann", "count": 3})
        engine.run_until_idle()
        [child] = [one for one in engine.runs() if one.pipeline == "approved"]
        waiting = get_run(engine.engine, child.run_id)
        told = [(one.run_id, one.event) for one in engine.announcements]

        engine.signal(child.run_id, "approval", {"name": "bob", "count": 7})
        engine.run_until_settled(run.run_id)

        assert waiting.waits_for is not None
        assert (waiting.status, waiting.steps["approval"].output) == (RunStatus.BLOCKED, None)
        assert told == [(child.run_id, "run_blocked")]
        assert engine.output(run.run_id) == 7


@pytest.mark.parametrize(
    ("pipeline", "place", "gone", "says"),
    [
        ("outer", "squares", "squares", "Pipeline 'squares' is not known"),
        ("both", "count_up-and-name_it", "name_it", "'name_it' is not in the dispatch registry"),
    ],
)
def test_a_deploy_without_what_a_place_begins_blocks_the_run_and_heals(
    tmp_path: Path, pipeline: str, place: str, gone: str, says: str
) -> None:
    """Its attempts raised, and their leases ran out until the run was given up."""
    steps = Registry("dispatch", [one for one in STEPS if one.step_type != gone])
    plain = [one for one in PIPELINES if one.name in ("squares", "most") and gone not in one.name]
    without = Catalog(steps, Registry("pipelines", plain))
    clock = FrozenClock(skips_waits=True)
    with opened(Catalog(STEPS, PIPELINES), tmp_path, clock=clock) as engine:
        run_id = engine.start(pipeline, {"name": "gone", "count": 3}).run_id

    with opened(without, tmp_path, clock=clock) as engine:
        engine.adopt(run_id)
        engine.run_until_idle()
        blocked = get_run(engine.engine, run_id)
    with opened(Catalog(STEPS, PIPELINES), tmp_path, clock=clock) as engine:
        engine.adopt(run_id)
        engine.advance(11)
        engine.run_until_idle()
        healed = engine.run_until_settled(run_id)

    assert blocked.block is not None
    assert (blocked.status, blocked.position.step) == (RunStatus.BLOCKED, place)
    assert (blocked.block.code, blocked.block.heals) == ("step_unknown", True)
    assert says in blocked.block.finding
    assert healed.status is RunStatus.COMPLETED


def test_large_items_lie_among_the_artifacts(engine: InProcessEngine) -> None:
    run = settled(engine, "squares", name="large", count=3, size=40_000)

    assert engine.output(run.run_id) == {"total": 5, "count": 3, "failed": []}


def test_a_purged_run_leaves_no_lane_and_no_item(engine: InProcessEngine) -> None:
    run = settled(engine, "squares", name="purged", count=8)
    engine.advance(60)

    purge(engine.engine, RunFilter(), ended_before=engine.clock.now())

    assert lanes(engine, run.run_id) == []
    assert not engine.engine.documents.query(Query(f"runs/{run.run_id}/items"))


def test_a_purged_run_leaves_a_run_of_another_pipeline_that_it_waited_for(
    engine: InProcessEngine,
) -> None:
    """It is in the lists by itself, and a person may have looked for it there."""
    settled(engine, "outer", name="outer", count=2)
    engine.advance(60)

    purge(engine.engine, RunFilter(pipeline="outer"), ended_before=engine.clock.now())

    assert [one.pipeline for one in engine.runs()] == ["squares"]


def test_only_the_items_that_failed_are_done_for_a_recreated_run(engine: InProcessEngine) -> None:
    FAILS["later"] = {2, 5}
    first = settled(engine, "most", name="later", count=8)
    FAILS["later"] = set()

    made = engine.recreate(first.run_id, failed_items=True)
    run = engine.run_until_settled(made.run_id)

    assert engine.output(run.run_id) == {"total": 140, "count": 8, "failed": []}
    assert [DONE["later", n] for n in range(8)] == [1, 1, 2, 1, 1, 2, 1, 1]


def test_one_lane_may_have_all_failures_that_are_tolerated(tmp_path: Path) -> None:
    """Other lanes may have none: as many are allowed for all of them together."""
    place = Each("square", at_once=1, tolerate=0.25)
    pipeline = PipelineEntry(name="most", steps=("split", place, "merge_outcomes"))
    FAILS["one lane"] = {2, 5}

    catalog = Catalog(STEPS, Registry("pipelines", [pipeline]))
    with opened(catalog, tmp_path, clock=FrozenClock(skips_waits=True)) as engine:
        run = settled(engine, "most", name="one lane", count=8)

        assert engine.output(run.run_id) == {"total": 111, "count": 6, "failed": [2, 5]}


@pytest.mark.parametrize(("batch", "later"), [(1, 2), (2, 1), (2, 3)])
def test_the_items_of_another_batch_size_are_joined_as_they_were_made(
    tmp_path: Path, batch: int, later: int
) -> None:
    """A list of one was taken for its item, and an item for a list: the joined list was wrong."""

    def deploy(batch: int) -> Catalog:
        handler = "square" if batch == 1 else "square_all"
        others = [one for one in STEPS if one.step_type != "square"]
        step = replace(STEPS["square"], handler=f"{lists.__name__}:{handler}")
        place = Each("square", at_once=2, batch=batch, tolerate=0.5)
        pipeline = PipelineEntry(name="most", steps=("split", place, "merge_outcomes"))
        return Catalog(
            Registry("dispatch", [*others, step]),
            Registry("pipelines", [pipeline]),
        )

    name = f"batches of {batch}, then of {later}"
    FAILS[name] = {4}
    with opened(deploy(batch), tmp_path, clock=FrozenClock(skips_waits=True)) as engine:
        first = settled(engine, "most", name=name, count=7)
    FAILS[name] = set()
    with opened(deploy(later), tmp_path, clock=FrozenClock(skips_waits=True)) as engine:
        made = engine.recreate(first.run_id, failed_items=True)
        run = engine.run_until_settled(made.run_id)

        assert first.steps["square"].output_status == "PARTIAL"
        assert engine.output(run.run_id) == {"total": 91, "count": 7, "failed": []}


def test_a_list_that_a_deploy_renamed_keeps_its_finished_items(tmp_path: Path) -> None:
    def deploy(place: str) -> Catalog:
        steps = ("split", Each("square", name=place, at_once=2, tolerate=0.5), "merge_outcomes")
        pipelines = Registry("pipelines", [PipelineEntry(name="most", steps=steps)])
        return Catalog(STEPS, pipelines)

    FAILS["renamed"] = {2}
    with opened(deploy("squares"), tmp_path, clock=FrozenClock(skips_waits=True)) as engine:
        first = settled(engine, "most", name="renamed", count=4)
    FAILS["renamed"] = set()
    with opened(deploy("powers"), tmp_path, clock=FrozenClock(skips_waits=True)) as engine:
        with pytest.raises(InvalidRequestError, match="powers"):
            engine.recreate(first.run_id, failed_items=True)
        made = engine.recreate(first.run_id, failed_items=True, from_step="powers")
        run = engine.run_until_settled(made.run_id)

        assert engine.output(run.run_id) == {"total": 14, "count": 4, "failed": []}
    assert [DONE["renamed", n] for n in range(4)] == [1, 1, 2, 1]


def test_a_run_that_is_made_of_a_cancelled_one_keeps_the_items_that_are_done(
    engine: InProcessEngine,
) -> None:
    FAILS["kept"] = {3}
    blocked = settled(engine, "squares", name="kept", count=8)
    engine.cancel(blocked.run_id)
    FAILS["kept"] = set()

    made = engine.recreate(blocked.run_id)
    run = engine.run_until_settled(made.run_id)

    assert engine.output(run.run_id) == {"total": 140, "count": 8, "failed": []}
    assert [DONE["kept", n] for n in range(8)] == [1, 1, 1, 2, 1, 1, 1, 1]


@pytest.mark.parametrize("pipeline", ["squares", "both"])
def test_no_run_is_made_of_a_lane(engine: InProcessEngine, pipeline: str) -> None:
    """It would be one of the whole pipeline, with an item in the place of the input."""
    run = settled(engine, pipeline, name=f"no-run-of-a-lane-{pipeline}", count=2)
    lanes = engine.engine.documents.query(Query("runs", equal={"parentId": run.run_id}))

    for lane in lanes:
        with pytest.raises(NotAllowedError, match=r"no lane \(recreate its parent\)"):
            engine.recreate(lane.ref.id)

    assert len(lanes) == 2
    assert [one.run_id for one in engine.runs()] == [run.run_id]


def test_failed_items_are_refused_where_there_is_no_list(engine: InProcessEngine) -> None:
    run = settled(engine, "both", name="ada", count=3)

    with pytest.raises(InvalidRequestError, match="item by item"):
        engine.recreate(run.run_id, failed_items=True)


def test_an_entry_that_is_wrong_is_refused_in_one_line() -> None:
    for entry, allowed in (
        (Each("square", at_once=0), "a whole number from 1 to 100"),
        (Each("square", tolerate=2), "a share from 0 to 1"),
        (Each("square", batch=1001), "a whole number from 1 to 1000"),
        (Parallel("square"), "two different step types or more"),
        (Child("squares"), "a step beside 'squares'"),
    ):
        with pytest.raises(InvalidEntryError, match=allowed):
            PipelineEntry(name="wrong", steps=(entry,))


def test_a_pipeline_cannot_wait_for_itself() -> None:
    loop = PipelineEntry(name="loop", steps=("ask", Child("loop")))

    with pytest.raises(InvalidEntryError, match="pipelines that do not wait for a run of"):
        Catalog(STEPS, Registry("pipelines", [loop]))


def test_a_chain_that_cannot_fit_is_found_before_a_run() -> None:
    wrong = PipelineEntry(name="wrong", steps=("count_up", Each("square"), "merge"))

    with pytest.raises(ChainError, match="must be an array: its items are worked on one by one"):
        InProcessEngine(STEPS, Registry("pipelines", [wrong]), workers=0)


def lanes(engine: InProcessEngine, run_id: str) -> list[Manifest]:
    found = engine.engine.documents.query(Query("runs", equal={"parentId": run_id}, limit=1000))
    return [manifest_of(one.ref.id, one.document) for one in found]


def test_lanes_are_in_no_list_and_none_is_logged_as_one_that_cannot_be_read(
    engine: InProcessEngine,
) -> None:
    settled(engine, "squares", name="unlisted", count=8)
    logged: list[str] = []
    inner = replace(engine.engine, listeners=replace(engine.engine.listeners, log=logged.append))

    found = list_summaries(inner, RunFilter(id_prefix="l-")).runs

    assert (list(found), logged) == ([], [])
