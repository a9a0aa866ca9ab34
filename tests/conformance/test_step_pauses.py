"""A step that is paused: nothing of it begins, no run is lost, and all go on when it is resumed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

import pytest

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.domain.change import Change
from leasehold.domain.effect import dispatch_task
from leasehold.domain.lifecycle import Operation
from leasehold.domain.lifecycle.hold import hold_at_alarm
from leasehold.domain.manifest import Manifest, run_ref
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.step_pause import (
    HOLD_LOOK,
    PAUSE_OF_ALL,
    StepPause,
    pause_document,
    pause_id,
    pause_ref,
    stored_pause,
)
from leasehold.domain.stored import Write, replace
from leasehold.domain.summary import head_of, head_paths, summary_of
from leasehold.errors import InvalidRequestError, NothingToClaimError, UnknownKeyError
from leasehold.ports.documents import Documents, Query
from leasehold.registry.pipelines import Catalog
from leasehold.remote_workers.claim_step import acquire_run, claim_step
from leasehold.services import pauses
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, arrive, execute_step
from leasehold.services.explain_run import explain_run
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.paging import WHOLE_RUNS
from leasehold.services.pauses import list_pauses, pause_step, release_held, resume_step
from leasehold.services.read_runs import get_run, timeline_of
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import sweep
from tests.worlds.builders import let_pass
from tests.worlds.engines import OpenEngine
from tests.worlds.wrapped import Overtaken

pytestmark = pytest.mark.one_store


def work(_: StepContext, given: Any) -> Any:
    return given


def _entry(name: str, handler: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=handler,
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        isolation="inline",
        heartbeat_interval=None,
    )


@pytest.fixture
def engine(open_engine: OpenEngine, documents: Documents, unique: str) -> Iterator[Engine]:
    """An engine with a step, and another one for remote workers, that no other test has."""
    here, remote = _entry(unique, f"{__name__}:work"), _entry(f"{unique}-r", "remote")
    catalog = Catalog(
        steps=Registry("dispatch", [here, replace(remote, isolation="process")]),
        pipelines=Registry(
            "pipelines",
            [
                PipelineEntry(name=unique, steps=(unique,)),
                PipelineEntry(name=f"{unique}-r", steps=(f"{unique}-r",)),
            ],
        ),
    )
    yield open_engine(catalog)
    for id_ in (pause_id(unique), pause_id(f"{unique}-r"), PAUSE_OF_ALL):
        documents.delete(pause_ref(id_))


def _begin(engine: Engine, pipeline: str) -> Manifest:
    return start_run(engine, StartRequest(pipeline, {"n": 1})).manifest


def _hint(run: Manifest) -> Hint:
    return Hint(run.run_id, run.position.dispatch.generation)


@pytest.mark.each_store
def test_a_paused_step_holds_its_runs_and_they_go_on_when_it_is_resumed(
    engine: Engine, unique: str
) -> None:
    before, _ = pause_step(engine, unique, why="the provider is down", actor="ann")
    run = _begin(engine, unique)

    outcome = execute_step(engine, _hint(run))

    held = get_run(engine, run.run_id)
    assert outcome is Outcome.PARKED
    assert (held.status, held.position.lease) == (RunStatus.PENDING, None)
    assert held.held is not None
    assert (held.held.set_by, held.held.why) == ("ann", "the provider is down")
    assert held.alarm_at == held.updated_at + HOLD_LOOK  # a sweep reads it once an hour
    assert [one.words for one in list_pauses(engine) if one.step_type == unique] == [before.words]

    resumed = resume_step(engine, unique)

    assert (resumed.released, resumed.more) == (1, False)
    freed = get_run(engine, run.run_id)
    assert freed.held is None
    assert engine.tasks.exists(dispatch_task(freed))
    assert execute_step(engine, _hint(freed)) is Outcome.COMPLETED
    events = timeline_of(engine, run.run_id)
    assert any("paused by ann" in (event.detail or "") for event in events)
    assert list_pauses(engine) == []


def test_why_a_list_and_a_duplicate_say_who_holds_a_run(engine: Engine, unique: str) -> None:
    run = _begin(engine, unique)
    pause_step(engine, unique, why="the provider is down", actor="ann")

    to_come = explain_run(engine, run.run_id, is_gone=lambda _: False).explanation.words
    execute_step(engine, _hint(run))
    first = get_run(engine, run.run_id)
    execute_step(engine, _hint(run))  # the same task once more

    words = explain_run(engine, run.run_id, is_gone=lambda _: False).explanation.words
    for sentence in (to_come, words):
        assert f"step {unique} is paused by ann since " in sentence
        assert "the provider is down" in sentence
        assert f"`leasehold resume --step {unique}`" in sentence
    assert get_run(engine, run.run_id) == first
    query = Query("runs", order_by="createdAt", descending=True, fields=head_paths([unique]))
    heads = [found for found in engine.documents.query(query) if found.ref.id == run.run_id]
    summary = summary_of(head_of(run.run_id, heads[0].document))
    assert summary.held == first.held == summary_of(first).held


def test_an_attempt_that_runs_ends_as_it_likes_and_no_other_begins(
    engine: Engine, unique: str
) -> None:
    run = _begin(engine, unique)
    arrived = arrive(engine, _hint(run))

    pause_step(engine, None, why="the database is moved", actor="ann")

    assert arrived.answer.outcome is Outcome.ACQUIRED
    other = _begin(engine, unique)
    assert execute_step(engine, _hint(other)) is Outcome.PARKED
    assert get_run(engine, run.run_id).position.lease is not None  # nobody ended it


def test_a_remote_worker_claims_nothing_of_a_paused_step_and_no_wait_gives_the_run_up(
    engine: Engine, unique: str
) -> None:
    step = f"{unique}-r"
    run = _begin(engine, step)
    pause_step(engine, step, why="maintenance", actor="ann")

    with pytest.raises(NothingToClaimError, match="paused by ann"):
        claim_step(engine, step, "worker-1")
    with pytest.raises(NothingToClaimError, match="paused by ann"):
        acquire_run(engine, run.run_id, "worker-1")
    let_pass(engine.documents, run.run_id, timedelta(hours=3))  # longer than it may wait
    sweep(engine, among={run.run_id})
    held = get_run(engine, run.run_id)
    resume_step(engine, step)

    assert held.held is not None
    assert not held.dead_lettered
    assert claim_step(engine, step, "worker-1").manifest.run_id == run.run_id


def test_a_run_that_is_held_while_its_step_is_resumed_goes_on(
    engine: Engine, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process knew the pause still, and the resume had looked for held runs before."""
    pause_step(engine, unique, why="short", actor="ann")
    run = _begin(engine, unique)
    engine.documents.delete(pause_ref(pause_id(unique)))  # as the resume of another process left it

    outcome = execute_step(engine, _hint(run))

    assert outcome is Outcome.REDISPATCHED
    assert get_run(engine, run.run_id).held is None


