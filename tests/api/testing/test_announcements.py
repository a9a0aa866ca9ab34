"""Announcements in a test, and the faults that it can order for them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from leasehold import LogChannel, Registry, testing
from leasehold.domain.delivery import Delivery
from leasehold.domain.delivery_rules import claim
from leasehold.domain.stored import Document, Ref, StoredDocument, Write
from leasehold.errors import InvalidRequestError
from leasehold.registry.pipelines import Catalog
from leasehold.testing import InProcessEngine
from tests.api.testing import letters

WORDS = {"words": ["one"]}
CHANNELS = Registry("channels", [LogChannel(name="ops"), LogChannel(name="sales")])

pytestmark = pytest.mark.catalog(Catalog(letters.STEPS, letters.PIPELINES, letters.GATES, CHANNELS))


@pytest.fixture
def engine(engine: InProcessEngine) -> Iterator[InProcessEngine]:
    yield engine
    assert engine.faults.pending == []


def told(engine: InProcessEngine) -> list[tuple[str, str]]:
    return [(each.channel, each.event) for each in engine.announcements]


def announced(engine: InProcessEngine) -> dict[str, Delivery]:
    """Have a run end and be announced; return what became of each channel's delivery."""
    run = engine.start("letters", WORDS)
    return {each.channel: each for each in engine.run_until_announced(run.run_id)}


BOTH = [("ops", "run_completed"), ("sales", "run_completed")]


def test_a_test_sees_what_is_announced_and_nothing_is_sent(engine: InProcessEngine) -> None:
    engine.run("letters", WORDS)

    assert told(engine) == BOTH
    assert engine.announcements[0].priority == "normal"


def test_a_lost_message_is_published_again_by_the_sweep(engine: InProcessEngine) -> None:
    engine.faults.lose_message("ops")

    deliveries = announced(engine)

    assert told(engine) == BOTH[::-1]
    assert deliveries["ops"].published == 1


def test_an_engine_comes_back_to_the_announcements_of_runs_that_ended_in_it(
    engine: InProcessEngine,
) -> None:
    """It looks after runs of its own alone, and no other sweep may be there."""
    engine.faults.lose_message("ops")

    engine.run("letters", WORDS)
    for _ in range(2):
        engine.clock.advance(61)  # type: ignore[attr-defined] # a frozen clock
        engine.run_until_idle()

    assert told(engine) == BOTH[::-1]


def test_an_engine_that_adopts_all_comes_back_to_a_send_that_was_cut_off(
    engine: InProcessEngine, tmp_path: Path
) -> None:
    engine.faults.lose_message("ops")
    run = engine.run("letters", WORDS)
    _claim(engine, run.run_id, "ops")
    catalog = Catalog(letters.STEPS, letters.PIPELINES, letters.GATES, CHANNELS)

    with testing.engine(catalog, tmp_path, clock=engine.clock) as after:
        after.adopt_all()
        for _ in range(2):
            after.clock.advance(61)  # type: ignore[attr-defined] # a frozen clock
            after.run_until_idle()
        assert told(after) == BOTH[:1]


def _claim(engine: InProcessEngine, run_id: str, channel: str) -> None:
    """Leave a delivery as one who claims it and is killed."""
    rules = engine.engine.rules.delivery

    def decide(document: Document | None, now: datetime) -> Write[None]:
        due = Delivery.model_validate(document)
        return Write(None, StoredDocument(claim(due, now, claim_id="c", holder="it", rules=rules)))

    owed = next(it for it in engine._deliveries_of(run_id) if it.channel == channel)  # noqa: SLF001
    engine.engine.documents.transact(Ref("deliveries", owed.delivery_id), decide)


@pytest.mark.parametrize("concurrently", [False, True])
def test_a_message_that_comes_twice_is_sent_once(
    engine: InProcessEngine, concurrently: bool
) -> None:
    engine.faults.deliver_message_twice("ops", concurrently=concurrently)

    deliveries = announced(engine)

    assert told(engine) == BOTH
    assert deliveries["ops"].unknown == 0


def test_a_channel_that_is_away_delays_no_other(engine: InProcessEngine) -> None:
    engine.faults.channel_away(3600, "ops")
    began = engine.clock.now()

    deliveries = announced(engine)

    assert told(engine) == BOTH[::-1]
    assert (deliveries["sales"].tries, deliveries["sales"].unknown) == (1, 0)
    assert (engine.clock.now() - began).total_seconds() >= 3600
    assert deliveries["ops"].unknown == 0


@pytest.mark.parametrize("fault", ["channel_silent", "kill_before_record"])
def test_what_was_taken_and_not_recorded_is_sent_again_with_its_key(
    engine: InProcessEngine, fault: str
) -> None:
    getattr(engine.faults, fault)("ops")

    deliveries = announced(engine)

    keys = [each.key for each in engine.announcements if each.channel == "ops"]
    assert (len(keys), len(set(keys)), deliveries["ops"].unknown) == (2, 1, 1)
    assert deliveries["sales"].tries == 1


@pytest.mark.parametrize(("seconds", "sends"), [(1, 1), (3600, 2)])
def test_an_answer_may_be_late(engine: InProcessEngine, seconds: int, sends: int) -> None:
    engine.faults.channel_late(seconds, "ops")

    deliveries = announced(engine)

    assert [each.channel for each in engine.announcements].count("ops") == sends
    assert deliveries["ops"].unknown == sends - 1


def test_what_is_refused_for_good_is_given_up(engine: InProcessEngine) -> None:
    engine.faults.channel_refuses("ops")

    deliveries = announced(engine)

    assert told(engine) == BOTH[1:]
    assert (deliveries["ops"].state, deliveries["sales"].state) == ("given_up", "announced")
    assert deliveries["ops"].given_up_why


def test_a_fault_of_no_channel_is_refused(engine: InProcessEngine) -> None:
    with pytest.raises(InvalidRequestError, match="ops, sales"):
        engine.faults.channel_away(1, "mail")


def test_a_run_that_blocks_twice_is_told_twice(engine: InProcessEngine) -> None:
    run = engine.run("letters", {"words": []})
    assert run.status == "BLOCKED"

    engine.retry(run.run_id)
    deliveries = engine.run_until_announced(run.run_id)

    assert told(engine) == [("ops", "run_blocked"), ("sales", "run_blocked")] * 2
    assert len({each.key for each in deliveries}) == 4
