"""Schedules on each store: each time is decided once, by whichever sweep, and through kills."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from leasehold import PipelineEntry, Registry, ScheduleEntry, StepContext, StepDispatchEntry
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.domain.schedule import Fate, ScheduleState, schedule_key, schedule_ref, state_of
from leasehold.domain.stored import Write
from leasehold.errors import (
    InvalidEntryError,
    InvalidRequestError,
    UnknownKeyError,
    UnreadableScheduleError,
)
from leasehold.ports.documents import Documents, Query
from leasehold.registry.pipelines import Catalog
from leasehold.services import schedules
from leasehold.services.engine import Engine
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.read_runs import get_run
from leasehold.services.schedules import (
    attend_schedules,
    backfill_schedule,
    list_schedules,
    pause_schedule,
    read_schedule,
    resume_schedule,
    trigger_schedule,
)
from leasehold.services.sweep import sweep as sweep_runs
from tests.worlds.engines import OpenEngine
from tests.worlds.wrapped import AnswerLost, Overtaken

pytestmark = pytest.mark.one_store


def work(_: StepContext, given: Any) -> Any:
    return given


Make = Callable[..., Engine]
EMPTY = Catalog(Registry("dispatch", []), Registry("pipelines", []))


@pytest.fixture
def make(open_engine: OpenEngine, unique: str) -> Make:
    """Return what makes the engine of a process; its schedule has its own name."""
    step = StepDispatchEntry(
        step_type=unique,
        handler=f"{__name__}:work",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
    )

    def engine(**fields: Any) -> Engine:
        fields = {"cron": "* * * * *", "pipeline": unique, **fields}
        catalog = Catalog(
            steps=Registry("dispatch", [step]),
            pipelines=Registry("pipelines", [PipelineEntry(name=unique, steps=(unique,))]),
            schedules=Registry("schedules", [ScheduleEntry(unique, **fields)]),
        )
        return open_engine(catalog)

    return engine


def attend(engine: Engine) -> list[str]:
    engine.schedules.look_at.clear()  # its clock is the machine's
    return attend_schedules(engine, lambda: False)


def attend_once(engine: Engine) -> list[str]:
    """Attend to one time, however many are due."""
    engine.schedules.look_at.clear()
    return attend_schedules(engine, iter((False, True)).__next__)


def let_pass(documents: Documents, name: str, by: timedelta) -> None:
    """Have the last decision lie further back, as if so much time had passed."""

    def earlier(document: Any, _: datetime) -> Write[None]:
        state = state_of(name, document)
        fields = state.model_copy(update={"decided": state.decided - by})
        return Write(None, fields.model_dump(exclude_none=True, by_alias=True))

    documents.transact(schedule_ref(name), earlier)


def state(engine: Engine, name: str) -> ScheduleState:
    found = read_schedule(engine, name).state
    assert found is not None
    return found


def fates(engine: Engine, name: str) -> list[Fate]:
    return [line.fate for line in state(engine, name).lines]


def runs_of(engine: Engine, name: str) -> list[str]:
    query = Query("runs", order_by="createdAt", contains=("labels", f"schedule:{name}"))
    return [found.ref.id for found in engine.documents.query(query)]


def end(engine: Engine, run_id: str) -> None:
    operate(engine, run_id, OperationRequest(Operation.CANCEL, actor="test"))


def due_once(engine: Engine, name: str) -> None:
    """Have exactly one time of a schedule that fires each minute be due."""
    attend(engine)
    let_pass(engine.documents, name, timedelta(minutes=1))


def one_buffered(make: Make, name: str) -> tuple[Engine, str]:
    """Begin a run of a schedule, and have its next time wait behind it."""
    engine = make(overlap="buffer_one")
    due_once(engine, name)
    first = attend(engine)[0]
    let_pass(engine.documents, name, timedelta(minutes=1))
    attend(engine)
    return engine, first


def test_a_schedule_that_a_person_edited_is_named_and_left_as_it_is(
    make: Make, unique: str
) -> None:
    """Its runs begin once it is right again; the log says why they do not."""
    said: list[str] = []
    engine = make()
    engine = replace(engine, listeners=replace(engine.listeners, log=said.append))
    attend(engine)
    edited = state(engine, unique).model_dump(exclude_none=True) | {"decided": "tomorrow"}
    engine.documents.transact(schedule_ref(unique), lambda *_: Write(None, edited))
    words = f"Schedule {unique} cannot be read by this version: decided: Input should be a valid d"

    assert attend(engine) == []
    assert words in said[0]
    for ask in (
        lambda: read_schedule(engine, unique),
        lambda: schedules.pause_schedule(engine, unique, why="w", actor="ann"),
        lambda: schedules.resume_schedule(engine, unique),
        lambda: schedules.trigger_schedule(engine, unique, actor="ann"),
    ):
        with pytest.raises(UnreadableScheduleError, match=words):
            ask()
    found = engine.documents.get(schedule_ref(unique))
    assert found is not None
    assert found.document["decided"] == "tomorrow"


@pytest.mark.each_store
def test_a_new_schedule_starts_nothing_of_the_past_and_then_each_time_once(
    make: Make, unique: str
) -> None:
    engine = make(input={"n": 1})

    assert attend(engine) == []
    let_pass(engine.documents, unique, timedelta(minutes=1))
    started = attend(engine)

    assert len(started) == 1
    run = get_run(engine, started[0])
    line = state(engine, unique).lines[0]  # another minute may begin meanwhile
    assert run.idempotency_key == schedule_key(unique, line.time)
    assert (line.fate, line.run_id) == (Fate.STARTED, run.run_id)
    assert line.time.second == 0
    assert attend(engine) == []


def test_a_sweep_says_how_many_runs_schedules_started(make: Make, unique: str) -> None:
    engine = make(input={"n": 1})
    due_once(engine, unique)
    engine.schedules.look_at.clear()

    assert sweep_runs(engine).counts()["scheduled"] == 1
    assert sweep_runs(engine).counts()["scheduled"] == 0


def test_the_schedule_fired_twice_after_a_restart(
    make: Make, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the start and its record: the next process starts the same run.

    Also where a deploy has changed the input meanwhile.
    """
    engine = make()
    due_once(engine, unique)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(schedules, "_record", killed)
        with pytest.raises(KeyboardInterrupt):
            attend(engine)
    begun = runs_of(engine, unique)
    restarted = make(input={"n": 2})

    assert attend(restarted) == begun
    assert runs_of(restarted, unique) == begun
    assert fates(restarted, unique) == [Fate.STARTED]
    assert attend(restarted) == []


