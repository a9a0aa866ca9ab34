"""The guard against all at once: senders that freeze, die and double, and a store that fails.

Nothing is lost in any order of events, and messages are repeated only where `unknown` says so.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.bootstrap import Hooks, boot
from leasehold.domain.breaker import breaker_ref
from leasehold.domain.delivery import Delivery, DeliveryState, delivery_of, delivery_ref
from leasehold.domain.stored import Ref, StoredDocument, Write
from leasehold.errors import (
    ChannelUnansweredError,
    ChannelUnavailableError,
    StoreUnavailableError,
)
from leasehold.ports.documents import Documents
from leasehold.registry.channels import LogChannel
from leasehold.registry.pipelines import Catalog
from leasehold.registry.registry import Registry
from leasehold.services.deliver_notification import DeliveryHint, deliver
from leasehold.services.engine import Engine
from leasehold.testing import FrozenClock
from tests.worlds.catalogs.sample import PIPELINES, STEPS
from tests.worlds.wrapped import Wrapped

CHANNELS = Registry("channels", [LogChannel(name="pager")])
NUMBERS = itertools.count()
DEEPEST = 3


class Clock(FrozenClock):
    """A frozen clock whose waits are skipped."""

    @property
    def skip(self) -> Callable[[float], None]:
        return self.advance


class KilledError(BaseException):
    """The process of a sender ends here."""


class World(Wrapped[Documents]):
    """A channel, its provider, and a store whose every call may meet with something."""

    def __init__(self, inner: Documents, clock: Clock, chance: random.Random) -> None:
        self.taken: list[str] = []
        self.is_calm = False
        self.engine: Engine
        self.hint: DeliveryHint
        super().__init__(inner)
        self._clock = clock
        self._chance = chance
        self._depth = 0

    def get(self, ref: Ref) -> Any:
        self._meddle()
        return self.inner.get(ref)

    def transact(self, ref: Ref, decide: Any, **more: Any) -> Any:
        self._meddle()
        done = self.inner.transact(ref, decide, **more)
        if not self.is_calm and self._chance.random() < 0.1:
            raise StoreUnavailableError(store="test", problem="the answer was lost")
        self._meddle()
        return done

    def send(self, delivery: Delivery, *, timeout: float) -> str:  # noqa: ARG002 - a port
        self._meddle()
        outcome = 1.0 if self.is_calm else self._chance.random()
        if outcome < 0.2:
            raise ChannelUnavailableError(channel="pager", problem="503")
        if outcome < 0.3:
            raise ChannelUnansweredError(channel="pager", problem="timeout")
        self.taken.append(delivery.key)
        if outcome < 0.4:
            raise ChannelUnansweredError(channel="pager", problem="timeout")
        return f"m-{len(self.taken)}"

    def message(self) -> None:
        """Deliver a message; its sender may die."""
        self._depth += 1
        try:
            within = self._chance.choice([None, timedelta()])
            deliver(self.engine, self.hint, within=within)
        except (KilledError, StoreUnavailableError):
            pass
        finally:
            self._depth -= 1

    def _meddle(self) -> None:
        """Have something happen meanwhile, or to the caller."""
        if self.is_calm:
            return
        match self._chance.randrange(20):
            case 0 | 1:
                self._clock.advance(self._chance.choice([1, 20, 140]))  # frozen, up to past a claim
            case 2 | 3 if self._depth < DEEPEST:
                self.message()
            case 4:
                raise StoreUnavailableError(store="test", problem="it is away")
            case 5:
                raise KilledError


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> Iterator[SqliteDocuments]:
    folder: Path = tmp_path_factory.mktemp("store")
    documents = SqliteDocuments(folder / "runs.db", clock)
    yield documents
    documents.close()


def owed(documents: Documents, now: datetime) -> DeliveryHint:
    run_id = f"r-{next(NUMBERS)}"
    delivery = Delivery(
        run_id=run_id,
        occurrence="3",
        channel="pager",
        pipeline="three",
        event="run_completed",
        priority="normal",
        step="send",
        summary="It is completed.",
        mark="0123abcd",
        state=DeliveryState.DUE,
        created_at=now,
        updated_at=now,
        alarm_at=now,
        give_up_at=now + timedelta(days=1000),
    )
    put = Write(None, StoredDocument(delivery))
    documents.transact(delivery_ref(run_id, "3", "pager"), lambda _, __: put)
    return DeliveryHint(run_id, "3", "pager")


@settings(max_examples=settings.default.max_examples // 3)  # each waits for a real disk
@given(seed=st.integers(0, 2**32))
def test_nothing_is_lost_and_each_extra_send_is_counted(
    documents: SqliteDocuments, clock: Clock, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    documents.delete(breaker_ref("pager"))
    world = World(documents, clock, chance)
    environ = {"PIPELINE_DELIVERY_TIMEOUT_S": "60", "PIPELINE_CHANNEL_FAILURES": "3"}
    engine = boot(
        environ,
        catalog=Catalog(steps=STEPS, pipelines=PIPELINES, channels=CHANNELS),
        documents=documents,
        clock=clock,
        hooks=Hooks(report=lambda _: None),
    ).engine
    world.hint = owed(documents, clock.now())
    world.engine = replace(
        engine,
        documents=world,
        channels=replace(engine.channels, open=lambda _: world),
        listeners=replace(engine.listeners, log=lambda _: None),
    )

    for _ in range(6):
        world.message()
        clock.advance(chance.choice([1, 10, 200]))
    world.is_calm = True
    for _ in range(3):  # an open breaker, a wait, and a claim that runs out
        clock.advance(700)
        world.message()

    ref = delivery_ref(world.hint.run_id, "3", "pager")
    found = documents.get(ref)
    assert found is not None
    delivery = delivery_of(ref, found.document)
    assert delivery.state is DeliveryState.ANNOUNCED
    assert 1 <= len(world.taken) <= 1 + delivery.unknown
    assert len(set(world.taken)) == 1
