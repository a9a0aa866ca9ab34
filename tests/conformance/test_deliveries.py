"""The guard on both stores: each announcement is sent once, and what is not known is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Barrier, Event, Semaphore
from typing import Any, cast

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.in_process_events import UndeliveredEvents
from leasehold.bootstrap import Hooks
from leasehold.domain import delivery_rules, lifecycle
from leasehold.domain.announcement import Announcement
from leasehold.domain.delivery import Claim, Delivery, DeliveryState, delivery_of, delivery_ref
from leasehold.domain.event_message import EventMessage
from leasehold.domain.manifest import Manifest, run_ref, to_document
from leasehold.domain.status import RunStatus
from leasehold.domain.stored import Ref, StoredDocument, Write, replace
from leasehold.domain.trace import run_mark
from leasehold.errors import (
    ChannelRefusedError,
    ChannelUnansweredError,
    ChannelUnavailableError,
    DeliveryClaimedError,
    StoreUnavailableError,
    UnknownDeliveryError,
    UnknownKeyError,
)
from leasehold.ports.documents import Documents, Query
from leasehold.registry.channels import LogChannel
from leasehold.registry.pipelines import Catalog
from leasehold.registry.registry import Registry
from leasehold.services import due_deliveries
from leasehold.services.deliver_notification import (
    DeliveryHint,
    DeliveryOutcome,
    DeliveryRecord,
    deliver,
)
from leasehold.services.due_deliveries import request_delivery
from leasehold.services.engine import Engine, find_run
from leasehold.services.sweep import sweep
from tests.worlds.builders import new_run
from tests.worlds.catalogs.sample import PIPELINES, STEPS
from tests.worlds.engines import engine_on_store
from tests.worlds.queues import Bus, SeenByAll
from tests.worlds.wrapped import Overtaken, Wrapped

pytestmark = pytest.mark.one_store

CHANNELS = Registry("channels", [LogChannel(name="pager"), LogChannel(name="chat")])


class Clock(SystemClock):
    """The machine's clock; waits in a test are skipped."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.ahead = 0.0

    @property
    def skip(self) -> Callable[[float], object]:
        return self.advance

    def advance(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.ahead += seconds

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead)

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Store(Wrapped[Documents]):
    """A store that is as far ahead as the clock, and fails, or loses an answer, as ordered."""

    def __init__(self, inner: Documents, clock: Clock) -> None:
        super().__init__(inner)
        self._clock = clock
        self._failures = 0
        self._loses_answer = False
        self._frozen_s = 0.0

    def fail(self, times: int) -> None:
        self._failures = times

    def lose_answer(self) -> None:
        self._loses_answer = True

    def freeze(self, seconds: float) -> None:
        """Have the process freeze between the next commit and its answer."""
        self._frozen_s = seconds

    def transact(self, ref: Ref, decide: Any, **more: Any) -> Any:
        def ahead(document: Any, now: datetime) -> Any:
            return decide(document, now + timedelta(seconds=self._clock.ahead))

        is_delivery = ref.collection == "deliveries"
        if self._failures and is_delivery:
            self._failures -= 1
            raise StoreUnavailableError(store="test", problem="it is away")
        answer = self.inner.transact(ref, ahead, **more)
        if self._frozen_s and is_delivery:
            self._clock.advance(self._frozen_s)
            self._frozen_s = 0.0
        if self._loses_answer and is_delivery:
            self._loses_answer = False
            raise StoreUnavailableError(store="test", problem="the answer was lost")
        return answer


class Provider:
    """Takes what it is sent, or does what a test says."""

    def __init__(self, *answers: Exception | Callable[[], object]) -> None:
        self.taken: list[str] = []
        self.answers = list(answers)

    def send(self, delivery: Delivery, *, timeout: float) -> str | None:  # noqa: ARG002 - a port
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, ChannelUnansweredError):
            self.taken.append(delivery.key)
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            answer()
        self.taken.append(delivery.key)
        return f"message-{len(self.taken)}"


