"""Operations that come twice, late, or after a lost answer: none passes a gate unseen."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.stored import DecideDocument, Ref
from leasehold.ports.documents import Committed, Documents, Query, Snapshot
from tests.conformance.test_operations import OUTPUT, TOO_SHORT, Service, booted
from tests.worlds.wrapped import Wrapped

pytestmark = pytest.mark.one_store

LOOKED = {"reason": "looked at them"}


@pytest.fixture
def service(documents: Documents, folder: Path, unique: str) -> Service:
    return Service(booted(documents, folder), f"test:{unique}")


def block(service: Service, run_id: str, output: KeptValue = OUTPUT) -> int:
    """Let a worker take the step, and its gate refuse the output; return the generation."""
    found: dict[str, Any] = {"output_status": "SUCCESS", "found": TOO_SHORT}
    fence = service.leased(run_id)
    blocked = service.change(run_id, lifecycle.block, fence=fence, output=output, **found)
    return blocked.position.dispatch.generation


def blocked(service: Service) -> str:
    """Return the id of a run that a gate holds at its first step."""
    run_id = service.start()
    block(service, run_id)
    return run_id


def at(service: Service, run_id: str) -> tuple[str, str]:
    run = service.get(run_id)
    return run.current_step, run.status.value


GATE_1, GATE_2 = ("add", "BLOCKED"), ("add_later", "BLOCKED")
PAST_1, PAST_2 = ("add_later", "PENDING"), ("add_again", "PENDING")


# -- one run ---------------------------------------------------------------------------------------


def test_a_bound_approval_that_comes_twice_passes_one_gate(service: Service) -> None:
    run_id = blocked(service)
    body = LOOKED | {"generation": service.get(run_id).position.dispatch.generation}
    first = service.post(f"/runs/{run_id}:approve", body)
    at_once = service.post(f"/runs/{run_id}:approve", body)
    block(service, run_id)
    kept = service.stored(run_id)

    late = service.post(f"/runs/{run_id}:approve", body)

    assert first == at_once
    assert (late[0], late[1]["currentStep"], late[1]["status"]) == (200, *GATE_2)
    assert service.stored(run_id) == kept


def test_an_unbound_approval_that_comes_twice_passes_one_gate(service: Service) -> None:
    run_id = blocked(service)
    service.post(f"/runs/{run_id}:approve", LOOKED)
    generation = block(service, run_id)
    kept = service.stored(run_id)

    status, answer = service.post(f"/runs/{run_id}:approve", LOOKED)

    assert (status, answer["error"]["code"]) == (409, "state_changed")
    assert f"then give generation {generation}." in answer["error"]["message"]
    assert answer["error"]["details"]["step"] == "add_later"
    assert service.stored(run_id) == kept
    body = LOOKED | {"generation": generation}
    assert service.post(f"/runs/{run_id}:approve", body)[0] == 200
    assert at(service, run_id) == PAST_2


@pytest.mark.parametrize("name", ["pause", "resume", "cancel", "retry", "approve", "recreate"])
def test_another_generation_or_step_changes_not_a_byte(service: Service, name: str) -> None:
    run_id = blocked(service)
    if name == "resume":
        service.post(f"/runs/{run_id}:pause")
    if name == "recreate":
        service.given_up(run_id)
    generation, kept = service.get(run_id).position.dispatch.generation, service.stored(run_id)

    for other in ({"generation": generation + 1}, {"generation": 1}, {"step": "add_later"}):
        status, answer = service.post(f"/runs/{run_id}:{name}", other)
        assert (status, answer["error"]["code"]) == (409, "state_changed")

    assert service.stored(run_id) == kept
    right = {"generation": generation, "step": "add"}
    assert service.post(f"/runs/{run_id}:{name}", right)[0] == 200


def test_a_bound_recreation_that_comes_twice_makes_one_run(service: Service) -> None:
    run_id = service.start()
    service.given_up(run_id)
    body = {"generation": 1, "input": {"n": 7}}

    first = service.post(f"/runs/{run_id}:recreate", body)
    again = service.post(f"/runs/{run_id}:recreate", body)
    other = service.post(f"/runs/{run_id}:recreate", {"generation": 1, "input": {"n": 8}})

    assert first == again
    assert service.get(run_id).recreated_as == (first[1]["runId"], other[1]["runId"])


@pytest.mark.each_store
def test_of_the_same_approvals_at_once_one_is_done_and_all_are_answered(service: Service) -> None:
    run_id = blocked(service)
    body = LOOKED | {"generation": service.get(run_id).position.dispatch.generation}
    ready = Barrier(2)

    def approve(_: int) -> tuple[int, Any]:
        ready.wait()
        return service.post(f"/runs/{run_id}:approve", body)

    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(approve, range(2)))

    assert [status for status, _ in answers] == [200, 200]
    assert at(service, run_id) == PAST_1
    types = [event["type"] for event in service.trace(run_id)]
    assert types.count("run_approved") == 1


# -- a store between whose calls something happens -------------------------------------------------


class Interrupted(Wrapped[Documents]):
    """A store; `happens` once, behind the first call of a kind.

    A transaction is repeated behind it, as a store does that lost the answer to its first commit.
    """

    def __init__(self, documents: Documents, call: str, happens: Callable[[], object]) -> None:
        super().__init__(documents)
        self._call, self._happens = call, [happens]

    def get(self, ref: Ref) -> Snapshot | None:
        found = self.inner.get(ref)
        self._interrupt("get")
        return found

    def transact(
        self, ref: Ref, decide: DecideDocument[Change], **options: Any
    ) -> Committed[Change]:
        committed = self.inner.transact(ref, decide, **options)
        if self._interrupt("transact"):
            committed = self.inner.transact(ref, decide, **options)
        return committed

    def _interrupt(self, call: str) -> bool:
        if call != self._call or not self._happens:
            return False
        self._happens.pop()()
        return True


@pytest.fixture
def interrupted(service: Service, documents: Documents, folder: Path) -> Callable[..., Service]:
    def wrap(call: str, happens: Callable[[], object]) -> Service:
        store: Any = Interrupted(documents, call, happens)
        return Service(booted(store, folder), service.label)

    return wrap


@pytest.mark.each_store
@pytest.mark.parametrize("bound", [True, False])
def test_a_commit_whose_answer_the_store_lost_is_known_again(
    service: Service, interrupted: Callable[..., Service], bound: bool
) -> None:
    """A worker was faster than the second try, and the run stands at the next gate."""
    run_id = blocked(service)
    generation = service.get(run_id).position.dispatch.generation
    there = interrupted("transact", partial(block, service, run_id))

    body = LOOKED | ({"generation": generation} if bound else {})
    status, _ = there.post(f"/runs/{run_id}:approve", body)

    assert (status, at(service, run_id)) == (200, GATE_2)


@pytest.mark.parametrize("name", ["cancel", "pause", "recreate"])
def test_whatever_was_committed_is_answered_as_done(
    service: Service, interrupted: Callable[..., Service], name: str
) -> None:
    run_id = service.start()
    if name == "recreate":
        service.given_up(run_id)
    there = interrupted("transact", lambda: None)

    status, answer = there.post(f"/runs/{run_id}:{name}")

    assert status == 200
    assert len(service.get(run_id).operations) == 1
    created = service.get(run_id).recreated_as
    assert created == ((answer["runId"],) if name == "recreate" else ())


@pytest.mark.each_store
@pytest.mark.parametrize("name", ["approve", "retry"])
def test_a_decision_holds_for_the_block_that_was_read(
    service: Service, interrupted: Callable[..., Service], name: str
) -> None:
    """Another process was faster, between the read and the commit."""
    run_id = blocked(service)

    def bob_is_faster() -> None:
        service.post(f"/runs/{run_id}:approve", {"reason": "bob's"})
        block(service, run_id)

    status, answer = interrupted("get", bob_is_faster).post(f"/runs/{run_id}:{name}", LOOKED)

    assert (status, answer["error"]["code"]) == (409, "state_changed")
    assert at(service, run_id) == GATE_2


# -- batches ---------------------------------------------------------------------------------------


def approve_all(service: Service, **words: Any) -> Any:
    filter_ = {"label": service.label, "status": "BLOCKED"}
    return service.batch("approve", filter=filter_, **LOOKED, **words)[1]


def test_a_batch_that_was_cut_off_and_given_again_passes_no_second_gate(service: Service) -> None:
    """The ten that went on before it was given again are at a gate that was not seen."""
    runs = [blocked(service) for _ in range(20)]
    first = approve_all(service, limit=10)
    older, newer = runs[:10], runs[10:]
    for run_id in newer:
        block(service, run_id)
    kept = [service.stored(run_id) for run_id in newer]

    dry = approve_all(service, limit=10, dryRun=True)
    again = approve_all(service, limit=10)

    refused = [{"runId": run_id, "code": "state_changed"} for run_id in reversed(newer)]
    assert first == {"matched": 10, "changed": 10, "refused": []}
    assert again == {"matched": 20, "changed": 10, "refused": refused}
    assert dry == {**again, "changed": 0}
    assert [service.stored(run_id) for run_id in newer] == kept
    assert {at(service, run_id) for run_id in older} == {PAST_1}


def test_a_batch_that_names_the_step_passes_that_gate_and_no_other(service: Service) -> None:
    first, second = blocked(service), blocked(service)
    approve_all(service, limit=1)
    block(service, second)

    done = approve_all(service, step="add_later")
    again = approve_all(service, step="add_later")

    refused = [{"runId": first, "code": "state_changed"}]
    assert done == {"matched": 2, "changed": 1, "refused": refused}
    assert again == {"matched": 1, "changed": 0, "refused": refused}
    assert (at(service, first), at(service, second)) == (GATE_1, PAST_2)


def test_a_batch_of_retries_that_is_given_again_drops_no_second_output(service: Service) -> None:
    run_id = blocked(service)
    retry = partial(service.batch, "retry", **LOOKED)
    retry()
    block(service, run_id, KeptValue(text='{"n":3}'))
    kept = service.stored(run_id)

    again = [retry()[1], retry(step="add")[1]]

    assert [done["refused"] for done in again] == [[{"runId": run_id, "code": "state_changed"}]] * 2
    assert service.stored(run_id) == kept


def test_a_batch_decides_about_the_runs_that_it_listed(
    service: Service, documents: Documents, folder: Path
) -> None:
    """A run that reached the next gate between the list and its turn is left alone."""
    run_id = blocked(service)

    class Listed:
        """The store; a run goes on behind the list."""

        def query(self, query: Query) -> Any:
            found = documents.query(query)
            if query.collection == "runs":
                service.post(f"/runs/{run_id}:approve", {"reason": "bob's"})
                block(service, run_id)
            return found

        def __getattr__(self, name: str) -> Any:
            return getattr(documents, name)

    store: Any = Listed()
    done = approve_all(Service(booted(store, folder), service.label), limit=1)

    assert done["refused"] == [{"runId": run_id, "code": "state_changed"}]
    assert at(service, run_id) == GATE_2
