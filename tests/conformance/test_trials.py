"""Trials on a real store: in any order of calls each trial has one output, and one trial counts."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus
from leasehold.domain.stored import Ref
from leasehold.ports.documents import Documents, Query
from tests.conformance.trial_schedule import AUTHOR, MAX_TRIALS, REVIEWER, Schedule
from tests.worlds.emulators import need_firestore
from tests.worlds.stores import DOCUMENTS

#: How many orders are drawn: an emulator is a hundred times as slow, and a storm takes minutes.
TRIES: Final = {
    "sqlite": 20_000 if os.environ.get("LEASEHOLD_STORM") == "1" else 40,
    "firestore": 4,
}
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - SQLite waits for no disk there


@pytest.fixture(autouse=True)
def seldom_collected() -> Iterator[None]:
    """Collect garbage by hand alone: else a third of the time goes there."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def documents(kind: str) -> Iterator[Documents]:
    if kind == "firestore":
        need_firestore()
    memory = _MEMORY if _MEMORY.is_dir() else None
    with TemporaryDirectory(dir=memory) as folder, DOCUMENTS[kind](Path(folder)) as documents:
        yield documents


def test_each_trial_has_one_output_and_one_of_them_counts_in_any_order(
    kind: str, documents: Documents, unique: str
) -> None:
    for seed in range(TRIES[kind]):
        ref = Ref("runs", f"{unique}-{seed}")
        played = Schedule(documents, ref, Random(seed))  # noqa: S311 - to be repeated
        try:
            run = played.play()
            check(played, run)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
        if seed % 100 == 0:
            gc.collect()
            traced = documents.query(Query(f"{ref}/trace"))
            assert len(traced) == run.traced == played.events.total()


def check(played: Schedule, run: Manifest) -> None:
    """Compare the run with the hand-offs, as the rules of docs/trials.md have it."""
    assert run.status is RunStatus.COMPLETED
    reviews = {trial: json.loads(out) for (step, trial), out in played.handed.items()
               if step == REVIEWER}  # fmt: skip
    last = len(reviews)
    assert sorted(reviews) == [*range(1, last + 1)]
    assert sorted(trial for step, trial in played.handed if step == AUTHOR) == sorted(reviews)
    whole = {trial: is_whole(played, trial) for trial in reviews}
    for trial, review in reviews.items():
        goes_on = not review["settled"] and trial < MAX_TRIALS and whole[trial]
        assert goes_on is (trial < last)
    settled = [trial for trial, review in reviews.items() if review["settled"]]
    best = settled[0] if settled else max(reviews, key=lambda one: (reviews[one]["score"], one))
    for step in (AUTHOR, REVIEWER):
        record = run.steps[step]
        assert (record.trial, record.output) == (best, played.handed[step, best])
        losers = {one.trial: one.output for one in record.trials or ()}
        assert losers == {trial: played.handed[step, trial] for trial in reviews if trial != best}
    is_refused = not settled and last < MAX_TRIALS
    events = played.events
    assert events["author_slot_opened"] == last - 1
    assert (events["trial_chosen"], events["author_slot_refused"]) == (1, int(is_refused))


def is_whole(played: Schedule, trial: int) -> bool:
    """Whether the author's output of a trial has the status SUCCESS: its worker knows."""
    by = json.loads(played.handed[AUTHOR, trial])["by"]
    return next(w.status for w in played.workers if w.fence.lease_id == by) == "SUCCESS"