class BusAway:
    def __init__(self) -> None:
        self.asked = 0

    def publish(self, _: Sequence[EventMessage]) -> None:
        self.asked += 1
        raise StoreUnavailableError(store="bus", problem="it is away")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(documents: Documents, clock: Clock) -> Store:
    return Store(documents, clock)


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def reports() -> list[Any]:
    return []


@pytest.fixture
def engine(
    documents: Documents,
    store: Store,
    clock: Clock,
    provider: Provider,
    reports: list[Any],
    tmp_path: Path,
) -> Iterator[Engine]:
    """An engine on a store of which no delivery is due when a test begins."""
    hooks, tasks = Hooks(report=reports.append), SeenByAll(clock)
    catalog = Catalog(STEPS, PIPELINES, channels=CHANNELS)
    with engine_on_store(
        *(store, tmp_path, catalog),
        clock=clock,
        tasks=tasks,
        hooks=hooks,
        PIPELINE_DELIVERY_TIMEOUT_S="20",
    ) as engine:
        channels = replace(engine.channels, open=lambda _: provider)
        yield replace(engine, events=UndeliveredEvents(), channels=channels)
    for found in documents.query(Query("deliveries", order_by="alarmAt", limit=1000)):
        documents.delete(found.ref)
    for channel in ("pager", "chat"):
        documents.delete(Ref("breakers", channel))


def owed(engine: Engine, run_id: str, channel: str = "pager", **fields: Any) -> DeliveryHint:
    """Store what a channel is owed of a run since a moment ago; return the hint at it."""
    now = engine.clock.now()
    usable: dict[str, Any] = {
        "run_id": run_id,
        "occurrence": "3",
        "channel": channel,
        "pipeline": "three",
        "event": "run_completed",
        "priority": "normal",
        "step": "send",
        "summary": "Run r of pipeline three is completed.",
        "mark": "0123abcd",
        "state": DeliveryState.DUE,
        "created_at": now,
        "updated_at": now,
        "alarm_at": now + timedelta(minutes=1),
        "give_up_at": now + timedelta(days=1),
    }
    delivery = Delivery(**(usable | fields))
    put = Write(None, StoredDocument(delivery))
    engine.documents.transact(delivery_ref(run_id, "3", channel), lambda _, __: put)
    return DeliveryHint(run_id, "3", channel)


def ended(engine: Engine, run_id: str, **fields: Any) -> Manifest:
    """Store a run that announced its end to the pager."""
    pipeline = engine.catalog.pipeline("three")
    new = new_run(run_id, pipeline=pipeline.name, plan=pipeline.plan)
    now = engine.clock.now()
    told = Announcement(occurrence="3", event="run_completed", at=now, channels=("pager",))
    run = lifecycle.start(None, now, rules=engine.rules, new=new).manifest
    run = replace(run, **({"announcement": told, "alarm_at": None} | fields))
    engine.documents.transact(run_ref(run_id), lambda _, __: Write(None, to_document(run)))
    return run


def stored(engine: Engine, hint: DeliveryHint) -> Delivery:
    ref = delivery_ref(hint.run_id, hint.occurrence, hint.channel)
    found = engine.documents.get(ref)
    assert found is not None
    return delivery_of(ref, found.document)


def traced(engine: Engine, hint: DeliveryHint) -> list[Any]:
    found = engine.documents.query(Query(f"runs/{hint.run_id}/trace"))
    return [one.document for one in found]


def unavailable(**details: Any) -> ChannelUnavailableError:
    return ChannelUnavailableError(channel="pager", problem="503", **details)