@pytest.mark.each_store
def test_a_resume_that_was_killed_is_finished_by_the_sweep(
    engine: Engine, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause_step(engine, unique, why="short", actor="ann")
    run = _begin(engine, unique)
    execute_step(engine, _hint(run))

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pauses, "release_held", killed)
        with pytest.raises(KeyboardInterrupt):
            resume_step(engine, unique)
    assert get_run(engine, run.run_id).held is not None

    pauses.continue_resumes(engine, 5.0)
    assert get_run(engine, run.run_id).held is None

    let_pass_since_end(engine, unique)
    pauses.continue_resumes(engine, 5.0)
    assert engine.documents.get(pause_ref(pause_id(unique))) is None


def test_a_run_that_a_killed_process_held_after_the_resume_goes_on_with_the_next_sweep(
    engine: Engine, unique: str
) -> None:
    """The process knew of no end of the pause; it would have been held for an hour."""
    pause_step(engine, unique, why="short", actor="ann")
    run = _begin(engine, unique)
    resume_step(engine, unique)
    hold = partial(hold_at_alarm, rules=replace(engine.rules, pauses=paused(unique)))
    engine.commit(run.run_id, lambda found, now: cast(Change, hold(found, now)))
    assert get_run(engine, run.run_id).held is not None
    engine.overrides.read()  # as every 10 s

    pauses.continue_resumes(engine, 5.0)

    assert get_run(engine, run.run_id).held is None
    assert execute_step(engine, _hint(get_run(engine, run.run_id))) is Outcome.COMPLETED


def paused(step: str) -> Mapping[str, StepPause]:
    return {pause_id(step): StepPause(id=pause_id(step), why="short", set_by="ann")}


def let_pass_since_end(engine: Engine, step: str) -> None:
    """Have the pause of a step lie as far back as it is looked for."""

    def earlier(document: Any, _: datetime) -> Write[None]:
        pause = stored_pause(pause_id(step), document)
        assert pause.resumed_at is not None
        at = pause.resumed_at - timedelta(minutes=1)
        return Write(None, pause_document(replace(pause, resumed_at=at)))

    engine.documents.transact(pause_ref(pause_id(step)), earlier)


def test_a_pause_that_was_deleted_by_hand_holds_nothing_after_the_next_look(
    engine: Engine, unique: str
) -> None:
    pause_step(engine, unique, why="short", actor="ann")
    run = _begin(engine, unique)
    execute_step(engine, _hint(run))
    engine.documents.delete(pause_ref(pause_id(unique)))
    engine.overrides.read()

    let_pass(engine.documents, run.run_id, HOLD_LOOK + timedelta(minutes=1))
    sweep(engine, among={run.run_id})

    assert get_run(engine, run.run_id).held is None
    assert pause_id(unique) not in [one.id for one in list_pauses(engine)]


