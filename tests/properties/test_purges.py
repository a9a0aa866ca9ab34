"""Purges at once, a key that starts again in between, and people who ask to be told meanwhile.

Each of them goes on by one call of a store at a time, in any order; its process is killed, or an
answer is lost. Nothing of a life is deleted without a purge, and no delivery that is due.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.domain.delivery import Delivery, DeliveryState
from leasehold.domain.manifest import Manifest, manifest_of, run_ref
from leasehold.services.due_deliveries import request_delivery
from leasehold.services.engine import Engine
from leasehold.services.purge import purge
from leasehold.services.read_runs import RunFilter
from tests.worlds.purges import (
    CHANNEL,
    LATE,
    Stepped,
    begin,
    deliveries,
    end,
    engine_of_purges,
    furnish,
    give_key,
    send,
    stored,
)

NUMBERS = itertools.count()
#: Which of those under way goes on: mostly the latest.
WHICH = st.sampled_from([0, 0, 0, 1, 1, 2])
#: What may be under way: mostly purges, and the key that begins the next run.
WHAT = st.sampled_from(["purge", "purge", "purge", "give_key", "give_key", "ask", "end", "send"])
#: What may come while one of them is late.
MEANWHILE = [
    ("purge", "give_key"),
    ("purge", "give_key", "end"),
    ("purge", "give_key", "end", "purge", "give_key"),
    ("ask",),
    ("ask", "purge", "send"),
    ("purge",),
]
#: More calls of a store nothing here makes.
ALL = 60


class Purges(RuleBasedStateMachine):
    """One key, and all that happens to its runs.

    Attributes:
        engine: the parts.
    """

    engine: ClassVar[Engine]

    def __init__(self) -> None:
        super().__init__()
        self.key = f"key-{next(NUMBERS)}"
        self.run_id = ""
        self.under_way: list[Stepped] = []
        self.has: dict[str, set[str]] = {}  # what belongs to a life, by its mark
        self.asked: list[Stepped] = []
        self.to_be_sent: dict[str, str] = {}  # keys of deliveries that were promised, by their id
        self.sent: set[str] = set()

    @initialize()
    def begin(self) -> None:
        self.run_id = end(self.engine, begin(self.engine, self.key)).run_id

    @rule(what=WHAT)
    def begins(self, what: str) -> None:
        self.set_out(what)

    @rule(
        what=st.sampled_from(["purge", "purge", "ask", "ask", "give_key"]),
        calls=st.integers(1, 8) | st.integers(1, 16),
        meanwhile=st.sampled_from(MEANWHILE) | st.lists(WHAT, min_size=1, max_size=4),
    )
    def is_late(self, what: str, calls: int, meanwhile: Sequence[str]) -> None:
        """One goes to any of its calls, and others come and go before it goes on."""
        self.end(self.engine)
        self.send(self.engine)  # so that there is something to purge
        late = self.set_out(what)
        late.step(calls)
        for other in meanwhile:
            self.set_out(other).step(ALL)
            self.nothing_goes_that_nobody_purges()
            self.who_asks_is_told_or_refused()
        late.step(ALL)

    @precondition(lambda self: self.under_way)
    @rule(which=WHICH, calls=st.sampled_from([1, 1, 2, 3, 5, 8, ALL]))
    def go_on(self, which: int, calls: int) -> None:
        self.nth(which).step(calls)

    @precondition(lambda self: self.under_way)
    @rule(which=WHICH)
    def kill(self, which: int) -> None:
        self.nth(which).kill()

    @precondition(lambda self: self.under_way)
    @rule(which=WHICH)
    def lose_answer(self, which: int) -> None:
        self.nth(which).lose_answer()

    @invariant()
    def nothing_goes_that_nobody_purges(self) -> None:
        self.under_way = [one for one in self.under_way if not one.is_over]
        if (run := self.run()) is None:
            return
        left = stored(self.engine, self.run_id)
        own = {name for name in left if run.life in name} | {str(run_ref(self.run_id))}
        has = self.has.setdefault(run.life, {str(run.input_ref)})
        assert has <= left
        has |= own

    @invariant()
    def who_asks_is_told_or_refused(self) -> None:
        due = {one.delivery_id: one.key for one in self.due()}
        for asking in self.asked:
            if asking.is_over and asking.answer is not None:
                promised = asking.answer
                assert promised.key in {*due.values(), *self.sent}
                if promised.key not in self.sent:
                    self.to_be_sent[promised.delivery_id] = promised.key
        self.asked = [asking for asking in self.asked if not asking.is_over]
        assert self.to_be_sent.items() <= due.items()
        is_there = self.engine.documents.get(run_ref(self.run_id)) is not None
        assert is_there or not self.to_be_sent, "nobody is told of a run that is gone"

    def teardown(self) -> None:
        """Once all that is under way is over, and sent, one more purge deletes the rest."""
        if not self.run_id:
            return
        for one in self.under_way:
            one.step(ALL)
            assert one.is_over
        self.nothing_goes_that_nobody_purges()
        self.who_asks_is_told_or_refused()
        if (run := self.run()) is not None and not run.is_terminal:
            end(self.engine, run)
        self.send(self.engine)
        self.purge(self.engine)
        left = stored(self.engine, self.run_id)
        lives = {life for life in self.has if any(life in name for name in left)}
        assert not {n for n in left if "/told-" not in n for life in lives if life in n}
        assert str(run_ref(self.run_id)) not in left

    def set_out(self, what: str) -> Stepped:
        call = Stepped(self.engine, getattr(self, what))
        self.under_way.append(call)
        if what == "ask":
            self.asked.append(call)
        return call

    def purge(self, engine: Engine) -> None:
        later = engine.clock.now() + LATE
        purge(engine, RunFilter(label=f"test:{self.key}"), ended_before=later)

    def ask(self, engine: Engine) -> Delivery:
        return request_delivery(engine, self.run_id, CHANNEL, actor="ada")

    def give_key(self, engine: Engine) -> Manifest:
        return give_key(engine, self.key)

    def end(self, _: Engine) -> None:
        """A run that is not being purged gets files, and ends; all at once."""
        run = self.run()
        if run is None or run.is_terminal:
            return
        furnish(self.engine, run)
        end(self.engine, run)
        self.has.pop(run.life, None)  # its archive deleted what nobody needs

    def send(self, _: Engine) -> None:
        """All that is to be sent is sent, at once."""
        for delivery in self.due():
            send(self.engine, delivery)
            self.sent.add(delivery.key)
            self.to_be_sent.pop(delivery.delivery_id, None)

    def nth(self, which: int) -> Stepped:
        return self.under_way[-1 - which % len(self.under_way)]

    def run(self) -> Manifest | None:
        """Return the run as it is stored; None: there is none, or it is being purged."""
        found = self.engine.documents.get(run_ref(self.run_id))
        run = None if found is None else manifest_of(self.run_id, found.document)
        return None if run is None or run.purged_at is not None else run

    def due(self) -> list[Delivery]:
        every = deliveries(self.engine, self.run_id) if self.run_id else []
        return [one for one in every if one.state is DeliveryState.DUE]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    documents = SqliteDocuments(tmp_path / "runs.db", SystemClock())
    with engine_of_purges(documents, tmp_path) as engine:
        yield engine
    documents.close()


def test_a_purge_deletes_its_own_life_and_nothing_that_is_to_be_sent(engine: Engine) -> None:
    class Here(Purges):
        pass

    Here.engine = engine
    few = settings.default.max_examples // 16  # each makes hundreds of calls of a real store
    run_state_machine_as_test(Here, settings=settings(max_examples=few, stateful_step_count=20))