@pytest.mark.each_store
def test_what_is_due_is_sent_once_recorded_and_traced(
    engine: Engine, provider: Provider, reports: list[Any], unique: str
) -> None:
    hint = owed(engine, unique)

    outcomes = [deliver(engine, hint), deliver(engine, hint)]

    assert outcomes == [DeliveryOutcome.ANNOUNCED, DeliveryOutcome.DUPLICATE]
    assert provider.taken == [f"{unique}:3:pager:0123abcd"]
    after = stored(engine, hint)
    assert (after.state, after.message_id, after.tries, after.unknown) == (
        DeliveryState.ANNOUNCED,
        "message-1",
        1,
        0,
    )
    assert (after.alarm_at, after.claim) == (None, None)
    (event,) = traced(engine, hint)
    assert (event["type"], event["channel"], event["messageId"]) == (
        "announcement_sent",
        "pager",
        "message-1",
    )
    (line,) = reports
    assert (line["event"], line["severity"], line["runEvent"]) == (
        "ANNOUNCEMENT_SENT",
        "INFO",
        "run_completed",
    )


@pytest.mark.each_store
def test_many_messages_at_once_send_once(engine: Engine, provider: Provider, unique: str) -> None:
    hint = owed(engine, unique)
    together = Barrier(6)

    def come_by(_: int) -> DeliveryOutcome:
        together.wait(30)
        return deliver(engine, hint)

    with ThreadPoolExecutor(6) as pool:
        outcomes = sorted(pool.map(come_by, range(6)))

    assert len(provider.taken) == 1
    assert outcomes.count(DeliveryOutcome.ANNOUNCED) == 1
    assert set(outcomes) <= {
        DeliveryOutcome.ANNOUNCED,
        DeliveryOutcome.CLAIMED,
        DeliveryOutcome.DUPLICATE,
    }


@pytest.mark.each_store
def test_who_read_it_before_another_claimed_it_sends_nothing(
    engine: Engine, provider: Provider, unique: str
) -> None:
    hint = owed(engine, unique)

    rules = engine.rules.delivery
    claim = partial(delivery_rules.claim, claim_id="claim-1", holder="a faster one", rules=rules)

    def claim_first() -> None:
        DeliveryRecord(engine, delivery_ref(unique, "3", "pager")).if_due(claim)

    late = Overtaken(engine.documents, "deliveries", claim_first)
    slow = replace(engine, documents=cast(Documents, late))

    assert deliver(slow, hint) is DeliveryOutcome.CLAIMED
    assert (provider.taken, stored(engine, hint).tries) == ([], 1)


def test_a_provider_that_fails_is_tried_again_after_growing_waits(
    engine: Engine, provider: Provider, clock: Clock, unique: str
) -> None:
    hint = owed(engine, unique)
    provider.answers = [unavailable(), unavailable()]

    assert deliver(engine, hint) is DeliveryOutcome.ANNOUNCED

    first, second = (wait for wait in clock.waits if wait > 1)
    assert 5 <= first <= 6.25
    assert 10 <= second <= 12.5
    assert (stored(engine, hint).tries, stored(engine, hint).unknown) == (3, 0)
    assert len(provider.taken) == 1


def test_a_call_that_may_not_wait_leaves_the_next_try_to_the_alarm(
    engine: Engine, provider: Provider, clock: Clock, unique: str
) -> None:
    hint = owed(engine, unique)
    provider.answers = [unavailable(retry_after_s=90)]

    assert deliver(engine, hint) is DeliveryOutcome.DUE_LATER
    assert deliver(engine, hint) is DeliveryOutcome.DUE_LATER

    after = stored(engine, hint)
    assert after.not_before == after.alarm_at
    assert after.not_before is not None
    assert after.not_before - after.updated_at == timedelta(seconds=90)
    assert not clock.waits
    assert "503" in (after.last_error or "")
    clock.advance(91)
    assert deliver(engine, hint) is DeliveryOutcome.ANNOUNCED


def test_a_send_that_is_not_answered_is_counted_and_sent_again_under_the_same_key(
    engine: Engine, provider: Provider, reports: list[Any], unique: str
) -> None:
    hint = owed(engine, unique)
    provider.answers = [ChannelUnansweredError(channel="pager", problem="timeout")]

    assert deliver(engine, hint) is DeliveryOutcome.ANNOUNCED

    assert provider.taken == [f"{unique}:3:pager:0123abcd"] * 2
    assert stored(engine, hint).unknown == 1
    assert [line["event"] for line in reports] == ["ANNOUNCEMENT_UNKNOWN", "ANNOUNCEMENT_SENT"]


