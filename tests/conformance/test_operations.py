"""What people may do to a run, over HTTP and on real stores: the whole table, and batches.

Refused means: 409 with the state, and not a byte is changed.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Barrier
from typing import Any

import flask
import pytest

from leasehold.bootstrap import Bundle, Hooks, boot
from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Draft, on_run, with_index_fields
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.effect import Task, owed_tasks
from leasehold.domain.give_up_rules import Verdict
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest, manifest_of, run_ref, to_document
from leasehold.domain.manifest_parts import Block, ErrorRecord
from leasehold.domain.status import DeadLetterReason, Outcome
from leasehold.domain.stored import Write, replace
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Documents, Query
from leasehold.registry.pipelines import Catalog
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run
from leasehold.web.serve_api import answer_api
from tests.worlds.catalogs.sample import PIPELINES, STEPS
from tests.worlds.runs_api import OpenEngine
from tests.worlds.stores import DOCUMENTS

pytestmark = pytest.mark.one_store

#: Rows are the states of a run. A run that is given up is ERROR from then on, whatever it was;
#: COMPLETED with an overlay is written by no transition, and refused all the same.
TABLE = """
state                       pause  resume  cancel  retry  approve  recreate
PENDING                     yes    -       yes     -      -        -
PENDING+paused              -      yes     yes     -      -        -
PENDING+cancelled           -      -       -       -      -        yes
PENDING+dead-lettered       -      -       -       -      -        yes
IN_PROGRESS                 yes    -       yes     -      -        -
IN_PROGRESS+paused          -      yes     yes     -      -        -
IN_PROGRESS+cancelled       -      -       -       -      -        yes
IN_PROGRESS+dead-lettered   -      -       -       -      -        yes
ERROR                       yes    -       yes     yes    -        -
ERROR+paused                -      yes     yes     yes    -        -
ERROR+cancelled             -      -       -       -      -        yes
ERROR+dead-lettered         -      -       -       -      -        yes
BLOCKED                     yes    -       yes     yes    yes      -
BLOCKED+paused              -      yes     yes     yes    yes      -
BLOCKED+cancelled           -      -       -       -      -        yes
BLOCKED+dead-lettered       -      -       -       -      -        yes
COMPLETED                   -      -       -       -      -        yes
COMPLETED+paused            -      -       -       -      -        yes
COMPLETED+cancelled         -      -       -       -      -        yes
COMPLETED+dead-lettered     -      -       -       -      -        yes
"""
HEADS, *ROWS = [line.split() for line in TABLE.strip().splitlines()]
TABLE_CELLS = [
    (row[0], name, cell == "yes")
    for row in ROWS
    for name, cell in zip(HEADS[1:], row[1:], strict=True)
]
#: The table is a rule of the domain, so one store is asked all of it; of every other one, each
#: operation where it is done and where it is refused.
FIRST_CELLS = list({cell[1:]: cell for cell in reversed(TABLE_CELLS)}.values())
CELLS = [
    pytest.param(kind, name, [(cell[0], cell[2]) for cell in cells if cell[1] == name])
    for kind in DOCUMENTS
    for cells in [TABLE_CELLS if kind == "sqlite" else FIRST_CELLS]
    for name in HEADS[1:]
]

OUTPUT = KeptValue(text='{"n":2}')
TOO_SHORT = Block(code="TOO_SHORT", check_id="length", finding="2 words", remediation="Look.")
BUSY = ErrorRecord(type="AgentClientError", code="overloaded", message="Try later.")
GIVEN_UP = Verdict(
    DeadLetterReason.RETRIES_EXHAUSTED, "Step add failed 3 of 3 times without progress."
)


@dataclass(frozen=True)
class Service:
    """The runs API over one store, and what workers do beside it."""

    bundle: Bundle
    label: str

    def post(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        app = flask.Flask(__name__)
        with app.test_request_context(path, method="POST", json=body or {}, headers=headers):
            answer = answer_api(OpenEngine(self.bundle.engine), flask.request)
        return answer.status_code, answer.get_json()

    def batch(self, action: str, **words: Any) -> tuple[int, Any]:
        body = {"action": action, "filter": {"label": self.label}, "limit": 100, **words}
        return self.post("/runs:batch", body)

    def start(self) -> str:
        key, _, value = self.label.partition(":")
        request = StartRequest("three", {"n": 1}, labels={key: value})
        return start_run(self.bundle.engine, request).manifest.run_id

    def change(self, run_id: str, transition: Callable[..., Change], **facts: Any) -> Manifest:
        decide = on_run(run_id, partial(transition, rules=self.bundle.engine.rules, **facts))
        return self.bundle.engine.documents.transact(run_ref(run_id), decide).answer.manifest

    def get(self, run_id: str) -> Manifest:
        return get_run(self.bundle.engine, run_id)

    def leased(self, run_id: str) -> Fence:
        generation = self.get(run_id).position.dispatch.generation
        facts: dict[str, Any] = {"generation": generation, "lease_id": f"lease-{generation}"}
        run = self.change(run_id, lifecycle.arrive, holder="worker-1", **facts)
        assert run.position.lease is not None
        return Fence(run.position.lease.lease_id, run.fencing_token)

    def completed(self, run_id: str) -> None:
        while self.get(run_id).status != "COMPLETED":
            self.change(run_id, lifecycle.complete, fence=self.leased(run_id), output=OUTPUT)

    def given_up(self, run_id: str) -> None:
        self.change(run_id, _give_up)

    def stored(self, run_id: str) -> tuple[Any, list[Any]]:
        """Return all there is of a run, its version too, and its trace."""
        documents = self.bundle.engine.documents
        found = documents.get(run_ref(run_id))
        assert found is not None
        trace = documents.query(Query(f"runs/{run_id}/trace"))
        return (found.version, found.document), [event.document for event in trace]

    def trace(self, run_id: str) -> list[Any]:
        return self.stored(run_id)[1]


def _give_up(manifest: Manifest, now: datetime, *, rules: Any) -> Change:
    return lifecycle.dead_letter(Draft(manifest, now, rules), GIVEN_UP)


@pytest.fixture
def service(documents: Documents, folder: Path, unique: str) -> Service:
    return Service(booted(documents, folder), f"test:{unique}")


def booted(documents: Documents, folder: Path, **options: Any) -> Bundle:
    return boot(
        {"LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts"},
        catalog=Catalog(steps=STEPS, pipelines=PIPELINES),
        documents=documents,
        **options,
    )


# -- the table -------------------------------------------------------------------------------------


def run_in(service: Service, state: str) -> str:
    """Make a run that is in a state of the table; return its id."""
    status, _, overlay = state.partition("+")
    run_id = service.start()
    if status == "IN_PROGRESS":
        service.leased(run_id)
    elif status == "ERROR":
        service.change(run_id, lifecycle.fail, fence=service.leased(run_id), error=BUSY)
    elif status == "BLOCKED":
        fence = service.leased(run_id)
        found: dict[str, Any] = {"output_status": "SUCCESS", "found": TOO_SHORT}
        service.change(run_id, lifecycle.block, fence=fence, output=OUTPUT, **found)
    elif status == "COMPLETED":
        service.completed(run_id)
    if overlay:
        lay_over(service, run_id, overlay)
    return run_id


def lay_over(service: Service, run_id: str, overlay: str) -> None:
    if service.get(run_id).status == "COMPLETED":
        field = {"dead-lettered": "dead_lettered"}.get(overlay, overlay)

        def written(document: Any, now: datetime) -> Write[None]:
            run = replace(manifest_of(run_id, document), **{field: True})
            grace = service.bundle.engine.rules.grace
            return Write(None, to_document(with_index_fields(run, grace)))

        service.bundle.engine.documents.transact(run_ref(run_id), written)
    elif overlay == "dead-lettered":
        service.given_up(run_id)
    else:
        operation = lifecycle.pause if overlay == "paused" else lifecycle.cancel
        service.change(run_id, operation, actor="ann", reason="")


def assert_done(name: str, before: Manifest, after: Manifest) -> None:
    """Check what an operation that is allowed leaves behind."""
    generation = before.position.dispatch.generation
    if name == "pause":
        assert (after.status, after.paused, after.position.lease) == (
            before.status,
            True,
            before.position.lease,
        )
    elif name == "resume":
        moves = before.status in ("PENDING", "ERROR")
        assert after.status == ("PENDING" if moves else before.status)
        assert (after.paused, after.position.lease) == (False, before.position.lease)
        assert after.position.dispatch.generation == generation + moves
    elif name == "cancel":
        assert (after.cancelled, after.paused, after.position.lease) == (True, False, None)
        assert after.position.dispatch.generation == generation
        was_leased = (
            before.position.lease is not None
        )  # whose worker may still store a temporary file
        assert (after.alarm_at is not None) == was_leased
    elif name == "retry":
        assert (after.status, after.current_step, after.block) == ("PENDING", "add", None)
        assert after.steps["add"].kept_output is None
        leaves_a_block = before.status == "BLOCKED"
        assert after.position.dispatch.generation == generation + (
            leaves_a_block or not before.paused
        )
    elif name == "approve":
        assert (after.status, after.current_step) == ("PENDING", "add_later")
        assert (after.block, after.given.text) == (None, '{"n":2}')
        assert after.position.dispatch.generation == generation + 1


@pytest.mark.each_store
@pytest.mark.parametrize(("kind", "name", "column"), CELLS, indirect=["kind"])
def test_an_operation_is_done_or_refused_as_the_table_says(
    service: Service, name: str, column: list[tuple[str, bool]]
) -> None:
    for state, allowed in column:
        check_operation(service, state, name, allowed=allowed)


def check_operation(service: Service, state: str, name: str, *, allowed: bool) -> None:
    run_id = run_in(service, state)
    before, kept = service.get(run_id), service.stored(run_id)

    status, answer = service.post(f"/runs/{run_id}:{name}", {"reason": "why not"})

    after = service.get(run_id)
    if not allowed:
        assert (status, answer["error"]["code"]) == (409, "not_allowed")
        assert f"it is {before.state}; allowed when it is" in answer["error"]["message"]
        assert answer["error"]["details"]["state"] == before.state
        assert service.stored(run_id) == kept
        return
    assert status == 200
    assert_done(name, before, after)
    new = [event for event in service.trace(run_id) if event not in kept[1]]
    (result,) = [event for event in new if event["type"].startswith("run_")]
    assert (result["actor"], result["reason"]) == ("api", "why not")
    if name != "recreate":
        assert answer["runId"] == run_id
        return
    created = service.get(answer["runId"])
    assert (created.status, created.current_step, created.input) == ("PENDING", "add", '{"n":1}')
    assert (created.recreated_from, after.recreated_as) == (run_id, (created.run_id,))
    assert (after.status, after.cancelled, after.dead_lettered) == (
        before.status,
        before.cancelled,
        before.dead_lettered,
    )


def test_a_recreated_run_keeps_earlier_outputs_and_the_labels(service: Service) -> None:
    run_id = service.start()
    service.completed(run_id)

    _, summary = service.post(f"/runs/{run_id}:recreate", {"fromStep": "add_again"})

    created = service.get(summary["runId"])
    assert (created.current_step, created.given.text) == ("add_again", '{"n":2}')
    assert [step for step in created.plan if created.steps[step].kept_output] == [
        "add",
        "add_later",
    ]
    assert created.labels == (service.label,)
    assert created.recreated_from == run_id
    assert service.get(run_id).recreated_as == (created.run_id,)


def test_a_recreated_run_can_have_another_input_and_other_labels(service: Service) -> None:
    run_id = service.start()
    service.given_up(run_id)

    _, summary = service.post(f"/runs/{run_id}:recreate", {"input": {"n": 7}, "labels": {"a": "b"}})

    created = service.get(summary["runId"])
    assert (created.input, created.labels, created.current_step) == ('{"n":7}', ("a:b",), "add")
    assert created.input_digest != service.get(run_id).input_digest


def test_a_run_can_be_recreated_twice_by_hand(service: Service) -> None:
    run_id = service.start()
    service.given_up(run_id)

    made = [service.post(f"/runs/{run_id}:recreate")[1]["runId"] for _ in range(2)]

    assert service.get(run_id).recreated_as == tuple(made)


class QueueDown:
    """A task queue service that takes nothing."""

    def create(self, task: Task) -> None:
        raise StoreUnavailableError(store="Cloud Tasks", problem=f"no queue {task.queue}")

    def exists(self, task: Task) -> bool:
        raise StoreUnavailableError(store="Cloud Tasks", problem=f"no queue {task.queue}")


@pytest.fixture
def without_queue(service: Service, documents: Documents, folder: Path) -> Service:
    """The same store, served where the queue is down."""
    return Service(booted(documents, folder, tasks=QueueDown()), service.label)


@pytest.mark.each_store
def test_what_was_committed_stands_where_its_queue_is_down(
    service: Service, without_queue: Service
) -> None:
    """The sweep creates the task; asked again, it would be refused, or a second run made."""
    paused, dead = run_in(service, "PENDING+paused"), run_in(service, "ERROR+dead-lettered")

    resumed = without_queue.post(f"/runs/{paused}:resume")
    recreated = without_queue.post(f"/runs/{dead}:recreate")

    assert (resumed[0], service.get(paused).position.dispatch.generation) == (200, 2)
    assert (recreated[0], recreated[1]["status"]) == (200, "PENDING")
    for run_id in (paused, recreated[1]["runId"]):
        assert len(owed_tasks(service.get(run_id))) == 1
        assert service.get(run_id).alarm_at is not None


# -- batches ---------------------------------------------------------------------------------------


def dead_runs(service: Service, count: int) -> list[str]:
    found = [service.start() for _ in range(count)]
    for run_id in found:
        service.given_up(run_id)
    return found


def assert_each_recreated_once(service: Service, dead: Sequence[str]) -> None:
    """By their own word, and by the runs that there are."""
    made = [service.get(run_id).recreated_as for run_id in dead]
    query = partial(Query, "runs", order_by="createdAt", contains=("labels", service.label))
    found = service.bundle.engine.documents.query(query(limit=200))
    assert [len(names) for names in made] == [1] * len(dead)
    assert {one.ref.id for one in found} == {*dead, *(name for (name,) in made)}


def test_a_dry_run_changes_nothing_and_refuses_what_would_be_refused(service: Service) -> None:
    dead = dead_runs(service, 2)
    live = service.start()
    before = [service.stored(run_id) for run_id in (*dead, live)]

    status, result = service.batch("recreate", dryRun=True)

    assert (status, result["matched"], result["changed"]) == (200, 3, 0)
    assert result["refused"] == [{"runId": live, "code": "not_allowed"}]
    assert [service.stored(run_id) for run_id in (*dead, live)] == before
    assert service.batch("recreate", dryRun=True, fromStep="add_again")[1]["refused"] == [
        {"runId": live, "code": "not_allowed"},
        {"runId": dead[1], "code": "invalid_request"},
        {"runId": dead[0], "code": "invalid_request"},
    ]


@pytest.mark.each_store
def test_a_batch_changes_what_fits_at_most_its_limit_newest_first(service: Service) -> None:
    first, second, third = (service.start() for _ in range(3))

    result = service.batch("pause", limit=2)[1]

    assert result == {"matched": 2, "changed": 2, "refused": []}
    assert [service.get(run_id).paused for run_id in (first, second, third)] == [False, True, True]


def test_a_batch_comes_to_a_halt_where_a_queue_is_down(
    service: Service, without_queue: Service
) -> None:
    """A thousand runs would be a thousand times as long to wait."""
    dead = dead_runs(service, 3)

    status, error = without_queue.batch("recreate")

    assert (status, error["error"]["code"]) == (503, "store_unavailable")
    assert [len(service.get(run_id).recreated_as) for run_id in dead] == [0, 0, 1]


@pytest.mark.each_store
def test_two_batches_at_once_recreate_each_run_once(service: Service) -> None:
    dead = dead_runs(service, 6)
    ready = Barrier(2)

    def batch(_: int) -> Any:
        ready.wait()
        return service.batch("recreate")[1]

    with ThreadPoolExecutor(2) as threads:
        result = list(threads.map(batch, range(2)))

    assert sum(one["changed"] for one in result) == 6
    assert {refused["code"] for one in result for refused in one["refused"]} <= {
        "already_recreated",
        "not_allowed",  # a run that the other batch made
    }
    assert_each_recreated_once(service, dead)


def batch_that_stops(kind: str, folder: Path, label: str, parent: Connection) -> None:
    """Recreate, and wait forever behind the third commit."""
    done = 0

    def stop(change: Change) -> None:
        nonlocal done
        done += change.outcome is Outcome.RECREATED
        if done == 3:
            parent.send(done)
            parent.recv()

    with DOCUMENTS[kind](folder) as documents:
        service = Service(booted(documents, folder, hooks=Hooks(observe=stop)), label)
        service.batch("recreate")


@pytest.mark.each_store
def test_a_batch_that_was_killed_is_given_again(kind: str, service: Service, folder: Path) -> None:
    """Nothing remembers it but the runs: each of them says whether it was recreated."""
    dead = dead_runs(service, 7)
    spawned = multiprocessing.get_context("spawn")
    here, there = spawned.Pipe()
    process = spawned.Process(target=batch_that_stops, args=(kind, folder, service.label, there))
    process.start()
    assert here.poll(60)
    process.kill()
    process.join(20)
    assert [len(service.get(run_id).recreated_as) for run_id in dead] == [0, 0, 0, 0, 1, 1, 1]

    filter_ = {"label": service.label, "deadLettered": True}
    again = service.batch("recreate", filter=filter_)[1]

    assert process.exitcode == -9
    kept = {"steps": 0, "checkpoint": 0, "calls": 0, "trials": 0, "unjudged": 0}
    assert again == {"matched": 4, "changed": 4, "refused": [], "kept": kept}
    assert service.batch("recreate", filter=filter_)[1]["matched"] == 0
    assert_each_recreated_once(service, dead)
