"""Places with children, on each store: named after what the joins of others are known for.

No test here waits: what is due is run by hand, in any order, twice, late, or not at all.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from random import Random
from typing import cast

import pytest

from leasehold import Child, PipelineEntry, Registry
from leasehold.adapters.clock import SystemClock
from leasehold.adapters.in_process_tasks import InProcessTasks
from leasehold.domain import lifecycle
from leasehold.domain.children import item_ref, items_of
from leasehold.domain.effect import Task
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest, manifest_of, run_ref
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.stored import Write
from leasehold.errors import CatalogMisfitError, LeaseLostError, StoreUnavailableError
from leasehold.ports.documents import Documents, Query, Snapshot
from leasehold.registry.pipelines import Catalog
from leasehold.registry.plan import Entry
from leasehold.services.adopt_runs import adopt_all
from leasehold.services.audit import audit
from leasehold.services.catalog_fit import LiveRunCheck
from leasehold.services.engine import Engine, find_run
from leasehold.services.execute_step import Hint, arrive, execute_step, run_attempt
from leasehold.services.explain_run import explain_run
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.purge import delete_run
from leasehold.services.read_children import read_children
from leasehold.services.read_runs import RunFilter, get_run, list_summaries, run_mark
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import sweep
from tests.conformance.changed_code import IS_GONE
from tests.worlds.builders import let_pass
from tests.worlds.catalogs import lists
from tests.worlds.catalogs.lists import DONE, FAILS, PIPELINES, STEPS
from tests.worlds.engines import OpenEngine
from tests.worlds.wrapped import AnswerLost, Wrapped

pytestmark = pytest.mark.one_store

COUNT = 6
#: Of the commits of a run the gate loses the answers of the first ones, where a store is a way away
#: of the first alone, as does the nightly job of all: of so many at least.
SOME, FEWEST = 3, 8
#: The place of a `Parallel`.
BOTH = "count_up-and-name_it"
#: So often a task comes twice.
_TWICE = 0.3


class Queue(InProcessTasks):
    """A queue whose tasks a test delivers; it may lose all of them."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.loses = False
        self.created: list[Task] = []

    def create(self, task: Task) -> None:
        self.created.append(task)
        if not self.loses:
            super().create(task)

    def exists(self, task: Task) -> bool | None:
        return bool(super().exists(task))


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def engine(open_engine: OpenEngine, queue: Queue) -> Engine:
    """Work as functions do: each step by its own task."""
    engine = open_engine(lists, tasks=queue)
    return replace(engine, process=replace(engine.process, may_continue=lambda: False))


@pytest.mark.each_store
def test_a_list_is_done_item_by_item_and_joined_once(
    engine: Engine, queue: Queue, unique: str
) -> None:
    run = start(engine, unique)

    outcomes = drain(engine, queue)

    assert total(engine, run) == (55, COUNT)
    assert times(unique) == [1] * COUNT
    assert outcomes.count(Outcome.COMPLETED) == 1 + len(lanes(engine, run))
    assert not [one for one in list_summaries(engine, RunFilter(pipeline="squares")).runs
                if one.run_id.startswith("l-")]  # fmt: skip


@pytest.mark.each_store
def test_a_batch_may_be_larger_than_a_document(engine: Engine, queue: Queue, unique: str) -> None:
    """Firestore takes a document of 1 MiB at most: the items of a batch lie in several."""
    asked = {"name": unique, "count": 40, "size": 27_000}
    run = start_run(engine, StartRequest("large-batches", asked)).manifest

    drain(engine, queue)

    assert total(engine, run) == (20_540, 40)
    assert DONE[unique, 40] == 1