def test_a_refusal_is_the_end(
    engine: Engine, provider: Provider, reports: list[Any], unique: str
) -> None:
    hint = owed(engine, unique)
    provider.answers = [ChannelRefusedError(channel="pager", problem="404 no such hook")]

    assert deliver(engine, hint) is DeliveryOutcome.GIVEN_UP

    after = stored(engine, hint)
    assert after.state is DeliveryState.GIVEN_UP
    assert after.alarm_at is None
    (event,) = traced(engine, hint)
    assert (event["type"], event["reason"]) == ("announcement_given_up", "channel_refused")
    assert [(line["event"], line["severity"]) for line in reports] == [
        ("ANNOUNCEMENT_GIVEN_UP", "ERROR")
    ]


@pytest.mark.each_store
def test_a_sender_that_dies_is_taken_over_once_its_claim_ran_out(
    engine: Engine, provider: Provider, clock: Clock, unique: str
) -> None:
    """It is unknown whether it sent: that is what `unknown` counts."""
    hint = owed(engine, unique)
    outcomes: list[DeliveryOutcome] = []

    def die() -> None:
        outcomes.append(deliver(engine, hint))
        clock.advance(60)
        outcomes.append(deliver(engine, hint))

    provider.answers = [die]
    late = deliver(engine, hint)

    assert outcomes == [DeliveryOutcome.CLAIMED, DeliveryOutcome.ANNOUNCED]
    assert late is DeliveryOutcome.DUPLICATE
    assert len(provider.taken) == 2
    assert stored(engine, hint).unknown == 1
    assert stored(engine, hint).message_id == "message-1"


def test_a_sender_that_was_frozen_with_its_claim_sends_nothing_and_gives_it_back(
    engine: Engine, provider: Provider, store: Store, unique: str
) -> None:
    """Its claim is good for 50 s, and a send takes up to 20: another one could send meanwhile."""
    hint = owed(engine, unique)
    store.freeze(31)

    outcome = deliver(engine, hint)
    after = stored(engine, hint)

    assert (outcome, provider.taken) == (DeliveryOutcome.DUE_LATER, [])
    assert (after.state, after.claim, after.tries, after.unknown) == ("due", None, 0, 0)
    assert deliver(engine, hint) is DeliveryOutcome.ANNOUNCED


@pytest.mark.parametrize("is_written", [False, True], ids=["alone", "written meanwhile"])
def test_a_claim_is_given_back_where_no_thread_can_be_had_for_its_send(
    engine: Engine, provider: Provider, unique: str, is_written: bool
) -> None:
    """It has sent nothing; what is written beside it takes no claim from its holder."""
    hint = owed(engine, unique)

    def send(*_: object, **__: object) -> str | None:
        if is_written:
            ref = delivery_ref(unique, "3", "pager")
            engine.documents.transact(ref, lambda found, _: Write(None, found))
        raise StoreUnavailableError(store="of threads", problem="no thread is to be had")

    with pytest.raises(StoreUnavailableError, match="no thread is to be had"):
        deliver(replace(engine, channels=replace(engine.channels, send=send)), hint)
    after = stored(engine, hint)

    assert (provider.taken, after.state, after.claim) == ([], "due", None)
    assert (after.tries, after.unknown) == (0, 0)


def test_one_call_makes_no_more_tries_than_a_round_has(
    engine: Engine, provider: Provider, unique: str
) -> None:
    """However long it may take: the bus gives the message again meanwhile."""
    hint = owed(engine, unique)
    provider.answers = [unavailable() for _ in range(9)]

    outcome = deliver(engine, hint, within=timedelta(hours=1))

    assert (outcome, stored(engine, hint).tries) == (DeliveryOutcome.DUE_LATER, 3)


