"""Calls that remote workers record are counted with their spend: each once, whatever is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from leasehold.domain.checkpoint import CallCount
from leasehold.domain.lease import fence_of
from leasehold.domain.recorded_calls import MadeCall
from leasehold.domain.spend import Spend
from leasehold.errors import StoreUnavailableError, TooManyCallsError
from leasehold.ports.documents import Committed, Documents
from leasehold.remote_workers.claim_step import acquire_run
from leasehold.remote_workers.manage_lease import LeaseCredentials, record_call, recorded_calls
from leasehold.services.engine import Engine
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run
from tests.worlds.wrapped import Wrapped

pytestmark = [pytest.mark.one_store, pytest.mark.catalog("tests.worlds.catalogs.remote_step")]

COST = Spend(tokens=10, usd=0.25)


def leased(engine: Engine) -> LeaseCredentials:
    run_id = start_run(engine, StartRequest("away", {})).manifest.run_id
    return LeaseCredentials(run_id, fence_of(acquire_run(engine, run_id, "vm-1").manifest))


def record(engine: Engine, worker: LeaseCredentials, key: str) -> str:
    return record_call(engine, worker, MadeCall(key, "", "1", spend=COST))[1]


def counted(engine: Engine, worker: LeaseCredentials) -> tuple[CallCount | None, Spend | None]:
    step = get_run(engine, worker.run_id).steps["away"]
    return step.calls, step.spend


class KilledAfterIt(Wrapped[Documents]):
    """A store whose process dies with the next write, which stands."""

    is_dead = False

    def transact(self, *given: Any, **named: Any) -> Committed[Any]:
        if self.is_dead:
            raise StoreUnavailableError(store="store", problem="its process is dead")
        committed = self.inner.transact(*given, **named)
        self.is_dead = True
        return committed


@pytest.mark.each_store
def test_calls_that_are_recorded_at_once_are_counted_each_with_its_spend(engine: Engine) -> None:
    worker = leased(engine)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: record(engine, worker, f"ask {number}"), range(12)))

    assert counted(engine, worker) == (CallCount(made=12), Spend(tokens=120, usd=3.0))


@pytest.mark.parametrize("is_sent_again", [True, False])
def test_a_call_that_was_recorded_by_a_process_that_died_is_counted_once(
    engine: Engine, is_sent_again: bool
) -> None:
    """The worker sends it again, or asks for all of them."""
    worker = leased(engine)
    record(engine, worker, "before")
    with pytest.raises(StoreUnavailableError):
        record(replace(engine, documents=KilledAfterIt(engine.documents)), worker, "ask")

    for _ in range(2):
        if is_sent_again:
            record(engine, worker, "ask")
        else:
            recorded_calls(engine, worker, key=None, request=None, limit=10, page_token=None)

    assert counted(engine, worker) == (CallCount(made=2), Spend(tokens=20, usd=0.5))


def test_a_page_of_calls_has_no_more_bytes_than_an_answer_and_at_least_one_call(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.remote_workers.manage_lease._MAX_PAGE_BYTES", 8)
    worker = leased(engine)
    for key, result in (("a", '"123"'), ("b", "1"), ("c", '"0123456789"')):
        record_call(engine, worker, MadeCall(key, "", result))

    pages, token = [], None
    while token is not None or not pages:
        calls, token = recorded_calls(
            engine, worker, key=None, request=None, limit=10, page_token=token
        )
        pages.append([call.key for call, _ in calls])

    assert pages == [["a", "b"], ["c"]]


def test_a_call_that_is_sent_again_needs_no_room(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.remote_workers.manage_lease.MAX_RESULTS_PER_STEP", 2)
    worker = leased(engine)
    for key in ("a", "b", "a", "b"):
        assert record(engine, worker, key) == "1"

    with pytest.raises(TooManyCallsError):
        record(engine, worker, "c")

    assert counted(engine, worker) == (CallCount(made=2), Spend(tokens=20, usd=0.5))