def test_a_pause_that_is_set_again_as_the_one_before_is_forgotten_holds(
    engine: Engine, unique: str
) -> None:
    """A sweep looks for what the one before still holds, and has seen its end."""
    pause_step(engine, unique, why="once", actor="ada")
    resume_step(engine, unique)
    let_pass_since_end(engine, unique)

    def again() -> None:
        pause_step(engine, unique, why="again", actor="bob")

    late = replace(engine, documents=Overtaken(engine.documents, "overrides", again))
    release_held(late, pause_id(unique))
    release_held(engine, pause_id(unique))

    assert "again" in [one.why for one in list_pauses(engine)]


def test_a_run_that_is_written_while_its_step_is_resumed_goes_on_as_well(
    engine: Engine, unique: str
) -> None:
    pause_step(engine, unique, why="short", actor="ann")
    run = _begin(engine, unique)
    execute_step(engine, _hint(run))

    def write() -> None:
        engine.documents.transact(run_ref(run.run_id), lambda found, _: Write(None, found))

    late = replace(engine, documents=Overtaken(engine.documents, "runs", write, before=1))
    resumed = resume_step(late, unique)

    assert (resumed.released, resumed.more) == (1, False)
    assert get_run(engine, run.run_id).held is None


def test_another_pause_holds_a_run_that_one_of_them_let_go(engine: Engine, unique: str) -> None:
    pause_step(engine, unique, why="the step", actor="ann")
    run = _begin(engine, unique)
    execute_step(engine, _hint(run))
    pause_step(engine, None, why="everything", actor="bob")

    resume_step(engine, unique)
    outcome = execute_step(engine, _hint(get_run(engine, run.run_id)))
    held = get_run(engine, run.run_id).held
    resume_step(engine, None)

    assert outcome is Outcome.PARKED
    assert held is not None
    assert held.set_by == "bob"
    assert execute_step(engine, _hint(get_run(engine, run.run_id))) is Outcome.COMPLETED


def test_people_may_pause_resume_and_cancel_a_run_that_is_held(engine: Engine, unique: str) -> None:
    pause_step(engine, unique, why="short", actor="ann")
    run, other = _begin(engine, unique), _begin(engine, unique)
    for one in (run, other):
        execute_step(engine, _hint(one))

    operate(engine, run.run_id, OperationRequest(Operation.PAUSE, actor="bob"))
    operate(engine, other.run_id, OperationRequest(Operation.CANCEL, actor="bob"))
    resumed = resume_step(engine, unique)

    assert resumed.released == 0
    assert get_run(engine, run.run_id).paused  # a person's own pause stays
    assert get_run(engine, other.run_id).cancelled
    operate(engine, run.run_id, OperationRequest(Operation.RESUME, actor="bob"))
    assert execute_step(engine, _hint(get_run(engine, run.run_id))) is Outcome.COMPLETED


def test_a_sweep_releases_for_no_longer_than_it_has_and_says_that_there_are_more(
    engine: Engine, unique: str
) -> None:
    """Its request would be ended in the midst of all that it has yet to do."""
    pause_step(engine, unique, why="short", actor="ann")
    run = _begin(engine, unique)
    execute_step(engine, _hint(run))

    assert release_held(engine, pause_id(unique), seconds=0.0) == (0, True)
    assert resume_step(engine, unique).released == 1


@pytest.mark.each_store
def test_many_held_runs_go_on_in_one_go(engine: Engine, unique: str) -> None:
    """More than a page of them."""
    many = WHOLE_RUNS + 5
    pause_step(engine, unique, why="short", actor="ann")
    runs = [_begin(engine, unique) for _ in range(many)]
    for run in runs:
        execute_step(engine, _hint(run))

    begun = time.monotonic()
    resumed = resume_step(engine, unique)

    assert (resumed.released, resumed.more) == (many, False)
    assert time.monotonic() - begun < 20
    assert resume_step(engine, unique).released == 0


def test_who_pauses_again_sees_the_pause_before_and_what_is_wrong_changes_nothing(
    engine: Engine, unique: str
) -> None:
    first, none = pause_step(engine, unique, why="one", actor="ann")
    second, replaced = pause_step(engine, unique, why="two", actor="bob")

    assert none is None
    assert replaced == first
    assert (second.set_by, second.why) == ("bob", "two")
    with pytest.raises(UnknownKeyError):
        pause_step(engine, "no-such-step", why="x", actor="ann")
    with pytest.raises(InvalidRequestError, match="why"):
        pause_step(engine, unique, why="", actor="ann")
    assert resume_step(engine, "no-such-step").pause is None
    assert [resume_step(engine, unique).pause for _ in range(2)] == [second, None]
    _, over = pause_step(engine, unique, why="three", actor="ann")
    assert over is None


def test_a_run_without_a_pause_is_written_as_before(engine: Engine, unique: str) -> None:
    run = _begin(engine, unique)

    found = engine.documents.get(run_ref(run.run_id))

    assert found is not None
    assert "held" not in found.document["position"]["dispatch"]
    assert release_held(engine, pause_id(unique)) == (0, False)