def test_what_has_ended_all_its_senders_is_given_up_in_place_of_another_send(
    engine: Engine, provider: Provider, unique: str
) -> None:
    """Each was killed at it, for as long as it may be tried."""
    over = engine.clock.now() - timedelta(minutes=1)
    claim = Claim(claim_id="c-1", holder="gone", expires_at=over)
    fields: dict[str, Any] = {"state": DeliveryState.CLAIMED, "claim": claim, "tries": 3}
    hint = owed(engine, unique, give_up_at=over, alarm_at=over, **fields)

    outcome = deliver(engine, hint)

    assert (outcome, provider.taken) == (DeliveryOutcome.GIVEN_UP, [])
    assert stored(engine, hint).unknown == 1


def test_a_send_that_hangs_delays_nothing_and_its_late_answer_changes_nothing(
    engine: Engine, provider: Provider, unique: str
) -> None:
    hint = owed(engine, unique)
    rules = replace(engine.rules.delivery, timeout=timedelta(milliseconds=20))
    engine = replace(engine, rules=replace(engine.rules, delivery=rules))
    go_on, gone = Event(), Event()

    def hang() -> None:
        go_on.wait(60)
        gone.set()

    provider.answers = [hang]
    outcome = deliver(engine, hint, within=timedelta())
    after = stored(engine, hint)
    go_on.set()

    assert gone.wait(60)
    assert outcome is DeliveryOutcome.DUE_LATER
    assert (after.state, after.unknown) == (DeliveryState.DUE, 1)
    assert stored(engine, hint) == after


@pytest.mark.each_store
def test_one_of_two_processes_probes_a_channel_that_was_let_alone(
    engine: Engine, provider: Provider, clock: Clock, unique: str
) -> None:
    other = replace(engine, channels=replace(engine.channels, breakers={}))
    failing = [owed(engine, f"{unique}-{number}") for number in range(5)]
    provider.answers = [unavailable() for _ in failing]
    for hint in failing:
        assert deliver(engine, hint, within=timedelta()) is DeliveryOutcome.DUE_LATER
    waiting = [owed(engine, f"{unique}-{number}") for number in range(5, 8)]

    assert deliver(other, waiting[0]) is DeliveryOutcome.DUE_LATER
    assert stored(other, waiting[0]).tries == 0
    assert deliver(other, owed(other, unique, "chat")) is DeliveryOutcome.ANNOUNCED

    clock.advance(61)
    meanwhile: list[DeliveryOutcome] = []
    provider.answers = [lambda: meanwhile.append(deliver(other, waiting[1]))]
    assert deliver(engine, waiting[0]) is DeliveryOutcome.ANNOUNCED
    assert meanwhile == [DeliveryOutcome.DUE_LATER]
    assert deliver(engine, waiting[2]) is DeliveryOutcome.ANNOUNCED


@pytest.mark.each_store
def test_of_many_processes_at_once_one_probes(
    engine: Engine, provider: Provider, clock: Clock, unique: str
) -> None:
    provider.answers = [unavailable() for _ in range(5)]
    for number in range(5):
        deliver(engine, owed(engine, f"{unique}-{number}"), within=timedelta())
    waiting = [owed(engine, f"{unique}-w{number}") for number in range(5)]
    clock.advance(61)
    together, rest = Barrier(5), Semaphore(0)
    provider.answers = [lambda: [rest.acquire(timeout=60) for _ in range(4)]]

    def come_by(hint: DeliveryHint) -> DeliveryOutcome:
        process = replace(engine, channels=replace(engine.channels, breakers={}))
        together.wait(60)
        outcome = deliver(process, hint)
        rest.release()
        return outcome

    with ThreadPoolExecutor(5) as pool:
        outcomes = list(pool.map(come_by, waiting))

    assert sorted(outcomes) == [DeliveryOutcome.ANNOUNCED, *[DeliveryOutcome.DUE_LATER] * 4]
    assert len(provider.taken) == 1