@pytest.mark.parametrize("pipeline", ["squares", "both", "outer"])
def test_children_have_the_labels_the_retries_the_trace_and_the_class_of_their_parent(
    engine: Engine, queue: Queue, unique: str, pipeline: str
) -> None:
    """Limits go by labels and classes: a lane of an urgent run would stand in another line."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    asked = {"name": unique, "count": COUNT}
    labels = {"team": unique}
    request = StartRequest(
        pipeline, asked, labels=labels, max_retries=7, traceparent=trace, priority="high"
    )
    run = start_run(engine, request).manifest
    drain(engine, queue, until=partial(is_resting, engine, run))

    inherited = {
        (child.labels, child.max_retries, child.traceparent, child.priority)
        for child in lanes(engine, run)
    }
    assert inherited == {((f"team:{unique}",), 7, trace, "high")}
    drain(engine, queue)


def test_a_lane_that_ends_before_others_have_begun_takes_nothing_and_asks_nothing(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """Another lane would wait for a worker as they do, and each question reads all lanes."""
    run = start(engine, unique)
    drain(engine, queue, until=partial(is_resting, engine, run))
    before = len(queue.created)

    ended = execute_step(engine, Hint(lanes(engine, run)[3].run_id, 1))  # it has one item

    assert (ended, len(lanes(engine, run))) == (Outcome.COMPLETED, 4)
    assert queue.created[before:] == []
    drain(engine, queue)


def test_a_question_that_comes_late_gathers_no_more_than_was_missing(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """Else each would be one more attempt, and one more announcement."""
    FAILS[unique] = {0, 1}
    asked = {"name": unique, "count": 4}
    run = start_run(engine, StartRequest("most", asked)).manifest
    drain(engine, queue)
    blocked = get_run(engine, run.run_id)

    late = execute_step(engine, Hint(run.run_id, blocked.position.dispatch.generation))

    assert (blocked.block and blocked.block.code, late) == ("items_missing", Outcome.BLOCKED)
    assert get_run(engine, run.run_id) == blocked


def test_the_mark_of_a_run_that_rests_changes_with_each_of_its_lanes(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """A page that is polled would show lanes as they were when the run was written last."""
    run = start(engine, unique)
    drain(engine, queue, until=partial(is_resting, engine, run))
    before, resting = run_mark(engine, run.run_id), get_run(engine, run.run_id)

    execute_step(engine, Hint(lanes(engine, run)[0].run_id, 1))

    assert get_run(engine, run.run_id) == resting
    assert run_mark(engine, run.run_id) != before
    drain(engine, queue)


@pytest.mark.each_store
def test_the_lanes_of_a_run_are_read_in_the_order_of_their_names(
    engine: Engine, queue: Queue, unique: str
) -> None:
    run = start(engine, unique, count=40)
    drain(engine, queue, until=partial(is_resting, engine, run))

    read = read_children(engine, run.run_id)

    names = [child.parent and child.parent.name for child in read.runs]
    assert names == [f"lane {number}" for number in range(1, 5)]
    drain(engine, queue)


def test_the_lost_chord_decrement(engine: Engine, queue: Queue, unique: str) -> None:
    """All that tells a parent of the ends is lost: its alarm asks, and nothing was counted."""
    run = start(engine, unique)
    drain(engine, queue, until=partial(is_resting, engine, run))
    lost = play_lanes_alone(engine, queue, run)

    assert lost
    assert get_run(engine, run.run_id).is_resting
    let_pass(engine.documents, run.run_id, timedelta(minutes=5))
    sweep(engine, among={run.run_id})
    drain(engine, queue)

    assert total(engine, run) == (55, COUNT)
    assert times(unique) == [1] * COUNT


def test_the_join_finalised_while_children_run(engine: Engine, queue: Queue, unique: str) -> None:
    """A question that comes twice, early or late changes nothing while a lane is at work."""
    run = start(engine, unique)
    drain(engine, queue, until=partial(is_resting, engine, run))
    resting = get_run(engine, run.run_id)
    hint = Hint(run.run_id, resting.position.dispatch.generation)
    first = lanes(engine, run)[0]
    held = arrive(engine, Hint(first.run_id, 1))
    drain(engine, queue, but=first.run_id)

    for _ in range(3):
        assert execute_step(engine, hint) is Outcome.RESTING
    assert get_run(engine, run.run_id) == resting

    settled = run_attempt(engine, held)
    assert settled.answer.outcome in (Outcome.COMPLETED, Outcome.HANDED_OFF)
    for task in [one for one in queue.created if one.run_id == first.run_id]:
        execute_step(engine, Hint(task.run_id, task.generation))
    let_pass(engine.documents, run.run_id, timedelta(minutes=5))
    sweep(engine, among={run.run_id, first.run_id})
    drain(engine, queue)
    assert total(engine, run) == (55, COUNT)


def test_a_question_for_the_children_of_one_place_joins_none_of_the_next(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """Who asks has read that all are through; before it commits, others take the run on."""
    asked = {"name": unique, "count": COUNT}
    run = start_run(engine, StartRequest("both-and-outer", asked)).manifest
    drain(engine, queue, until=partial(is_resting, engine, run))
    play_lanes_alone(engine, queue, run)
    first = get_run(engine, run.run_id)
    hint = Hint(run.run_id, first.position.dispatch.generation)

    def move_on() -> None:
        execute_step(engine, hint)
        drain(engine, queue, until=partial(is_resting, engine, run))

    late = replace(engine, documents=cast(Documents, _Interrupted(engine.documents, move_on)))
    outcome = execute_step(late, hint)
    second = get_run(engine, run.run_id)

    assert (first.position.step, second.position.step) == ("count_up-and-name_it", "squares")
    assert outcome is Outcome.MOVED_ON
    assert second.is_resting
    assert (second.status, second.block) == (RunStatus.PENDING, None)
    drain(engine, queue)
    assert get_run(engine, run.run_id).steps["say_total"].output == f'"{COUNT} make 55"'


@pytest.mark.parametrize(
    "most",
    [
        pytest.param(1, marks=pytest.mark.each_store),
        SOME,
        pytest.param(1000, marks=pytest.mark.nightly),
    ],
)
def test_a_lost_answer_repeats_no_item_and_no_join(
    engine: Engine, queue: Queue, unique: str, most: int
) -> None:
    """Each commit of a run with a list stands once while its answer is lost: from arrival to end.

    The caller has an error, or asks again; what is owed then, the sweep finds: of lanes as well.
    """
    for number in range(1, most + 1):
        name = f"{unique}-{number}"
        run = start(engine, name, count=2)
        lost = AnswerLost(engine.documents, number)
        deaf = replace(engine, documents=cast(Documents, lost))

        for _ in range(4):
            with suppress(StoreUnavailableError):
                drain(deaf, queue)
            for one in (run, *lanes(engine, run)):
                let_pass(engine.documents, one.run_id, timedelta(minutes=5))
            sweep(engine, among={run.run_id})

        assert total(engine, run) == (1, 2)
        assert times(name, 2) == [1, 1]
        if not lost.is_lost:
            assert number > FEWEST
            return
    assert most <= SOME


class _Interrupted(Wrapped[Documents]):
    """A store at which others are faster: they do something after the first look at children."""

    def __init__(self, inner: Documents, do: Callable[[], object]) -> None:
        super().__init__(inner)
        self._do: list[Callable[[], object]] = [do]

    def query(self, query: Query) -> Sequence[Snapshot]:
        """Answer, and let others act before the answer is used."""
        found = self.inner.query(query)
        if "openOf" in query.equal and self._do:
            self._do.pop()()
        return found


def test_the_task_of_a_lane_that_comes_again_asks_what_its_killed_worker_did_not(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """The run waits for no alarm of its own, which may be ten minutes away."""
    run = start(engine, unique)
    drain(engine, queue, until=partial(is_resting, engine, run))
    play_lanes_alone(engine, queue, run)
    count = len(lanes(engine, run))
    last = [task for task in queue.created if task.run_id != run.run_id][-1]

    execute_step(engine, Hint(last.run_id, last.generation))
    drain(engine, queue)

    assert total(engine, run) == (55, COUNT)
    assert len(lanes(engine, run)) == count


def test_a_blocked_parent_asks_by_its_alarm_for_a_lane_that_a_person_had_go_on(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """The hint of that lane's end is lost: the parent would always say that it waits."""
    FAILS[unique] = {2}
    run = start(engine, unique)
    drain(engine, queue)
    blocked = get_run(engine, run.run_id)
    open_lane = next(lane for lane in lanes(engine, run) if not lane.is_terminal)
    del FAILS[unique]

    operate(engine, open_lane.run_id, OperationRequest(lifecycle.Operation.RETRY, actor="ada"))
    play_lanes_alone(engine, queue, run)
    ask_by_alarm(engine, run)
    drain(engine, queue)

    assert blocked.block is not None
    assert (blocked.block.code, blocked.alarm_at is None) == ("children_blocked", False)
    assert total(engine, run) == (55, COUNT)


