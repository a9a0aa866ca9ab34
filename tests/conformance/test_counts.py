"""How many runs are in each state, on both stores, as their indexes have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest

from leasehold.api.call_row import CallRequest
from leasehold.api.calls import counts
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import run_ref
from leasehold.domain.stored import Write
from leasehold.services.engine import Engine
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.start_run import StartRequest, start_run

#: The fields of a run in each state, as they differ from those of one that waits.
STATES: Mapping[str, dict[str, Any]] = {
    "pending": {},
    "paused": {"paused": True},
    "in progress": {"status": "IN_PROGRESS"},
    "retrying": {"status": "ERROR"},
    "blocked": {"status": "BLOCKED"},
    "completed": {"status": "COMPLETED"},
    "cancelled": {"cancelled": True},
    "cancelled at work": {"cancelled": True, "status": "IN_PROGRESS"},
    "cancelled in error": {"cancelled": True, "status": "ERROR"},
    "cancelled at a gate": {"cancelled": True, "status": "BLOCKED"},
    "exhausted": {"deadLettered": True, "status": "ERROR", "deadLetterReason": "RETRIES_EXHAUSTED"},
    "never begun": {"deadLettered": True, "status": "ERROR", "deadLetterReason": "NEVER_STARTED"},
}


def stored(engine: Engine, state: str, times: int = 1) -> None:
    for _ in range(times):
        run_id = start_run(engine, StartRequest("three", {"n": 1})).manifest.run_id

        def changed(found: Any, _: datetime) -> Write[None]:
            return Write(None, {**found, **STATES[state]})

        engine.documents.transact(run_ref(run_id), changed)


def counted(engine: Engine) -> Counter[str]:
    """Return all counts by their names; there are other runs of the store."""
    answer = counts.answer(engine, CallRequest(None)).model_dump()
    return Counter({**answer["states"], **answer["reasons"]})


@pytest.mark.parametrize(
    ("state", "counts_as"),
    [
        ("pending", ["pending"]),
        ("paused", ["pending"]),
        ("in progress", ["inProgress"]),
        ("retrying", ["retrying"]),
        ("blocked", ["blocked"]),
        ("completed", ["completed"]),
        ("cancelled", []),
        ("cancelled at work", []),
        ("cancelled in error", []),
        ("cancelled at a gate", []),
        ("exhausted", ["deadLettered", "RETRIES_EXHAUSTED"]),
        ("never begun", ["deadLettered", "NEVER_STARTED"]),
    ],
)
@pytest.mark.one_store
def test_a_run_counts_in_its_state(engine: Engine, state: str, counts_as: list[str]) -> None:
    before = counted(engine)

    stored(engine, state, times=2)

    assert counted(engine) - before == Counter(dict.fromkeys(counts_as, 2))
    assert before - counted(engine) == Counter()


def test_runs_in_all_states_count_at_once(engine: Engine) -> None:
    """On each store; which state counts as which, the test before says one by one."""
    before = counted(engine)

    for state in STATES:
        stored(engine, state)

    once = ("inProgress", "retrying", "blocked", "completed", "RETRIES_EXHAUSTED", "NEVER_STARTED")
    expected = Counter({**dict.fromkeys(once, 1), "pending": 2, "deadLettered": 2})
    assert counted(engine) - before == expected


def test_more_than_the_bound_are_the_bound(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold.services.count_runs.MAX_COUNTED", 3)
    stored(engine, "retrying", times=4)
    stored(engine, "exhausted", times=4)

    found = counted(engine)

    assert counts.answer(engine, CallRequest(None)).most == 3
    assert (found["retrying"], found["deadLettered"], found["RETRIES_EXHAUSTED"]) == (3, 3, 3)


def test_a_run_that_a_person_cancels_counts_no_more(engine: Engine) -> None:
    before = counted(engine)
    run_id = start_run(engine, StartRequest("three", {"n": 1})).manifest.run_id
    begun = counted(engine)

    operate(engine, run_id, OperationRequest(Operation.CANCEL, "ann"))

    assert begun - before == Counter({"pending": 1})
    assert counted(engine) == before
