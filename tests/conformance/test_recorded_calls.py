"""Recorded calls in both stores: who records first decides, and nothing of them is left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from leasehold import (
    ContinuedError,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
)
from leasehold.api.results import CallReport
from leasehold.attempt.attempt import Attempt
from leasehold.attempt.calls import AttemptCalls
from leasehold.attempt.settlement import ending_of
from leasehold.domain.change import Change, unchanged
from leasehold.domain.checkpoint import CallCount
from leasehold.domain.lifecycle import Operation, expire, look_again
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Block
from leasehold.domain.recorded_calls import calls_of
from leasehold.domain.result import Continued, Finished, Refused, Stopped
from leasehold.domain.spend import Spend
from leasehold.domain.status import Outcome, Termination
from leasehold.domain.stored import Ref, Write
from leasehold.errors import (
    AwaitConfirmationError,
    CallUnconfirmedError,
    InvalidRequestError,
    LeaseLostError,
    NotAllowedError,
    StoreUnavailableError,
)
from leasehold.ports.documents import Documents, Query
from leasehold.registry.pipelines import Catalog
from leasehold.services.batch import batch
from leasehold.services.engine import Engine, publish_owed
from leasehold.services.execute_step import Hint, arrive, execute_step
from leasehold.services.explain_run import explain_run
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.purge import purge
from leasehold.services.read_results import list_calls
from leasehold.services.read_runs import RunFilter, get_run, timeline_of
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import sweep
from leasehold.worker.context.once import OnUnknown
from tests.conformance.test_temporary_files import LosesAnswer
from tests.worlds.engines import OpenEngine
from tests.worlds.wrapped import Overtaken, Wrapped

pytestmark = [pytest.mark.one_store, pytest.mark.catalog(__name__)]

PAID: list[str] = []


def pay(what: str) -> str:
    PAID.append(what)
    return f"{what} {len(PAID)}"


def large(text: str) -> str:
    return text * 100_000


def asks(ctx: StepContext, given: dict[str, Any]) -> list[str]:
    return [ctx.once(f"ask {number}", pay, f"ask {number}") for number in range(3)]


#: What the prompt of `varies` says beside the question; its code says the time of day.
TIMES: list[int] = []


def varies(ctx: StepContext, given: dict[str, Any]) -> str:
    if len(TIMES) <= 20:  # else it is repaired
        TIMES.append(len(TIMES))
        ctx.once("ask", pay, "ask", request={"model": "m", "prompt": f"at {TIMES[-1]}"})
        ctx.continue_later()
    return ctx.once("ask", pay, "ask", request={"model": "m", "prompt": "at noon"})


def ends(ctx: StepContext, given: list[str]) -> list[str]:
    return given


def _entry(name: str, handler: str = "") -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{handler or name}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
    )


STEPS = Registry("dispatch", [_entry("asks"), _entry("ends"), _entry("varies")])
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="asks", steps=("asks", "ends")),
        PipelineEntry(name="varies", steps=("varies",)),
    ],
)


@pytest.fixture(autouse=True)
def forget() -> None:
    PAID.clear()
    TIMES.clear()


def begun(engine: Engine, label: str = "x") -> str:
    return start_run(engine, StartRequest("asks", {}, labels={"of": label})).manifest.run_id


def worker(engine: Engine, run_id: str) -> StepContext:
    """The context of a worker that takes the lease, and dies without a word unless it settles."""
    hint = Hint(run_id, get_run(engine, run_id).position.dispatch.generation)
    return StepContext(AttemptCalls(engine.leases.attempt_of(engine, arrive(engine, hint))))


def another_holder(engine: Engine, run_id: str) -> Attempt:
    """An attempt on the run as it is stored, under the lease that it has."""

    def look(run: Manifest, _: datetime) -> Change:
        return unchanged(run, Outcome.STARTED)

    return engine.leases.attempt_of(engine, engine.commit(run_id, look))


def next_attempt(engine: Engine, run_id: str) -> Attempt:
    """The attempt after one that ended without a word of its worker."""
    if get_run(engine, run_id).position.lease is not None:
        ended = another_holder(engine, run_id)
        ended.settle(ending_of(ended, Stopped(Termination.INSTANCE_SHUTDOWN)))
    hint = Hint(run_id, get_run(engine, run_id).position.dispatch.generation)
    return engine.leases.attempt_of(engine, arrive(engine, hint))


def stored(engine: Engine, run_id: str) -> list[str]:
    return [one.ref.id for one in engine.documents.query(Query(calls_of(run_id), limit=100))]


@pytest.mark.each_store
def test_two_workers_of_one_step_get_the_result_that_was_recorded_first(engine: Engine) -> None:
    """Both looked before either had called."""
    run_id = begun(engine)
    first = worker(engine, run_id)
    second = StepContext(AttemptCalls(another_holder(engine, run_id)))
    made: list[str] = []

    def in_between(what: str) -> str:
        made.append(second.once("ask", pay, "second"))
        return pay(what)

    got = first.once("ask", in_between, "first")

    assert PAID == ["second", "first"]
    assert got == made[0] == "second 1"
    assert first.once("ask", in_between, "first") == "second 1"


def test_another_request_is_paid_again_from_there_on_and_the_trace_says_why(
    engine: Engine,
) -> None:
    run_id = begun(engine)
    before = worker(engine, run_id)
    asked = {"model": "m-1", "prompt": "shorten"}
    before.once("ask", pay, "a", request=asked)
    before.once("other", pay, "b", request={"prompt": "same"})
    ctx = StepContext(AttemptCalls(next_attempt(engine, run_id)))

    changed = [
        ctx.once("ask", pay, "a", request=asked | {"prompt": "shorten it"}) for _ in range(2)
    ]
    same = ctx.once("other", pay, "b", request={"prompt": "same"})
    old = ctx.once("ask", pay, "a", request=asked)

    assert (changed, same, old) == (["a 3", "a 3"], "b 2", "a 1")
    told = [event for event in timeline_of(engine, run_id) if event.type == "call_diverged"]
    assert [event.detail for event in told] == ["call 'ask': another prompt"]
    assert len(list_calls(engine, run_id).calls) == 3


def test_a_changed_item_of_a_map_is_paid_again_under_the_key_that_it_has(engine: Engine) -> None:
    run_id = begun(engine)

    def mapped(ctx: StepContext, *texts: str) -> list[str]:
        items = [{"id": text[0], "text": text} for text in texts]
        return ctx.map(lambda item: pay(item["text"]), items, at_once=1, key=lambda one: one["id"])

    first = mapped(worker(engine, run_id), "a", "b")
    later = mapped(StepContext(AttemptCalls(next_attempt(engine, run_id))), "a again", "b")

    assert (first, later) == (["a 1", "b 2"], ["a again 3", "b 2"])


def attempts_of(engine: Engine, run_id: str) -> Manifest:
    """The run after all the attempts that are due."""
    while (run := get_run(engine, run_id)).status == "PENDING":
        execute_step(engine, Hint(run_id, run.position.dispatch.generation))
    return run


def test_a_call_that_the_same_code_asks_otherwise_in_each_attempt_is_not_paid_for_without_end(
    engine: Engine,
) -> None:
    """Each result is a new one, so it would count as progress each time."""
    run_id = start_run(engine, StartRequest("varies", {})).manifest.run_id

    blocked = attempts_of(engine, run_id)
    paid = len(PAID)
    operate(engine, run_id, OperationRequest(Operation.RETRY, actor="ada"))
    retried = attempts_of(engine, run_id)

    assert (blocked.status, paid, len(TIMES)) == ("BLOCKED", 4, 7)
    assert blocked.block is not None
    assert blocked.block.code == "handler_mistake"
    assert (
        "paid for again in 3 attempts of the same code, because its prompt differed each time"
        in (blocked.block.finding)
    )
    assert (retried.status, len(PAID)) == ("BLOCKED", 5)  # once more for each word of a person


def test_other_code_that_asks_otherwise_is_paid_once_and_goes_on(engine: Engine) -> None:
    """A deploy that repairs it heals the run."""
    run_id = start_run(engine, StartRequest("varies", {})).manifest.run_id
    attempts_of(engine, run_id)
    deployed = replace(engine, rules=replace(engine.rules, code_hash="of the repaired code"))

    TIMES.extend(range(20))  # repaired
    begins = partial(look_again, rules=deployed.dispatch_rules(), at_once=True)
    deployed.commit(run_id, begins)
    done = attempts_of(deployed, run_id)

    assert (done.status, len(PAID)) == ("COMPLETED", 5)


@pytest.mark.each_store
def test_calls_and_spend_of_a_worker_that_died_without_a_word_are_counted_by_the_next(
    engine: Engine,
) -> None:
    run_id = begun(engine)
    dead = worker(engine, run_id)

    def spends(what: str) -> str:
        dead.spend(tokens=100, usd=0.5)
        return pay(what)

    for number in range(2):
        dead.once(f"ask {number}", spends, f"ask {number}")
    unheard = get_run(engine, run_id)
    held = next_attempt(engine, run_id)
    ctx = StepContext(AttemptCalls(held))
    got = asks(ctx, {})
    held.renew()
    heard = get_run(engine, run_id)

    assert (unheard.steps["asks"].calls, unheard.steps["asks"].spend) == (None, None)
    assert got == ["ask 0 1", "ask 1 2", "ask 2 3"]
    assert heard.steps["asks"].calls == CallCount(made=3, spared=2)
    assert heard.steps["asks"].spend == heard.steps["asks"].spared == Spend(tokens=200, usd=1.0)


@pytest.mark.each_store
def test_they_go_with_their_step_and_what_is_kept_with_the_run(engine: Engine, unique: str) -> None:
    run_id = begun(engine, unique)
    worker(engine, run_id).once("kept", pay, "kept", keep=True)
    held = another_holder(engine, run_id)
    held.settle(ending_of(held, Stopped(Termination.INSTANCE_SHUTDOWN)))
    while not (run := get_run(engine, run_id)).is_terminal:
        execute_step(engine, Hint(run_id, run.position.dispatch.generation))
    left = list_calls(engine, run_id).calls
    # a worker that lost its lease long ago records one more
    late = Ref(calls_of(run_id), f"{run.life}-0123456789ab-t1-0-late")
    engine.documents.transact(late, lambda _, __: Write(None, {"step": "asks"}), is_new=True)

    later = engine.clock.now() + timedelta(hours=1)
    done = purge(engine, RunFilter(label=f"of:{unique}"), ended_before=later)

    assert [call.key for call in left] == ["kept"]
    assert (done.purged, stored(engine, run_id)) == (1, [])


@pytest.mark.each_store
@pytest.mark.parametrize("size", [10, 100_000])
def test_a_frozen_worker_leaves_nothing_of_a_run_that_was_purged_meanwhile(
    engine: Engine, unique: str, tmp_path: Path, size: int
) -> None:
    """Its call was under way when it froze, and is recorded when it wakes: no sweep looks there."""
    run_id = begun(engine, unique)
    held = next_attempt(engine, run_id)

    def frozen() -> str:
        operate(engine, run_id, OperationRequest(Operation.CANCEL, actor="ada"))
        later = engine.clock.now() + timedelta(hours=1)
        assert purge(engine, RunFilter(label=f"of:{unique}"), ended_before=later).purged == 1
        held.ends_at = engine.clock.monotonic()
        return "x" * size

    with pytest.raises(LeaseLostError):
        StepContext(AttemptCalls(held)).once("ask", frozen)

    assert stored(engine, run_id) == []
    assert not list((tmp_path / "artifacts").rglob(f"*{run_id}*/**/*.*"))


class KilledError(BaseException):
    """Stands for a kill: nothing after it is done."""


def killed_in_call(engine: Engine, run_id: str, on_unknown: OnUnknown) -> None:
    """A worker that dies while its call is under way, which has happened."""

    def charge(amount: int) -> str:
        pay(f"charge {amount}")
        raise KilledError

    with pytest.raises(KilledError):
        worker(engine, run_id).once("charge", charge, 7, on_unknown=on_unknown)


def charges(engine: Engine, run_id: str, on_unknown: OnUnknown) -> Any:
    held = next_attempt(engine, run_id)
    try:
        return StepContext(AttemptCalls(held)).once("charge", pay, "again", on_unknown=on_unknown)
    except ContinuedError as error:
        held.settle(ending_of(held, Continued()))
        return error


def test_a_call_that_may_have_happened_waits_for_a_person_who_has_its_result(
    engine: Engine,
) -> None:
    run_id = begun(engine)
    killed_in_call(engine, run_id, "ask")

    asked = charges(engine, run_id, "ask")
    blocked = get_run(engine, run_id)
    (listed,) = [CallReport.of(one) for one in list_calls(engine, run_id).calls]
    refused = pytest.raises(InvalidRequestError, match="the result of the call charge")
    with refused:
        operate(engine, run_id, OperationRequest(Operation.APPROVE, actor="ada"))
    told = OperationRequest(Operation.APPROVE, actor="ada", output="charged")
    operate(engine, run_id, told)
    ctx = StepContext(AttemptCalls(next_attempt(engine, run_id)))

    assert isinstance(asked, AwaitConfirmationError)
    assert blocked.block is not None
    assert (blocked.status, blocked.block.code) == ("BLOCKED", "call_unconfirmed")
    assert "It was called with: 7." in blocked.block.finding
    assert (listed.is_open, listed.is_large, listed.result) == (True, False, None)
    assert ctx.once("charge", pay, "again", on_unknown="ask") == "charged"
    assert PAID == ["charge 7"]


def test_a_call_that_has_not_happened_is_made_again_where_a_person_says_so(
    engine: Engine,
) -> None:
    run_id = begun(engine)
    killed_in_call(engine, run_id, "ask")
    charges(engine, run_id, "ask")

    operate(engine, run_id, OperationRequest(Operation.RETRY, actor="ada"))
    got = charges(engine, run_id, "ask")

    assert (got, PAID) == ("again 2", ["charge 7", "again"])


@pytest.mark.parametrize("on_unknown", ["repeat", "fail"])
def test_a_call_of_which_nothing_is_known_is_repeated_or_fails(
    engine: Engine, on_unknown: OnUnknown
) -> None:
    run_id = begun(engine)
    killed_in_call(engine, run_id, on_unknown)

    if on_unknown == "repeat":
        assert charges(engine, run_id, on_unknown) == "again 2"
        return
    with pytest.raises(CallUnconfirmedError, match="attempt 1 ended between"):
        charges(engine, run_id, on_unknown)


def test_a_call_that_raises_is_known_to_its_handler_and_may_be_made_again(
    engine: Engine,
) -> None:
    run_id = begun(engine)
    ctx = worker(engine, run_id)

    with pytest.raises(ZeroDivisionError):
        ctx.once("charge", lambda: 1 / 0, on_unknown="ask")
    left = stored(engine, run_id)

    assert (left, ctx.once("charge", pay, "again", on_unknown="ask")) == ([], "again 1")


@pytest.mark.parametrize("document", [{}, {"step": 7}, {"step": "asks", "inline": "1"}])
def test_a_document_that_a_person_has_edited_is_no_result_and_takes_no_place(
    engine: Engine, document: dict[str, Any]
) -> None:
    run_id = begun(engine)
    worker(engine, run_id).once("ask", pay, "first")
    (name,) = stored(engine, run_id)
    engine.documents.transact(Ref(calls_of(run_id), name), lambda _, __: Write(None, document))
    held = next_attempt(engine, run_id)

    got = StepContext(AttemptCalls(held)).once("ask", pay, "again")

    assert (got, len(list_calls(engine, run_id).calls)) == ("again 2", 1)


def asked_about(engine: Engine, unique: str) -> str:
    """A run that waits for a person who knows whether a call has happened."""
    run_id = begun(engine, unique)
    killed_in_call(engine, run_id, "ask")
    charges(engine, run_id, "ask")
    return run_id


def approved(engine: Engine, run_id: str, output: Any = "charged") -> None:
    operate(engine, run_id, OperationRequest(Operation.APPROVE, actor="ada", output=output))


def test_who_asks_what_could_be_done_has_not_answered_for_a_call(
    engine: Engine, unique: str
) -> None:
    run_id = asked_about(engine, unique)
    before = stored(engine, run_id)

    asked = explain_run(engine, run_id, is_gone=lambda _: False)
    retry = OperationRequest(Operation.RETRY, actor="bob")
    batch(engine, retry, RunFilter(label=f"of:{unique}"), limit=9, dry_run=True)
    left = stored(engine, run_id)
    approved(engine, run_id)

    assert left == before
    assert {"approve", "retry"} <= {one.value for one in asked.explanation.operations}
    assert charges(engine, run_id, "ask") == "charged"
    assert PAID == ["charge 7"]


class Meanwhile(Wrapped[Documents]):
    """A store with another person at work: something happens when a call is looked at."""

    happens: Callable[[Ref], object] = staticmethod(lambda _: None)

    def get(self, ref: Ref) -> Any:
        found = self.inner.get(ref)
        if ref.collection.endswith("/calls"):
            self.happens(ref)
        return found


class AwayForRuns(Wrapped[Documents]):
    """A store that takes what lies beside a run, and then is away."""

    def transact(self, ref: Ref, *given: Any, **named: Any) -> Any:
        if ref.collection == "runs":
            raise StoreUnavailableError(store="store", problem="it is away")
        return self.inner.transact(ref, *given, **named)


@pytest.mark.each_store
def test_of_two_people_who_answer_at_once_the_one_whose_answer_is_taken_counts(
    engine: Engine, unique: str
) -> None:
    """Ada says that it happened. Bob says that it did not, and is refused: it is not paid again."""
    run_id = asked_about(engine, unique)
    store = Meanwhile(engine.documents)
    store.happens = engine.documents.delete  # all that Bob's word does before it is decided

    approved(replace(engine, documents=store), run_id)
    with pytest.raises(NotAllowedError):
        operate(engine, run_id, OperationRequest(Operation.RETRY, actor="bob"))

    assert charges(engine, run_id, "ask") == "charged"
    assert PAID == ["charge 7"]


@pytest.mark.parametrize("large", [False, True])
def test_an_answer_that_did_not_get_through_decides_nothing(
    engine: Engine, unique: str, *, large: bool
) -> None:
    """She was wrong, and corrects it."""
    run_id = asked_about(engine, unique)
    away = AwayForRuns(engine.documents)
    text = "y" * 100_000 if large else "right"
    with pytest.raises(StoreUnavailableError):
        approved(replace(engine, documents=away), run_id, "wrong")
    approved(engine, run_id, text)

    assert charges(engine, run_id, "ask") == text
    assert [one.is_open for one in list_calls(engine, run_id).calls] == [None]
    assert PAID == ["charge 7"]


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_question_that_the_handler_got_on_without_is_none_for_its_gate(
    engine: Engine, unique: str, *, is_refused: bool
) -> None:
    """An agent caught it, and returned something else."""
    run_id = begun(engine, unique)
    killed_in_call(engine, run_id, "ask")
    held = next_attempt(engine, run_id)
    with pytest.raises(AwaitConfirmationError):
        StepContext(AttemptCalls(held)).once("charge", pay, "again", on_unknown="ask")

    found = Block(code="gate", finding="It is short.", remediation="Write more.")
    result = Refused('["done"]', "SUCCESS", found) if is_refused else Finished('["done"]')
    held.settle(ending_of(held, result))
    judged = get_run(engine, run_id)
    if is_refused:
        operate(engine, run_id, OperationRequest(Operation.APPROVE, actor="ada"))

    run = get_run(engine, run_id)
    assert judged.position.unconfirmed_call is None
    assert (run.position.step, run.steps["asks"].output) == ("ends", '["done"]')


def test_a_paused_run_keeps_an_answer_for_a_call_until_it_is_resumed(
    engine: Engine, unique: str
) -> None:
    run_id = asked_about(engine, unique)
    operate(engine, run_id, OperationRequest(Operation.PAUSE, actor="ada"))
    approved(engine, run_id)
    paused = get_run(engine, run_id)
    operate(engine, run_id, OperationRequest(Operation.RESUME, actor="ada"))

    assert (paused.paused, paused.position.lease) == (True, None)
    assert charges(engine, run_id, "ask") == "charged"
    assert PAID == ["charge 7"]


def recreated(engine: Engine, run_id: str, from_step: str | None = None) -> str:
    operate(engine, run_id, OperationRequest(Operation.CANCEL, actor="ada"))
    again = OperationRequest(Operation.RECREATE, actor="ada", from_step=from_step)
    change = operate(engine, run_id, again)
    assert change.created is not None
    return change.created.run_id


@pytest.mark.parametrize("has_happened", [True, False])
def test_a_recreated_run_takes_the_answer_for_a_call_of_the_run_before_it(
    engine: Engine, unique: str, has_happened: bool
) -> None:
    old = asked_about(engine, unique)
    run_id = recreated(engine, old)

    asked = charges(engine, run_id, "ask")
    if has_happened:
        approved(engine, run_id)
    else:
        operate(engine, run_id, OperationRequest(Operation.RETRY, actor="ada"))

    assert isinstance(asked, AwaitConfirmationError)
    assert charges(engine, run_id, "ask") == ("charged" if has_happened else "again 2")


@pytest.mark.each_store
def test_the_intent_whose_answer_was_lost_is_that_of_the_call_to_be_made(
    engine: Engine, unique: str
) -> None:
    """A call that was never begun is no question for a person."""
    run_id = begun(engine, unique)
    store = LosesAnswer(engine.documents)
    store.is_next = False
    ctx = worker(replace(engine, documents=store), run_id)
    store.is_next = True

    got = ctx.once("charge", pay, "charge", on_unknown="ask")

    assert (got, store.is_next) == ("charge 1", False)


def test_a_call_that_is_announced_when_its_lease_is_over_is_not_made(
    engine: Engine, unique: str
) -> None:
    """The store was slow; another worker has the step, and a person may be asked by then."""
    run_id = begun(engine, unique)
    held: list[Attempt] = []

    def let_it_be_over() -> None:
        held[0].ends_at = engine.clock.monotonic()

    slow = Overtaken(engine.documents, calls_of(run_id), let_it_be_over, before=1)
    hint = Hint(run_id, 1)
    held += [engine.leases.attempt_of(replace(engine, documents=slow), arrive(engine, hint))]

    with pytest.raises(LeaseLostError):
        StepContext(AttemptCalls(held[0])).once("charge", pay, "charge", on_unknown="ask")

    assert PAID == []
    assert charges(engine, run_id, "ask") == "again 1", "nothing is asked of a person"


def test_a_call_that_fails_its_step_is_asked_about_in_the_run_that_goes_on(
    engine: Engine, unique: str
) -> None:
    old = begun(engine, unique)
    killed_in_call(engine, old, "fail")
    with pytest.raises(CallUnconfirmedError):
        charges(engine, old, "fail")
    run_id = recreated(engine, recreated(engine, old))

    asked = charges(engine, run_id, "fail")
    approved(engine, run_id)

    assert isinstance(asked, AwaitConfirmationError)
    assert (charges(engine, run_id, "fail"), PAID) == ("charged", ["charge 7"])


def test_a_call_whose_result_is_lost_is_not_made_again_without_an_answer(
    engine: Engine, unique: str, tmp_path: Path
) -> None:
    run_id = begun(engine, unique)
    worker(engine, run_id).once("charge", large, "x", on_unknown="ask")
    (file,) = tmp_path.rglob("*.json.gz")
    file.unlink()

    asked = charges(engine, run_id, "ask")
    approved(engine, run_id, "y" * 100_000)

    assert isinstance(asked, AwaitConfirmationError)
    assert (charges(engine, run_id, "ask"), PAID) == ("y" * 100_000, [])


@pytest.mark.each_store
@pytest.mark.parametrize("keep", [True, False])
def test_the_late_result_of_a_lost_worker_takes_the_place_of_what_another_is_to_make(
    engine: Engine, unique: str, keep: bool
) -> None:
    """A person said that the call has not happened, and it was only slow."""
    run_id = begun(engine, unique)
    zombie = worker(engine, run_id)

    def slow() -> str:
        charges(engine, run_id, "ask")
        operate(engine, run_id, OperationRequest(Operation.RETRY, actor="ada"))
        return pay("slow")

    got = zombie.once("charge", slow, on_unknown="ask", keep=keep)

    assert got == charges(engine, run_id, "ask") == "slow 1"


def test_a_step_whose_workers_are_killed_at_once_is_not_given_up_while_it_records(
    engine: Engine, unique: str
) -> None:
    """None of them lives long enough for a beat; that each got further is known nevertheless."""
    run_id = begun(engine, unique)

    for number in range(2 * engine.rules.max_interruptions):
        ctx = worker(engine, run_id)
        for before in range(number):
            ctx.once(f"ask {before}", pay, "again")
        ctx.once(f"ask {number}", pay, "first")
        lost_lease(engine, run_id)

    run = get_run(engine, run_id)
    assert (run.is_terminal, set(PAID)) == (False, {"first"})


def test_a_step_whose_workers_are_killed_before_they_record_is_given_up(
    engine: Engine, unique: str
) -> None:
    run_id = begun(engine, unique)
    worker(engine, run_id).once("ask", pay, "first")
    lost_lease(engine, run_id)

    for _ in range(2 + engine.rules.max_interruptions):
        if get_run(engine, run_id).is_terminal:
            break
        worker(engine, run_id).once("ask", pay, "again")
        lost_lease(engine, run_id)

    assert get_run(engine, run_id).dead_letter_reason == "STUCK_IN_PROGRESS"


def test_a_call_without_a_request_is_given_the_last_result_of_its_key(
    engine: Engine, unique: str
) -> None:
    """A deploy took the request out: the last one was paid for what the step was given then."""
    run_id = begun(engine, unique)
    for prompt in ("early", "late"):
        worker(engine, run_id).once("ask", pay, prompt, request={"prompt": prompt})
        lost_lease(engine, run_id)

    assert worker(engine, run_id).once("ask", pay, "again") == "late 2"


def lost_lease(engine: Engine, run_id: str) -> None:
    """The worker was killed, and another process sees that it is gone."""
    lease = get_run(engine, run_id).position.lease
    assert lease is not None
    rules = engine.dispatch_rules()
    end = partial(expire, rules=rules, lease_id=lease.lease_id, holder_gone=True)
    engine.commit(run_id, end)


def test_nothing_is_left_of_a_worker_that_died_where_the_next_makes_no_call(
    engine: Engine, unique: str
) -> None:
    run_id = begun(engine, unique)
    worker(engine, run_id).once("other", large, "x")
    lost_lease(engine, run_id)

    while not (run := get_run(engine, run_id)).is_terminal:
        held = next_attempt(engine, run_id)
        settled = held.settle(ending_of(held, Finished("[]")))
        publish_owed(engine, settled.answer, settled.snapshot)
    engine.threads.errand(lambda: None)

    assert (run.status, stored(engine, run_id)) == ("COMPLETED", [])


def test_a_recreated_run_finds_large_results_of_which_the_cancelled_one_was_not_told(
    engine: Engine, unique: str
) -> None:
    old = begun(engine, unique)
    worker(engine, old).once("ask", large, "x")
    run_id = recreated(engine, old)
    sweep(engine)

    assert worker(engine, run_id).once("ask", large, "y") == "x" * 100_000


@pytest.mark.parametrize("plan", [("asks", "finishes"), ("asks_first", "ends")])
def test_runs_recreated_one_from_another_find_what_the_first_paid_after_a_step_was_renamed(
    open_engine: OpenEngine, engine: Engine, plan: tuple[str, str]
) -> None:
    """Results of a step that is there by its name no longer are not looked for."""
    is_there = plan[0] == "asks"
    steps = Registry("dispatch", [_entry(plan[0], "asks"), _entry(plan[1], "ends")])
    catalog = Catalog(steps, Registry("pipelines", [PipelineEntry(name="asks", steps=plan)]))
    old = begun(engine)
    worker(engine, old).once("ask", pay, "first")
    second = recreated(engine, old)
    worker(engine, second).once("ask more", pay, "second")

    deployed = open_engine(catalog)
    third = recreated(deployed, second, None if is_there else plan[0])
    worker(deployed, third).once("ask", pay, "third")
    fourth = recreated(deployed, third)
    ctx = worker(deployed, fourth)
    got = [ctx.once(key, pay, "fourth") for key in ("ask", "ask more")]

    assert got == (["first 1", "second 2"] if is_there else ["third 3", "fourth 4"])