def test_a_blocked_parent_asks_ever_later_and_announces_nothing_more(
    engine: Engine, queue: Queue, unique: str
) -> None:
    FAILS[unique] = {2}
    run = start(engine, unique)
    drain(engine, queue)
    before = get_run(engine, run.run_id)

    ask_by_alarm(engine, run)
    drain(engine, queue)

    after = get_run(engine, run.run_id)
    assert after.alarm_at is not None
    assert after.alarm_at - after.updated_at == timedelta(minutes=2)
    assert (after.state, after.announcement) == ("BLOCKED", before.announcement)
    why = explain_run(engine, run.run_id, is_gone=lambda _: False)
    assert lifecycle.Operation.RETRY in why.explanation.operations
    assert "a person to decide" in why.explanation.words
    assert [found for found in audit(engine) if found.run_id == run.run_id] == []


def test_a_record_of_an_item_that_cannot_be_read_blocks_the_run_and_heals(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """The attempts that gather raised, until the run was given up with all that was paid for."""
    run = start(engine, unique)
    drain(engine, queue, until=partial(is_resting, engine, run))
    play_lanes_alone(engine, queue, run)
    resting = get_run(engine, run.run_id)
    ref = item_ref(run.run_id, resting.life, "square", 3)
    kept = engine.documents.get(ref)
    assert kept is not None
    engine.documents.transact(ref, lambda *_: Write(None, {"first": "?"}))

    ask_by_alarm(engine, run)
    drain(engine, queue)
    blocked = get_run(engine, run.run_id)
    engine.documents.transact(ref, lambda *_: Write(None, dict(kept.document)))
    operate(engine, run.run_id, OperationRequest(lifecycle.Operation.RETRY, actor="ada"))
    drain(engine, queue)

    assert blocked.block is not None
    assert (blocked.block.heals, "cannot be read" in blocked.block.finding) == (True, True)
    assert total(engine, run) == (55, COUNT)
    assert times(unique) == [1] * COUNT


@pytest.mark.each_store
def test_a_zombie_lane_records_nothing_after_it_was_taken_over(
    engine: Engine, queue: Queue, unique: str
) -> None:
    run = start(engine, unique)
    drain(engine, queue, until=partial(is_resting, engine, run))
    first = lanes(engine, run)[0]
    zombie = arrive(engine, Hint(first.run_id, 1))
    let_pass(engine.documents, first.run_id, timedelta(minutes=2))
    sweep(engine, among={first.run_id})
    drain(engine, queue)
    assert total(engine, run) == (55, COUNT)
    items = records(engine, run)

    with pytest.raises(LeaseLostError):
        run_attempt(engine, zombie)

    assert records(engine, run) == items


def test_a_lane_that_is_through_takes_half_of_the_longest_rest(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """In any order of lanes each item is some lane's at any time, and is done once."""
    run = start(engine, unique, count=24)
    drain(engine, queue, until=partial(is_resting, engine, run))
    slow, *others = lanes(engine, run)
    assert len(others) == 3
    held = arrive(engine, Hint(slow.run_id, 1))
    drain(engine, queue, but=slow.run_id)

    taken = get_run(engine, slow.run_id).lane
    assert taken is not None
    assert taken.left == 1  # the item at hand stays

    run_attempt(engine, held)
    ask_by_alarm(engine, run)
    drain(engine, queue)
    assert total(engine, run) == (sum(n**2 for n in range(24)), 24)
    assert times(unique, 24) == [1] * 24


def test_what_failed_in_a_lane_counts_once_after_another_has_taken_items(
    engine: Engine, queue: Queue, unique: str
) -> None:
    FAILS[unique] = {0}
    asked = {"name": unique, "count": 24}
    run = start_run(engine, StartRequest("most", asked)).manifest
    drain(engine, queue, until=partial(is_resting, engine, run))
    first, *others = lanes(engine, run)
    execute_step(engine, Hint(first.run_id, 1))
    drain(engine, queue, but=first.run_id)

    read = read_children(engine, run.run_id)

    assert len(read.runs) > 4
    assert (len(others), read.failed) == (3, 1)
    drain(engine, queue)


def test_a_lane_whose_task_comes_again_takes_nothing_more(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """Each duplicate would begin one more lane than may work at once."""
    run = start(engine, unique, count=8)
    drain(engine, queue, until=partial(is_resting, engine, run))
    first, *others = lanes(engine, run)
    for lane in others:
        arrive(engine, Hint(lane.run_id, 1))
    for generation in (1, 2):
        execute_step(engine, Hint(first.run_id, generation))
    taken = {lane.run_id for lane in lanes(engine, run)}
    [new] = taken - {lane.run_id for lane in (first, *others)}
    arrive(engine, Hint(new, 1))

    again = execute_step(engine, Hint(first.run_id, 2))

    assert again is Outcome.ALREADY_COMPLETED
    assert {lane.run_id for lane in lanes(engine, run)} == taken


def test_a_cancelled_run_cancels_lanes_that_were_made_meanwhile(
    engine: Engine, queue: Queue, unique: str
) -> None:
    run = start(engine, unique, count=12)
    drain(engine, queue, until=partial(is_resting, engine, run))
    first = lanes(engine, run)[0]
    take = partial(lifecycle.take_items, rules=engine.rules, run_id=f"l-{unique}", nonce="nonce")
    engine.commit(first.run_id, take)

    operate(engine, run.run_id, OperationRequest(lifecycle.Operation.CANCEL, actor="ada"))

    assert {lane.cancelled for lane in lanes(engine, run)} == {True}
    assert f"l-{unique}" in {lane.run_id for lane in lanes(engine, run)}
    children = get_run(engine, run.run_id).position.children
    assert children is not None
    assert (children.told, children.word, children.say) == (1, 1, "cancel")


def test_a_word_that_not_all_lanes_have_heard_is_owed_until_they_have(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """The process that paused the run was killed before it told its lanes."""
    run = start(engine, unique)
    drain(engine, queue, until=partial(is_resting, engine, run))
    pause = partial(lifecycle.pause, rules=engine.rules, actor="ada", reason="")
    engine.commit(run.run_id, pause)
    paused = get_run(engine, run.run_id)
    assert paused.alarm_at is not None

    let_pass(engine.documents, run.run_id, timedelta(minutes=5))
    sweep(engine, among={run.run_id})

    assert {lane.paused for lane in lanes(engine, run)} == {True}
    assert get_run(engine, run.run_id).alarm_at is None
    drain(engine, queue)
    operate(engine, run.run_id, OperationRequest(lifecycle.Operation.RESUME, actor="ada"))
    drain(engine, queue)
    ask_by_alarm(engine, run)
    drain(engine, queue)
    assert total(engine, run) == (55, COUNT)


def test_an_earlier_word_that_comes_late_is_not_heard(
    engine: Engine, queue: Queue, unique: str
) -> None:
    run = start(engine, unique)
    drain(engine, queue, until=partial(is_resting, engine, run))
    lane = lanes(engine, run)[0].run_id
    hear = partial(lifecycle.hear, rules=engine.rules, parent_id=run.run_id)

    engine.commit(lane, partial(hear, word=2, say="resume"))
    engine.commit(lane, partial(hear, word=1, say="pause"))

    assert not get_run(engine, lane).paused


def test_a_word_that_comes_again_is_heard_once(engine: Engine, queue: Queue, unique: str) -> None:
    """A person had the lane go on meanwhile."""
    run = start(engine, unique)
    drain(engine, queue, until=partial(is_resting, engine, run))
    lane = lanes(engine, run)[0].run_id
    pause = partial(lifecycle.hear, rules=engine.rules, parent_id=run.run_id, word=1, say="pause")

    engine.commit(lane, pause)
    operate(engine, lane, OperationRequest(lifecycle.Operation.RESUME, actor="ada"))
    again = engine.commit(lane, pause)

    assert again.answer.outcome is Outcome.MOVED_ON
    assert not get_run(engine, lane).paused


def test_a_paused_run_joins_its_children_once_it_goes_on(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """The question was asked before a person paused the run."""
    run = start(engine, unique)
    drain(engine, queue, until=partial(is_resting, engine, run))
    play_lanes_alone(engine, queue, run)
    asked = get_run(engine, run.run_id).position.children
    operate(engine, run.run_id, OperationRequest(lifecycle.Operation.PAUSE, actor="ada"))

    gather = partial(lifecycle.gather, rules=engine.rules, asked=asked)
    late = engine.commit(run.run_id, gather)
    operate(engine, run.run_id, OperationRequest(lifecycle.Operation.RESUME, actor="ada"))
    ask_by_alarm(engine, run)
    drain(engine, queue)

    assert late.answer.outcome is Outcome.MOVED_ON
    assert total(engine, run) == (55, COUNT)


@pytest.mark.each_store
def test_tasks_that_come_twice_and_in_any_order_do_each_item_once(
    engine: Engine, queue: Queue, unique: str
) -> None:
    for seed in range(2):
        name = f"{unique}-{seed}"
        run = start(engine, name)
        chance = Random(seed)  # noqa: S311 - to be repeated
        drain(engine, queue, chance=chance)
        ask_by_alarm(engine, run)
        drain(engine, queue, chance=chance)

        assert total(engine, run) == (55, COUNT)
        assert times(name) == [1] * COUNT


@pytest.mark.each_store
def test_a_purged_run_takes_its_lanes_and_items_along(
    engine: Engine, queue: Queue, unique: str
) -> None:
    run = start(engine, unique)
    drain(engine, queue)
    ask_by_alarm(engine, run)
    drain(engine, queue)
    known = find_run(engine, run.run_id)

    assert delete_run(engine, known, SystemClock().now() + timedelta(days=1))

    assert lanes(engine, run) == []
    assert records(engine, run) == []
    assert engine.documents.get(run_ref(run.run_id)) is None


def without(name: str) -> Catalog:
    """Return the catalog without a pipeline or a step, and without the pipelines that name it."""
    steps = [one for one in STEPS if one.step_type != name]
    pipelines: list[PipelineEntry] = [
        one
        for one in PIPELINES
        if one.name != name and not any(_names(entry, name) for entry in one.entries)
    ]
    return Catalog(Registry("dispatch", steps), Registry("pipelines", pipelines))


def _names(entry: Entry, name: str) -> bool:
    return name in entry.step_types or (isinstance(entry, Child) and entry.pipeline == name)


def with_handler_gone(name: str) -> Catalog:
    gone = replace(STEPS[name], handler=IS_GONE)
    steps = [gone if one is STEPS[name] else one for one in STEPS]
    return Catalog(Registry("dispatch", steps), PIPELINES)


@pytest.mark.parametrize(
    ("catalog", "place", "code", "words"),
    [
        (without("squares"), "squares", "step_unknown", "knows no pipeline 'squares'; known: most"),
        (without("name_it"), BOTH, "step_unknown", "the catalog knows no step 'name_it'; known: "),
        (with_handler_gone("name_it"), BOTH, "handler_unavailable", "of step 'name_it'"),
        (
            with_handler_gone("merge"),
            "squares",
            "handler_unavailable",
            "the pipeline 'squares', of which it waits for a run, cannot run: Handler ",
        ),
    ],
)
def test_what_runs_at_a_place_of_children_is_compared_with_the_catalog(
    engine: Engine, catalog: Catalog, place: str, code: str, words: str
) -> None:
    """A child pipeline that was gone ended the whole check with an error that named no run."""
    request = StartRequest("both-and-outer", {"name": "ada", "count": 3})
    run = start_run(engine, request).manifest

    found = list(LiveRunCheck(replace(engine, catalog=catalog)).misfits(run))

    assert [(one.step, one.code) for one in found] == [(place, code)]
    assert words in found[0].detail


def test_a_run_that_waits_for_a_pipeline_that_is_gone_is_named_and_heals(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """As one whose step is gone: at the start of a server, by `retry`, and by its remedy."""
    request = StartRequest("outer", {"name": unique, "count": 2})
    run = start_run(engine, request).manifest

    def is_there() -> bool:
        return get_run(engine, run.run_id).position.step == "squares"

    drain(engine, queue, until=is_there)
    lines: list[str] = []
    listeners = replace(engine.listeners, log=lines.append)
    lacking = replace(engine, catalog=without("squares"), listeners=listeners)
    adopt_all(lacking, is_gone=lambda _: False)
    drain(lacking, queue)
    blocked = get_run(lacking, run.run_id)
    with pytest.raises(CatalogMisfitError, match="knows no pipeline 'squares'; known: most"):
        operate(lacking, run.run_id, OperationRequest(Operation.RETRY, actor="ada"))
    operate(engine, run.run_id, OperationRequest(Operation.RETRY, actor="ada"))

    def has_begun() -> bool:
        return get_run(engine, run.run_id).position.children is not None

    drain(engine, queue, until=has_begun)
    begun = get_run(engine, run.run_id)
    misfits = list(LiveRunCheck(lacking).misfits(begun))
    drain(engine, queue)

    assert [one for one in lines if "knows no pipeline 'squares', at which 1 live run" in one]
    assert blocked.block is not None
    assert blocked.block.code == "step_unknown"
    assert blocked.block.remediation.startswith("Deploy a catalog that has that step or pipeline; ")
    assert misfits == []
    assert get_run(engine, run.run_id).status == "COMPLETED"


def test_a_pipeline_that_is_gone_is_named_where_its_run_ended_without_an_output(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """A retry begins another one: it would be refused, and the check before the deploy passed."""
    request = StartRequest("outer", {"name": unique, "count": 2})
    run = start_run(engine, request).manifest

    def has_begun() -> bool:
        return get_run(engine, run.run_id).position.children is not None

    drain(engine, queue, until=has_begun)
    for child in lanes(engine, run):
        operate(engine, child.run_id, OperationRequest(Operation.CANCEL, actor="ada"))
    drain(engine, queue)
    blocked = get_run(engine, run.run_id)
    lacking = replace(engine, catalog=without("squares"))
    misfits = list(LiveRunCheck(lacking).misfits(blocked))

    assert blocked.block is not None
    assert blocked.block.code == "items_missing"
    assert [(one.step, one.code) for one in misfits] == [("squares", "step_unknown")]
    assert list(LiveRunCheck(engine).misfits(blocked)) == []


def start(engine: Engine, name: str, count: int = COUNT) -> Manifest:
    return start_run(engine, StartRequest("squares", {"name": name, "count": count})).manifest


def drain(
    engine: Engine,
    queue: Queue,
    *,
    until: object = None,
    but: str = "",
    chance: Random | None = None,
) -> list[Outcome]:
    """Deliver what is due, until nothing is; or as a test says, in another order and twice."""
    outcomes: list[Outcome] = []
    kept: list[Task] = []
    for _ in itertools.count():
        if callable(until) and until():
            break
        due = [*kept, *iter(queue.take_due, None)]
        if chance is not None:
            chance.shuffle(due)
            due += due[:1] if chance.random() < _TWICE else []
        mine = [task for task in due if task.run_id != but]
        if not mine:
            break
        first, *kept = mine
        outcomes.append(execute_step(engine, Hint(first.run_id, first.generation)))
    for task in kept:
        InProcessTasks.create(queue, task)
    return outcomes


def play_lanes_alone(engine: Engine, queue: Queue, run: Manifest) -> list[Task]:
    """Run the lanes to their ends, and lose what they have for their parent."""
    lost = []
    for task in iter(queue.take_due, None):
        if task.run_id == run.run_id:
            lost.append(task)
        else:
            execute_step(engine, Hint(task.run_id, task.generation))
    return lost


def ask_by_alarm(engine: Engine, run: Manifest) -> None:
    let_pass(engine.documents, run.run_id, timedelta(minutes=5))
    sweep(engine, among={run.run_id})


def is_resting(engine: Engine, run: Manifest) -> bool:
    return get_run(engine, run.run_id).is_resting


def lanes(engine: Engine, run: Manifest) -> list[Manifest]:
    found = engine.documents.query(Query("runs", equal={"parentId": run.run_id}, limit=1000))
    all_ = [manifest_of(one.ref.id, one.document) for one in found]
    return sorted(all_, key=lambda lane: lane.parent.name if lane.parent else "")


def records(engine: Engine, run: Manifest) -> list[object]:
    found = engine.documents.query(Query(items_of(run.run_id), limit=1000))
    return [(one.ref.id, dict(one.document)) for one in found]


def total(engine: Engine, run: Manifest) -> tuple[int, int]:
    done = get_run(engine, run.run_id)
    assert done.status is RunStatus.COMPLETED, (done.state, done.block)
    output = done.steps["merge"].output
    assert output is not None
    made = json.loads(output)
    return made["total"], made["count"]


def times(name: str, count: int = COUNT) -> list[int]:
    return [DONE[name, n] for n in range(count)]