def test_a_kill_between_the_decision_and_the_start_loses_no_run(
    make: Make, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make()
    due_once(engine, unique)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(schedules, "start_run", killed)
        with pytest.raises(KeyboardInterrupt):
            attend(engine)

    assert runs_of(engine, unique) == []
    assert len(attend(make())) == 1


@pytest.mark.each_store
def test_two_servers_and_a_sweep_at_once_start_one_run(make: Make, unique: str) -> None:
    engines = [make() for _ in range(3)]
    due_once(engines[0], unique)
    ready = threading.Barrier(3)

    def sweep(engine: Engine) -> None:
        engine.schedules.look_at.clear()
        ready.wait()
        attend_schedules(engine, lambda: False)

    threads = [threading.Thread(target=sweep, args=[one]) for one in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(runs_of(engines[0], unique)) == 1
    assert attend(engines[0]) == []
    assert fates(engines[0], unique) == [Fate.STARTED]


@pytest.mark.each_store
def test_a_start_that_is_recorded_late_loses_no_other_one(
    make: Make, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two started the run of one time; as the slow one records that, the next one is owed."""
    slow, fast = make(overlap="allow"), make(overlap="allow")
    attend(slow)
    let_pass(slow.documents, unique, timedelta(minutes=2))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    def go_on() -> None:
        is_over = iter([False, True]).__next__
        assert len(attend_schedules(fast, is_over)) == 1
        with monkeypatch.context() as patch:
            patch.setattr(schedules, "start_run", killed)
            with pytest.raises(KeyboardInterrupt):
                attend(fast)

    late = Overtaken(slow.documents, "schedules", go_on, before=2)
    started = attend(replace(slow, documents=cast(Documents, late)))

    assert len(set(started)) == 2
    assert fates(slow, unique) == [Fate.STARTED] * 2


@pytest.mark.each_store
def test_what_was_read_before_another_process_started_a_run_decides_nothing(
    make: Make, unique: str
) -> None:
    """The run of the next time would begin beside that one, which is not over."""
    slow, fast = make(), make()
    due_once(slow, unique)

    def go_on() -> None:
        assert len(attend(fast)) == 1
        let_pass(fast.documents, unique, timedelta(minutes=1))

    late = Overtaken(slow.documents, "schedules", go_on)

    assert attend(replace(slow, documents=cast(Documents, late))) == []
    assert attend(slow) == []
    assert fates(slow, unique) == [Fate.STARTED, Fate.SKIPPED]


@pytest.mark.each_store
@pytest.mark.parametrize("number", [1, 2, 3], ids=["decided", "started", "recorded"])
def test_a_lost_answer_starts_no_second_run(make: Make, unique: str, number: int) -> None:
    deaf = make()
    due_once(deaf, unique)
    documents = AnswerLost(deaf.documents, number)

    attend(replace(deaf, documents=cast(Documents, documents)))
    attend(make())

    assert documents.is_lost
    assert len(runs_of(deaf, unique)) == 1
    assert fates(deaf, unique) == [Fate.STARTED]


def test_a_time_of_a_run_that_is_not_over_is_skipped_with_the_reason(
    make: Make, unique: str
) -> None:
    engine = make()
    due_once(engine, unique)
    first = attend(engine)[0]
    let_pass(engine.documents, unique, timedelta(minutes=1))

    assert attend(engine) == []
    skipped = state(engine, unique).lines[-1]
    assert skipped.fate is Fate.SKIPPED
    assert first in skipped.reason


def test_one_time_is_buffered_until_the_run_is_over(make: Make, unique: str) -> None:
    engine = make(overlap="buffer_one")
    due_once(engine, unique)
    first = attend(engine)[0]
    let_pass(engine.documents, unique, timedelta(minutes=2))

    assert attend(engine) == []
    assert fates(engine, unique) == [Fate.STARTED, Fate.BUFFERED, Fate.SKIPPED]
    end(engine, first)
    assert len(attend(engine)) == 1
    assert len(runs_of(engine, unique)) == 2


@pytest.mark.parametrize(("overlap", "is_cancelled"), [("cancel_other", True), ("allow", False)])
def test_a_run_beside_another_one(
    make: Make, unique: str, overlap: str, *, is_cancelled: bool
) -> None:
    engine = make(overlap=overlap)
    due_once(engine, unique)
    let_pass(engine.documents, unique, timedelta(minutes=1))

    first, second = attend(engine)

    assert get_run(engine, first).cancelled is is_cancelled
    assert not get_run(engine, second).cancelled


def test_a_time_that_cancels_others_starts_where_the_run_before_is_over(
    make: Make, unique: str
) -> None:
    """A cancellation that is refused would keep the schedule from all times that come after."""
    engine = make(overlap="cancel_other")
    attend(engine)
    let_pass(engine.documents, unique, timedelta(minutes=2))
    (first,) = attend_once(engine)
    end(engine, first)

    (second,) = attend_once(engine)

    assert second != first
    assert not get_run(engine, second).cancelled


def test_a_time_that_is_decided_again_cancels_no_run_of_its_own(make: Make, unique: str) -> None:
    """As where a clock was set back: the start is answered with the run that is there."""
    engine = make(overlap="cancel_other")
    due_once(engine, unique)
    (first,) = attend_once(engine)

    def again(document: Any, _: datetime) -> Write[None]:
        found = state_of(unique, document)
        fields = found.model_copy(update={"starting": found.decided})
        return Write(None, fields.model_dump(exclude_none=True, by_alias=True))

    engine.documents.transact(schedule_ref(unique), again)

    assert attend_once(engine) == [first]
    assert not get_run(engine, first).cancelled


def test_after_a_night_off_what_is_older_than_its_catch_up_is_missed_and_said(
    make: Make, unique: str
) -> None:
    engine = make(cron="0 * * * *", catch_up=timedelta(hours=2), overlap="allow")
    attend(engine)
    let_pass(engine.documents, unique, timedelta(hours=8))

    started = attend(engine)

    assert len(started) in (2, 3)  # the last two hours, and the minutes since the last one
    missed = state(engine, unique).lines[0]
    assert (missed.fate, missed.count) == (Fate.MISSED, 8 - len(started))
    assert "no process attended" in missed.reason


def test_a_paused_schedule_skips_with_who_and_why_and_goes_on_after(
    make: Make, unique: str
) -> None:
    engine = make()
    attend(engine)
    pause_schedule(engine, unique, why="the month is closed", actor="ann")
    let_pass(engine.documents, unique, timedelta(minutes=3))

    assert attend(engine) == []
    skipped = state(engine, unique).lines[-1]
    resume_schedule(engine, unique)
    let_pass(engine.documents, unique, timedelta(minutes=1))

    assert (skipped.fate, skipped.count) == (Fate.SKIPPED, 3)
    assert skipped.reason == "the schedule is paused by ann: the month is closed"
    assert len(attend(engine)) == 1


def test_no_time_of_a_pause_starts_a_run_after_it(make: Make, unique: str) -> None:
    """Also where no sweep came while it lasted, and the time may be caught up."""
    engine = make(cron="0 * * * *", catch_up=timedelta(hours=2))
    attend(engine)
    pause_schedule(engine, unique, why="the month is closed", actor="ann")
    let_pass(engine.documents, unique, timedelta(hours=1))

    resume_schedule(engine, unique)

    assert attend(engine) == []
    assert fates(engine, unique) == [Fate.SKIPPED]


def test_a_changed_cron_starts_nothing_of_the_past(make: Make, unique: str) -> None:
    engine = make(cron="0 0 1 1 *")
    attend(engine)
    let_pass(engine.documents, unique, timedelta(hours=3))

    changed = make(cron="* * * * *")

    assert attend(changed) == []
    assert state(changed, unique).cron == "* * * * *"


def test_a_buffered_time_of_a_schedule_that_changes_its_times_is_skipped_and_said(
    make: Make, unique: str
) -> None:
    """It was dropped without a word: its record went on to say that it waits."""
    engine, first = one_buffered(make, unique)
    buffered = state(engine, unique).buffered

    changed = make(overlap="buffer_one", cron="0 0 1 1 *")
    attend(changed)
    end(changed, first)

    assert attend(changed) == []
    skipped = state(changed, unique).lines[-1]
    assert (skipped.fate, skipped.time) == (Fate.SKIPPED, buffered)
    assert skipped.reason == "the schedule changed its times before this one began"


def test_a_buffered_time_of_a_removed_schedule_waits_for_it_and_is_said(
    make: Make, open_engine: OpenEngine, unique: str
) -> None:
    """As where a schedule is renamed, and named so again."""
    engine, first = one_buffered(make, unique)
    without = open_engine(EMPTY)
    end(engine, first)

    assert attend(without) == []
    found = state(without, unique)
    assert found.buffered is not None
    assert found.problem == (
        "the catalog does not have it any more, so its time "
        f"{found.buffered:%Y-%m-%d %H:%M}Z waits until it has it again"
    )
    assert len(attend(make(overlap="buffer_one"))) == 1
    assert state(engine, unique).problem == ""


def test_a_removed_schedule_starts_nothing_and_is_shown(
    make: Make, open_engine: OpenEngine, unique: str
) -> None:
    due_once(make(), unique)
    make()
    engine = open_engine(EMPTY)

    assert attend(engine) == []
    assert [one.entry for one in list_schedules(engine) if one.name == unique] == [None]
    with pytest.raises(UnknownKeyError):
        pause_schedule(engine, unique, why="x", actor="ann")


def test_a_person_triggers_a_run_and_fills_a_span_back_once(make: Make, unique: str) -> None:
    engine = make(cron="0 6 * * *")
    first, last = datetime(2026, 1, 1, 6, tzinfo=UTC), datetime(2026, 1, 3, 6, tzinfo=UTC)

    triggered = trigger_schedule(engine, unique, actor="ann")
    runs = backfill_schedule(engine, unique, first, last, actor="ann")
    again = backfill_schedule(engine, unique, first, last, actor="bob")

    assert get_run(engine, triggered).labels == (f"schedule:{unique}",)
    assert len(set(runs)) == 3
    assert again == runs
    assert len(runs_of(engine, unique)) == 4
    assert state(engine, unique).lines[-1].reason == "back-filled by ann"
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for wrong in ((last, first), (first, datetime(2999, 1, 1, tzinfo=UTC)), (noon, noon)):
        with pytest.raises(InvalidRequestError):
            backfill_schedule(engine, unique, *wrong, actor="ann")


def test_an_order_with_an_id_is_one_run_and_one_without_is_another_each_time(
    make: Make, unique: str
) -> None:
    """A click was one more run in each second; two people in one second had one between them."""
    engine = make(cron="0 6 * * *")

    first = trigger_schedule(engine, unique, actor="ann", order_id="ticket-1")
    others = {trigger_schedule(engine, unique, actor="bob") for _ in range(3)}
    second = trigger_schedule(engine, unique, actor="bob", order_id="ticket-2")
    again = trigger_schedule(make(cron="0 6 * * *"), unique, actor="ann", order_id="ticket-1")

    assert again == first
    assert sorted(runs_of(engine, unique)) == sorted({first, second, *others})
    assert len({first, second, *others}) == 5
    assert [line.id for line in state(engine, unique).lines][::4] == ["ticket-1", "ticket-2"]


def test_an_order_that_is_sent_again_after_a_kill_is_one_run(
    make: Make, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make(cron="0 6 * * *")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(schedules, "start_run", killed)
        with pytest.raises(KeyboardInterrupt):
            trigger_schedule(engine, unique, actor="ann", order_id="ticket-1")

    run_id = trigger_schedule(engine, unique, actor="ann", order_id="ticket-1")

    assert runs_of(engine, unique) == [run_id]
    assert fates(engine, unique) == [Fate.STARTED]


def order_and_die(engine: Engine, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill one time back in a process that is killed once the run is owed."""
    first, last = datetime(2025, 12, 31, 23, tzinfo=UTC), datetime(2026, 1, 1, 7, tzinfo=UTC)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(schedules, "start_run", killed)
        with pytest.raises(KeyboardInterrupt):
            backfill_schedule(engine, name, first, last, actor="ann")


def test_an_order_whose_process_was_killed_is_carried_out_beside_whatever_runs(
    make: Make, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make(overlap="cancel_other", cron="0 6 * * *")
    running = trigger_schedule(engine, unique, actor="ann")
    order_and_die(engine, unique, monkeypatch)

    started = attend(make(overlap="cancel_other", cron="0 6 * * *"))

    assert len(started) == 1
    assert not get_run(engine, running).is_terminal


def test_the_next_order_of_a_person_starts_what_a_killed_one_left(
    make: Make, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused until the next time of the schedule: no process looked before."""
    engine = make(cron="0 0 1 1 *")
    order_and_die(engine, unique, monkeypatch)

    triggered = trigger_schedule(engine, unique, actor="bob")

    assert len(runs_of(engine, unique)) == 2
    assert triggered in runs_of(engine, unique)
    assert fates(engine, unique) == [Fate.STARTED, Fate.STARTED]


def test_a_process_looks_for_what_a_killed_one_left_long_before_the_next_time(
    make: Make, unique: str
) -> None:
    engine = make(cron="0 0 1 1 *")

    attend(engine)

    ahead = engine.schedules.look_at[unique] - engine.clock.now()
    assert ahead <= timedelta(minutes=10)


def test_a_start_that_fails_is_owed_until_the_next_time_and_then_said(
    make: Make, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make()
    due_once(engine, unique)

    def refuse(*_: object) -> Manifest:
        raise InvalidRequestError(field="input", value="x", allowed="y")

    with monkeypatch.context() as patch:
        patch.setattr(schedules, "start_run", refuse)
        assert attend(engine) == []
        assert "input is" in state(engine, unique).problem
        again = engine.schedules.look_at[unique] - engine.clock.now()
        assert timedelta(seconds=25) < again <= timedelta(seconds=30), "each try is a line"
        let_pass(engine.documents, unique, timedelta(minutes=1))
        attend(engine)

    assert fates(engine, unique)[0] is Fate.MISSED
    assert len(attend(engine)) == 1


def test_schedules_of_one_time_and_pipeline_start_a_run_each(make: Make, unique: str) -> None:
    engine = with_schedules(make(), unique, f"{unique}-0", unique)
    due_once(engine, unique)
    let_pass(engine.documents, f"{unique}-0", timedelta(minutes=1))

    assert len(set(attend(engine))) == 2
    assert [len(runs_of(engine, name)) for name in (f"{unique}-0", unique)] == [1, 1]


def with_schedules(engine: Engine, pipeline: str, *names: str) -> Engine:
    """Return the engine with a schedule of each name, which fires each minute."""
    entries = [ScheduleEntry(name, cron="* * * * *", pipeline=pipeline) for name in names]
    return replace(
        engine, catalog=replace(engine.catalog, schedules=Registry("schedules", entries))
    )


@pytest.mark.each_store
def test_a_schedule_that_a_person_spoilt_keeps_no_other_from_its_times(
    make: Make, unique: str
) -> None:
    spoilt = f"{unique}-0"
    engine = with_schedules(make(), unique, spoilt, unique)
    engine.documents.transact(schedule_ref(spoilt), lambda *_: Write(None, {"decided": "soon"}))
    due_once(engine, unique)

    assert attend(engine) == runs_of(engine, unique)
    assert len(runs_of(engine, unique)) == 1


def test_a_sweep_reads_no_schedule_before_its_time(make: Make) -> None:
    engine = make(cron="0 0 1 1 *")
    attend(engine)

    class Unread:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(name)

    object.__setattr__(engine, "documents", cast(Documents, Unread()))

    assert attend_schedules(engine, lambda: False) == []


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"cron": "0 6 30 2 *"}, "never fires"),
        ({"cron": "soon"}, "1 fields"),
        ({"tz": "Europe/Nowhere"}, "a time zone"),
        ({"tz": "../etc/passwd"}, "a time zone"),
        ({"overlap": "queue"}, "skip, buffer_one, cancel_other, allow"),
        ({"catch_up": 6}, "a timedelta"),
        ({"catch_up": timedelta(days=-1)}, "a timedelta"),
        ({"pipeline": "no-such"}, "pipelines of the catalog"),
        ({"input": {1, 2}}, "JSON values"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused_in_one_line(
    make: Make, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidEntryError, match=says) as refused:
        make(**fields)

    assert "\n" not in str(refused.value)