def test_a_store_that_does_not_take_the_record_is_asked_again(
    engine: Engine, store: Store, provider: Provider, unique: str
) -> None:
    hint = owed(engine, unique)
    provider.answers = [lambda: store.fail(3)]

    assert deliver(engine, hint) is DeliveryOutcome.ANNOUNCED

    assert len(provider.taken) == 1
    assert (stored(engine, hint).unknown, stored(engine, hint).tries) == (0, 1)


@pytest.mark.each_store
def test_a_record_whose_answer_was_lost_is_recognised(
    engine: Engine, store: Store, provider: Provider, reports: list[Any], unique: str
) -> None:
    hint = owed(engine, unique)
    provider.answers = [store.lose_answer]

    assert deliver(engine, hint) is DeliveryOutcome.ANNOUNCED

    assert len(provider.taken) == 1
    assert len(traced(engine, hint)) == 1
    assert [line["event"] for line in reports] == ["ANNOUNCEMENT_SENT"]


def test_what_is_never_recorded_is_unknown_to_the_next_one(
    engine: Engine, store: Store, provider: Provider, clock: Clock, unique: str
) -> None:
    hint = owed(engine, unique)
    provider.answers = [lambda: store.fail(1000)]

    with pytest.raises(StoreUnavailableError):
        deliver(engine, hint)
    store.fail(0)
    clock.advance(60)

    assert deliver(engine, hint) is DeliveryOutcome.ANNOUNCED
    assert len(provider.taken) == 2
    assert stored(engine, hint).unknown == 1


@pytest.mark.each_store
def test_the_sweep_publishes_what_is_due_in_one_call_and_moves_its_alarm_on(
    engine: Engine, clock: Clock, unique: str
) -> None:
    bus = Bus()
    engine = replace(engine, events=bus)
    hints = [owed(engine, f"{unique}-{number}") for number in range(3)]
    assert sweep(engine).reannounced == 0

    clock.advance(61)
    first, second = sweep(engine), sweep(engine)

    assert (first.reannounced, first.documents_read, second.reannounced) == (3, 3, 0)
    assert [len(messages) for messages in bus.published] == [3]
    assert [stored(engine, hint).published for hint in hints] == [1, 1, 1]
    clock.advance(61)
    assert sweep(engine).reannounced == 3
    clock.advance(61)
    assert sweep(engine).reannounced == 0  # the wait has doubled


def test_a_bus_that_is_away_is_asked_once_a_sweep_and_gives_nothing_up(
    engine: Engine, provider: Provider, clock: Clock, unique: str
) -> None:
    bus = BusAway()
    away = replace(engine, events=bus)
    hint = owed(engine, unique)
    clock.advance(3 * 86_400)

    with pytest.raises(StoreUnavailableError):
        sweep(away)

    assert bus.asked == 1
    assert stored(engine, hint).published == 0
    assert deliver(engine, hint) is DeliveryOutcome.ANNOUNCED


def test_a_backlog_of_deliveries_leaves_half_of_the_time_to_runs(
    engine: Engine, clock: Clock, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_deliveries, "DELIVERIES_PER_QUERY", 1)
    for channel in ("pager", "chat"):
        owed(engine, unique, channel)
    due = engine.clock.now()
    run = ended(engine, f"{unique}-2", announcement=None, alarm_at=due)
    clock.advance(61)
    bus = SlowBus(clock, seconds=60)

    swept = sweep(
        replace(engine, events=bus), among={unique, run.run_id}, time=timedelta(seconds=100)
    )

    assert (swept.reannounced, swept.more) == (1, True)
    after = find_run(engine, run.run_id).manifest
    assert after.alarm_at is not None
    assert after.alarm_at > due


class SlowLeases(Wrapped[Documents]):
    """A store that needs its time to find the runs whose lease is over."""

    def __init__(self, within: Documents, clock: Clock, seconds: float) -> None:
        super().__init__(within)
        self._clock = clock
        self._left = [seconds]

    def query(self, query: Query) -> Any:
        if "status" in query.equal and self._left:
            self._clock.advance(self._left.pop())
        return self.inner.query(query)


