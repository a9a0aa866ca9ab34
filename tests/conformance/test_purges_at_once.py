"""Two purges of one run at once, its key given again in between, and people who ask to be told.

A purge goes on from one call of a store to the next; between any two of them the other purge, the
key and a kill may come.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

from leasehold.domain.artifact_name import step_folder
from leasehold.domain.change import Change
from leasehold.domain.delivery import Delivery, DeliveryState
from leasehold.domain.effect import Archive
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest, run_ref
from leasehold.domain.stored import replace
from leasehold.domain.trace import run_mark
from leasehold.errors import RunBeingPurgedError, UnknownRunError
from leasehold.ports.documents import Documents
from leasehold.registry.channels import LogChannel
from leasehold.registry.registry import Registry
from leasehold.services.archive_run import archive_run
from leasehold.services.due_deliveries import request_delivery
from leasehold.services.engine import Engine, change_run, find_run
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.purge import ANNOUNCING, purge
from leasehold.services.read_runs import RunFilter, timeline_of
from tests.worlds.purges import (
    CHANNEL,
    LATE,
    Stepped,
    Turnstile,
    begin,
    deliveries,
    end,
    engine_of_purges,
    send,
    stored,
    write,
)

pytestmark = pytest.mark.one_store

A_MOMENT: Final = timedelta(microseconds=1)
#: No purge here has more calls of a store.
MOST_CALLS: Final = 20
#: Which of two purges is killed where they meet.
KILLED: Final = (None, "first", "second")
#: None is, and the second is through where they meet: the next run has begun.
THROUGH: Final = "none, the second is through"
#: Whether each call of one purge meets each of the other: minutes.
IS_STORM: Final = os.environ.get("LEASEHOLD_STORM") == "1"


@pytest.fixture
def engine(documents: Documents, tmp_path: Path) -> Iterator[Engine]:
    with engine_of_purges(documents, tmp_path) as engine:
        yield engine


def purge_of(run: Manifest) -> Callable[[Engine], object]:
    wanted, before = RunFilter(label=run.labels[0]), run.updated_at + A_MOMENT
    return lambda engine: purge(engine, wanted, ended_before=before)


# -- two purges, step by step ----------------------------------------------------------------------


@dataclass
class Key:
    """A caller that repeats the key until it begins the next run."""

    engine: Engine
    key: str
    run: Manifest | None = None
    left: frozenset[str] = frozenset()

    def give(self, first: Manifest) -> None:
        if self.run is not None:
            return
        try:
            run = begin(self.engine, self.key)
        except RunBeingPurgedError:
            return
        if run.life == first.life:  # it is there still, and has not been marked
            return
        self.run = end(self.engine, run)
        mine = (run.life, str(run_ref(run.run_id)))
        names = stored(self.engine, run.run_id)
        self.left = frozenset(n for n in names if mine[0] in n or n == mine[1])


def calls_of_a_purge(engine: Engine, unique: str) -> int:
    """Return how many calls of a store one purge of one run has."""
    going = Stepped(engine, purge_of(end(engine, begin(engine, f"{unique}-alone"))))
    for made in range(MOST_CALLS):
        if going.is_over:
            return made
        going.step()
    raise AssertionError(f"a purge of one run makes over {MOST_CALLS} calls")


def meetings(calls: int, killed: str | None) -> list[tuple[int, int]]:
    """Return before which calls the purges meet: each of the one comes once in all the tests."""
    every = range(calls + 1)
    if killed == THROUGH:
        return [(at, calls) for at in every]
    if IS_STORM:
        return [*product(every, every)]
    return [(at, 5 * at % len(every)) for at in every[KILLED.index(killed) :: len(KILLED)]]


@pytest.mark.parametrize(
    "killed", [pytest.param(None, marks=pytest.mark.each_store), *KILLED[1:], THROUGH]
)
def test_two_purges_at_once_delete_nothing_of_the_next_run_of_a_key(
    engine: Engine, unique: str, killed: str | None
) -> None:
    """One goes to any of its calls, the other to any of its own, then on; the key in between."""
    for at, other_at in meetings(calls_of_a_purge(engine, unique), killed):
        key = f"{unique}-{at}-{other_at}"
        first = end(engine, begin(engine, key))
        again = Key(engine, key)
        one, other = (Stepped(engine, purge_of(first)) for _ in range(2))

        one.step(at)
        again.give(first)
        other.step(other_at)
        again.give(first)
        for purge_, name in ((one, "first"), (other, "second")):
            purge_.kill() if killed == name else None
        for _ in range(MOST_CALLS):  # in turns, and the key whenever it can begin
            other.step()
            again.give(first)
            one.step()
            again.give(first)

        assert one.is_over
        assert other.is_over
        left = stored(engine, first.run_id)
        if again.run is None:  # both were cut off before its document went
            purge(engine, RunFilter(label=f"test:{key}"), ended_before=first.created_at + LATE)
            assert stored(engine, first.run_id) == set(), (at, other_at)
        else:
            assert again.left <= left, (at, other_at, again.left - left)
            assert not [name for name in left if first.life in name], (at, other_at)
            story = [event.type for event in timeline_of(engine, first.run_id)]
            assert story[0] == "run_started"
            assert {"lease_lost", "run_cancelled"} <= {*story}


@pytest.mark.each_store
def test_an_archive_that_ends_late_is_not_that_of_the_next_run_of_a_key(
    engine: Engine, unique: str
) -> None:
    """It deletes no checkpoint of a run that works, and notes nothing in it."""
    first = end(engine, begin(engine, unique))
    late = Archive(first.run_id, first.life, has_temporary=True)
    purge(engine, RunFilter(label=f"test:{unique}"), ended_before=first.updated_at + A_MOMENT)
    run = begin(engine, unique)
    before, left = find_run(engine, run.run_id).manifest, stored(engine, run.run_id)

    is_done = archive_run(
        late,
        engine.artifacts,
        engine.documents,
        rules=engine.rules,
        threads=engine.threads,
        log=engine.listeners.log,
        note=partial(change_run, engine, run.run_id),
    )

    assert f"{step_folder(run, run.current_step, 1)}/1-a.json.gz" in left
    assert is_done is False
    assert find_run(engine, run.run_id).manifest == before
    assert stored(engine, run.run_id) == left


# -- somebody asks to be told meanwhile ------------------------------------------------------------


@pytest.mark.parametrize("at", range(MOST_CALLS))
def test_a_delivery_that_is_asked_for_during_a_purge_is_sent_or_refused(
    engine: Engine, unique: str, at: int
) -> None:
    run = end(engine, begin(engine, unique))
    going = Stepped(engine, purge_of(run))
    going.step(at)

    asked: Delivery | None = None
    with suppress(UnknownRunError):
        asked = request_delivery(engine, run.run_id, CHANNEL, actor="ada")
    going.step(MOST_CALLS)

    assert going.is_over
    if asked is None:
        assert stored(engine, run.run_id) == set()
    else:
        (owed,) = deliveries(engine, run.run_id)
        assert (owed.state, owed.round) == (DeliveryState.DUE, 2)


@pytest.mark.parametrize("at", range(6))
def test_a_delivery_that_was_being_asked_for_as_a_purge_went_by_is_sent_or_refused(
    engine: Engine, unique: str, at: int
) -> None:
    """The request goes to one of its calls; the whole purge comes; the request goes on."""
    run = end(engine, begin(engine, unique))
    made = [0]

    def meet() -> None:
        if made[0] == at:
            purge(engine, RunFilter(label=f"test:{unique}"), ended_before=run.created_at + LATE)
        made[0] += 1

    slow: Any = Turnstile(engine.documents, meet)
    try:
        request_delivery(replace(engine, documents=slow), run.run_id, CHANNEL, actor="ada")
    except UnknownRunError:
        assert [one for one in stored(engine, run.run_id) if "told-" not in one] == []
    else:
        (owed,) = deliveries(engine, run.run_id)
        assert owed.state is DeliveryState.DUE
        assert engine.documents.get(run_ref(run.run_id)) is not None, "nobody tells of what is gone"


@pytest.mark.each_store
def test_a_run_with_a_due_announcement_is_purged_once_that_is_sent(
    engine: Engine, unique: str
) -> None:
    run = end(engine, begin(engine, unique))
    wanted, then = RunFilter(label=f"test:{unique}"), engine.clock.now() + LATE
    (told,) = deliveries(engine, run.run_id)
    early = told.created_at - 2 * LATE  # nobody expects it any more
    write(engine, replace(told, created_at=early))  # type: ignore[call-arg]
    request_delivery(engine, run.run_id, CHANNEL, actor="ada")

    kept = purge(engine, wanted, ended_before=then)
    (owed,) = deliveries(engine, run.run_id)
    send(engine, owed)
    done = purge(engine, wanted, ended_before=then)

    assert kept.kept == [(run.run_id, ANNOUNCING)]
    assert done.purged == 1
    assert stored(engine, run.run_id) == set()


def test_a_request_while_the_announcement_is_pending_is_the_announcement(
    engine: Engine, unique: str
) -> None:
    """Who cancelled the run had no catalog; the sweep must not have the channel told again."""
    channels = Registry("channels", [LogChannel(name=CHANNEL)])
    engine = replace(engine, catalog=replace(engine.catalog, channels=channels))
    without = replace(engine.rules, channels_for=lambda _pipeline, _event: None)
    run = begin(engine, unique)
    cancel = OperationRequest(Operation.CANCEL, "ann")
    operate(replace(engine, rules=without), run.run_id, cancel)

    asked = request_delivery(engine, run.run_id, CHANNEL, actor="ada")
    sent = replace(asked, state=DeliveryState.ANNOUNCED, alarm_at=None)
    write(engine, sent)
    told = find_run(engine, run.run_id).manifest.announcement
    assert told is not None
    change_run(engine, run.run_id, lambda found, _: Change("repaired", found))  # type: ignore[arg-type] # any write

    assert (told.pending, told.channels) == (False, (CHANNEL,))
    assert asked.mark == run_mark(run)
    assert deliveries(engine, run.run_id) == [sent]
