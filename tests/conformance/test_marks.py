"""Whether a run or a page has changed, on both stores, without reading what is in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from leasehold.domain.lifecycle import Operation
from leasehold.domain.stored import Ref
from leasehold.domain.trouble import Trouble
from leasehold.errors import InvalidRequestError, UnknownRunError
from leasehold.ports.documents import Documents, Query, Snapshot
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.purge import purge
from leasehold.services.read_runs import RunFilter, list_runs, page_mark, run_mark
from leasehold.services.start_run import StartRequest, start_run
from tests.worlds.wrapped import Wrapped


class Asked(Wrapped[Documents]):
    """Keeps the queries, and what was read by each; nothing is read by name."""

    def __init__(self, inner: Documents) -> None:
        super().__init__(inner)
        self.queries: list[Query] = []
        self.read: list[int] = []

    def get(self, ref: Ref) -> Snapshot | None:
        raise AssertionError(f"{ref} is read")

    def query(self, query: Query) -> Sequence[Snapshot]:
        found = self.inner.query(query)
        self.queries.append(query)
        self.read.append(len(found))
        return found


def begun(engine: Engine, unique: str) -> str:
    labels = {"team": unique}
    return start_run(engine, StartRequest("three", {"n": 1}, labels=labels)).manifest.run_id


def test_the_mark_of_a_run_is_another_one_after_each_write(engine: Engine, unique: str) -> None:
    run_id, other = begun(engine, unique), begun(engine, unique)
    marks = [run_mark(engine, run_id), run_mark(engine, run_id)]

    for operation in (Operation.PAUSE, Operation.RESUME):
        operate(engine, run_id, OperationRequest(operation, "ann"))
        marks.append(run_mark(engine, run_id))
    execute_step(engine, Hint(run_id, 2))
    marks.append(run_mark(engine, run_id))
    execute_step(engine, Hint(other, 1))

    assert marks[0] == marks[1]
    assert len(set(marks)) == 4
    assert run_mark(engine, run_id) == marks[-1] != run_mark(engine, other)


@pytest.mark.parametrize("run_id", ["r-none", "", "a/b", "x" * 200])
def test_an_id_without_a_run_has_no_mark(engine: Engine, run_id: str) -> None:
    with pytest.raises(UnknownRunError):
        run_mark(engine, run_id)


def test_a_run_that_is_gone_has_no_mark_though_another_id_begins_so(
    engine: Engine, unique: str
) -> None:
    run_id = begun(engine, unique)

    with pytest.raises(UnknownRunError):
        run_mark(engine, run_id[:-1])

    operate(engine, run_id, OperationRequest(Operation.CANCEL, "ann"))
    purge(engine, RunFilter(label=f"team:{unique}"), ended_before=engine.clock.now())
    with pytest.raises(UnknownRunError):
        run_mark(engine, run_id)


def test_the_mark_of_a_page_is_another_one_where_the_page_is(
    engine: Engine, unique: str, label: str
) -> None:
    wanted = RunFilter(label=label)
    marks = [page_mark(engine, wanted, 2)]
    runs = []
    for _ in range(3):
        runs.append(begun(engine, unique))
        marks.append(page_mark(engine, wanted, 2))
    token = list_runs(engine, wanted, limit=2).next_page_token
    second = page_mark(engine, wanted, 2, token)

    operate(engine, runs[0], OperationRequest(Operation.PAUSE, "ann"))

    assert len(set(marks)) == 4
    assert page_mark(engine, wanted, 2) == marks[-1]
    assert page_mark(engine, wanted, 2, token) != second
    assert page_mark(engine, replace(wanted, paused=True), 2) != marks[0]
    with pytest.raises(InvalidRequestError, match="pageToken"):
        page_mark(engine, wanted, 2, "x")


@pytest.mark.parametrize(
    "more", [{}, {"paused": False, "step": "add"}, {"trouble": Trouble.RETRYING}]
)
def test_a_mark_is_one_query_of_a_few_fields(
    engine: Engine, unique: str, label: str, more: dict[str, Any]
) -> None:
    run_id, *_ = (begun(engine, unique) for _ in range(3))
    asked: Any = Asked(engine.documents)
    watched = replace(engine, documents=asked)

    run_mark(watched, run_id)
    page_mark(watched, RunFilter(label=label, **more))

    assert asked.read[0] == 1
    assert len(asked.queries) == 2
    assert max(asked.read) <= 51
    assert all("input" not in query.fields and query.fields for query in asked.queries)