def test_deliveries_get_half_of_what_leases_left_of_the_time(
    engine: Engine, clock: Clock, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not half of all of it, which leases may have used up already."""
    monkeypatch.setattr(due_deliveries, "DELIVERIES_PER_QUERY", 1)
    for channel in ("pager", "chat", "mail"):
        owed(engine, unique, channel)
    clock.advance(61)
    slow: Any = SlowLeases(engine.documents, clock, seconds=60)

    swept = sweep(
        replace(engine, documents=slow, events=SlowBus(clock, seconds=12)),
        among={unique},
        time=timedelta(seconds=100),
    )

    assert (swept.reannounced, swept.more) == (2, True)


class SlowBus:
    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds

    def publish(self, _: Sequence[EventMessage]) -> None:
        self._clock.advance(self._seconds)


class BusWithMistake:
    def publish(self, _: Sequence[EventMessage]) -> None:
        raise TypeError("a mistake")


def test_a_mistake_in_a_bus_keeps_no_run_from_the_sweep(
    engine: Engine, clock: Clock, unique: str
) -> None:
    hint, due = owed(engine, unique), engine.clock.now()
    run = ended(engine, f"{unique}-2", announcement=None, alarm_at=due)
    clock.advance(61)

    with pytest.raises(StoreUnavailableError, match="a mistake"):
        sweep(replace(engine, events=BusWithMistake()), among={unique, run.run_id})

    after = find_run(engine, run.run_id).manifest
    assert after.alarm_at is not None
    assert after.alarm_at > due
    assert stored(engine, hint).published == 0


@pytest.mark.each_store
def test_only_deliveries_of_ones_own_runs_are_published(
    engine: Engine, clock: Clock, unique: str
) -> None:
    bus = Bus()
    engine = replace(engine, events=bus)
    owed(engine, f"{unique}-theirs")
    owed(engine, f"{unique}-mine")
    clock.advance(61)

    assert sweep(engine, among={f"{unique}-mine"}).reannounced == 1
    assert [one.delivery.run_id for one in bus.published[0]] == [f"{unique}-mine"]


def test_a_channel_that_the_catalog_does_not_know_is_given_up_after_a_day_alone(
    engine: Engine, provider: Provider, clock: Clock, unique: str
) -> None:
    hint = owed(engine, unique, "later")

    assert deliver(engine, hint) is DeliveryOutcome.DUE_LATER
    clock.advance(86_401)
    assert deliver(engine, hint) is DeliveryOutcome.GIVEN_UP

    assert stored(engine, hint).tries == 0
    assert not provider.taken


@pytest.mark.parametrize(
    ("run_id", "occurrence", "channel"),
    [("r-1", "3", "pager"), ("a/b", "3", "pager"), ("r-1", "../3", "pager"), ("r-1", "3", "é/")],
)
def test_a_message_about_nothing_is_over(
    engine: Engine, run_id: str, occurrence: str, channel: str
) -> None:
    assert deliver(engine, DeliveryHint(run_id, occurrence, channel)) is DeliveryOutcome.UNKNOWN


def test_an_announcement_repeated_by_hand_has_its_own_key(
    engine: Engine, provider: Provider, unique: str
) -> None:
    bus = Bus()
    engine = replace(engine, events=bus)
    run = ended(engine, unique)
    hint = owed(engine, unique, mark=run_mark(run))
    assert deliver(engine, hint) is DeliveryOutcome.ANNOUNCED

    again = request_delivery(engine, unique, "pager", actor="ada", reason="she saw nothing")

    assert (again.state, again.round) == (DeliveryState.DUE, 2)
    assert [one.delivery.delivery_id for one in bus.published[0]] == [f"{unique}:3:pager"]
    assert deliver(engine, hint) is DeliveryOutcome.ANNOUNCED
    assert provider.taken == [hint_key := f"{unique}:3:pager:{run_mark(run)}", f"{hint_key}:2"]
    types = [event["type"] for event in traced(engine, hint)]
    assert sorted(types) == ["announcement_requested", "announcement_sent", "announcement_sent"]
    (asked,) = (one for one in traced(engine, hint) if one["type"] == "announcement_requested")
    assert (asked["actor"], asked["reason"]) == ("ada", "she saw nothing")


def test_a_channel_without_the_event_can_get_it_by_hand(
    engine: Engine, provider: Provider, unique: str
) -> None:
    ended(engine, unique, status=RunStatus.COMPLETED)

    request_delivery(engine, unique, "chat", actor="ada", reason="")

    assert deliver(engine, DeliveryHint(unique, "3", "chat")) is DeliveryOutcome.ANNOUNCED
    with pytest.raises(UnknownKeyError, match="pager, chat"):
        request_delivery(engine, unique, "nowhere", actor="ada", reason="")


@pytest.mark.each_store
def test_a_delivery_that_is_being_sent_cannot_be_requested_again(
    engine: Engine, provider: Provider, unique: str
) -> None:
    run = ended(engine, unique)
    hint = owed(engine, unique, mark=run_mark(run))
    refused: list[bool] = []

    def ask() -> None:
        with pytest.raises(DeliveryClaimedError):
            request_delivery(engine, unique, "pager", actor="ada", reason="")
        refused.append(True)

    provider.answers = [ask]
    assert deliver(engine, hint) is DeliveryOutcome.ANNOUNCED
    assert refused == [True]


def test_a_run_that_announced_nothing_has_nothing_to_tell(engine: Engine, unique: str) -> None:
    ended(engine, unique, announcement=None)

    with pytest.raises(UnknownDeliveryError):
        request_delivery(engine, unique, "pager", actor="ada", reason="")


def test_a_request_stays_traced_where_the_channel_is_gone(
    engine: Engine, clock: Clock, unique: str
) -> None:
    hint = owed(engine, unique, mark=run_mark(ended(engine, unique)))
    deliver(engine, hint)
    request_delivery(engine, unique, "pager", actor="ada", reason="")
    without = replace(engine.catalog, channels=Registry("channels", [LogChannel(name="chat")]))
    clock.advance(86_401)

    assert deliver(replace(engine, catalog=without), hint) is DeliveryOutcome.GIVEN_UP

    assert sorted(event["type"] for event in traced(engine, hint)) == [
        "announcement_given_up",
        "announcement_requested",
        "announcement_sent",
    ]


@pytest.mark.each_store
def test_a_request_that_comes_late_leaves_what_the_next_run_of_the_id_owes(
    engine: Engine, clock: Clock, unique: str
) -> None:
    """The run was read, then purged, and its key given again."""
    run = ended(engine, unique)
    clock.advance(1)
    hint = owed(engine, unique, mark="89abcdef", unknown=1)

    with pytest.raises(UnknownDeliveryError):
        request_delivery(engine, unique, "pager", actor="ada")

    assert (stored(engine, hint).mark, stored(engine, hint).unknown) == ("89abcdef", 1)
    assert run_mark(run) != "89abcdef"


def test_a_channel_that_an_earlier_run_of_the_id_told_gets_what_this_one_announces(
    engine: Engine, provider: Provider, unique: str
) -> None:
    """The provider gets the words of this run, under a key that it has not seen."""
    hint = owed(engine, unique, channel="chat", state=DeliveryState.ANNOUNCED, summary="Then.")
    run = ended(engine, unique, status=RunStatus.COMPLETED)

    request_delivery(engine, unique, "chat", actor="ada")

    after = stored(engine, hint)
    assert (after.mark, after.round) == (run_mark(run), 1)
    assert after.summary == f"Run {unique} of pipeline three is completed."


def test_a_channel_without_the_event_gets_no_past_announcement(engine: Engine, unique: str) -> None:
    """The run was blocked, and goes on: what it is now are not the words of then."""
    told = Announcement(
        occurrence="3", event="run_blocked", at=engine.clock.now(), channels=("pager",)
    )
    ended(engine, unique, announcement=told)

    with pytest.raises(UnknownDeliveryError):
        request_delivery(engine, unique, "chat", actor="ada")
