"""An overview of runs on both stores: what each waits for, as `why` says it, from one query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from leasehold.api.call_row import CallRequest
from leasehold.api.calls import overview, why
from leasehold.api.runs import RunsQuery
from leasehold.api.upkeep import OverviewResponse, RunOverview
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import run_ref
from leasehold.domain.stored import Ref, Write
from leasehold.domain.summary import summary_of
from leasehold.domain.trouble import Trouble
from leasehold.ports.documents import Documents, Query, Snapshot
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run
from tests.worlds.wrapped import Wrapped

pytestmark = pytest.mark.one_store


class CountedReads(Wrapped[Documents]):
    """Counts the documents that are read, and the queries."""

    def __init__(self, inner: Documents) -> None:
        super().__init__(inner)
        self.documents = 0
        self.calls = 0

    def get(self, ref: Ref) -> Snapshot | None:
        self.calls += 1
        self.documents += 1
        return self.inner.get(ref)

    def query(self, query: Query) -> Sequence[Snapshot]:
        found = self.inner.query(query)
        self.calls += 1
        self.documents += len(found)
        return found


def asked(engine: Engine, **wanted: Any) -> OverviewResponse:
    return overview.answer(engine, CallRequest(RunsQuery(**wanted)))


def by_id(page: OverviewResponse) -> dict[str, RunOverview]:
    return {run.run_id: run for run in page.runs}


@pytest.fixture
def runs(engine: Engine, unique: str) -> dict[str, str]:
    """Runs in many states, by their names."""
    made = {}
    for name, pipeline in (
        ("waiting", "three"),
        ("paused", "three"),
        ("cancelled", "three"),
        ("given up", "refuses"),
        ("retrying", "recovers"),
        ("silent", "three"),
        ("completed", "three"),
    ):
        request = StartRequest(pipeline, {"n": 1}, labels={"team": unique})
        run = start_run(engine, request).manifest
        made[name] = run.run_id
        for _ in range({"given up": 1, "retrying": 2, "completed": 3}.get(name, 0)):
            generation = get_run(engine, run.run_id).position.dispatch.generation
            execute_step(engine, Hint(run.run_id, generation))
    operate(engine, made["paused"], OperationRequest(Operation.PAUSE, "ann"))
    operate(engine, made["cancelled"], OperationRequest(Operation.CANCEL, "ann"))
    past = engine.clock.now() - timedelta(days=1)
    held = {"leaseId": "l", "holder": "vm-1", "acquiredAt": past - timedelta(hours=1)}
    lease = {**held, "expiresAt": past, "maxExpiresAt": past}

    def silence(found: Any, _: Any) -> Write[None]:
        position = {**found["position"], "lease": lease}
        status = {"status": "IN_PROGRESS", "alarmAt": past}
        return Write(None, {**found, "position": position, **status})

    engine.documents.transact(run_ref(made["silent"]), silence)
    return made


@pytest.mark.each_store
def test_each_run_has_the_sentence_of_why(engine: Engine, runs: dict[str, str], label: str) -> None:
    found = by_id(asked(engine, label=label))

    assert set(found) == set(runs.values())
    for run_id, told in found.items():
        alone = why.answer(engine, CallRequest(None, run_id=run_id))
        if alone.waits_for is None:
            assert told.waits_for is None
        else:
            assert told.waits_for is not None
            assert alone.words == f"Run {run_id} {told.waits_for[0].lower()}{told.waits_for[1:]}"
        assert (told.until, told.then) == (alone.until, alone.then)
        summary = summary_of(get_run(engine, run_id))
        assert {name: getattr(told, name) for name, _ in summary} == dict(summary)


def test_the_troubles_and_causes_of_each_run_stand_beside_it(
    engine: Engine, runs: dict[str, str], label: str
) -> None:
    found = by_id(asked(engine, label=label))
    names = {run_id: name for name, run_id in runs.items()}

    troubles = {names[run_id]: told.troubles for run_id, told in found.items() if told.troubles}
    failed = {names[run_id]: told.attempts_by_cause.failed for run_id, told in found.items()}
    given_up = found[runs["given up"]]

    assert troubles == {
        "retrying": (Trouble.RETRYING,),
        "silent": (Trouble.SILENT, Trouble.OVERDUE),
    }
    assert {name for name, count in failed.items() if count} == {"given up", "retrying"}
    assert given_up.dead_letter_detail
    assert found[runs["waiting"]].dead_letter_detail is None


@pytest.mark.each_store
def test_a_page_is_read_by_one_query_of_runs(
    engine: Engine, runs: dict[str, str], label: str
) -> None:
    """And of what works on the store, which is no run's own."""
    counted: Any = CountedReads(engine.documents)

    first = asked(replace(engine, documents=counted), label=label, limit=3)
    rest = asked(engine, label=label, page_token=first.next_page_token)

    assert counted.calls <= 2
    assert counted.documents <= 51 + 20
    assert len(first.runs) == 3
    assert [run.run_id for run in first.runs + rest.runs] == list(reversed(runs.values()))
    assert rest.next_page_token is None


def test_no_page_has_more_than_fifty_runs(engine: Engine, label: str, unique: str) -> None:
    for _ in range(52):
        start_run(engine, StartRequest("three", {"n": 1}, labels={"team": unique}))

    first = asked(engine, label=label, limit=1000)
    rest = asked(engine, label=label, limit=1000, page_token=first.next_page_token)

    assert (len(first.runs), len(rest.runs)) == (50, 2)


def test_an_announcement_is_a_trouble_where_it_is_asked_for(
    engine: Engine, runs: dict[str, str], label: str
) -> None:
    assert asked(engine, label=label, trouble="announcement").runs == []
    (silent,) = asked(engine, label=label, trouble="silent").runs

    assert silent.run_id == runs["silent"]
