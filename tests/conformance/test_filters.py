"""Finding runs: by what an index tells and by what it does not, page by page, on either store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.in_process_tasks import InProcessTasks
from leasehold.bootstrap import Bundle, boot, load_catalog
from leasehold.domain.document import Write
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import run_ref
from leasehold.errors import InvalidRequestError
from leasehold.ports.documents import Documents
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.read_runs import RunFilter, list_runs, matching_runs
from leasehold.services.start_run import StartRequest, start_run

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def bundle(documents: Documents, folder: Path) -> Iterator[Bundle]:
    bundle = boot(
        {"LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts"},
        catalog=load_catalog("tests.in_process.sample"),
        documents=documents,
        tasks=InProcessTasks(SystemClock()),
    )
    yield bundle
    bundle.engine.leases.close()


@pytest.fixture
def runs(bundle: Bundle, unique: str) -> dict[str, str]:
    """Runs of one label by their names, the newest first; an hour lies between two of them."""
    names = ("given up", "cancelled", "paused", "at the third step", "waiting")
    made = {}
    for hours, name in enumerate(names):
        request = StartRequest("three", {"n": 1}, labels={"team": unique})
        run_id = made[name] = start_run(bundle.engine, request).manifest.run_id
        fields: dict[str, Any] = {"createdAt": NOON - timedelta(hours=hours)}
        if name == "given up":
            fields |= {"deadLettered": True, "status": "ERROR", "deadLetteredAt": NOON}
        if name == "at the third step":
            fields |= {"currentStep": "wait", "plan": ["add", "wait"]}
            fields["steps"] = {step: {"status": "PENDING"} for step in fields["plan"]}
        if name in ("paused", "cancelled"):
            operation = Operation.PAUSE if name == "paused" else Operation.CANCEL
            operate(bundle.engine, run_id, OperationRequest(operation, "ann"))
        write(bundle, run_id, fields)
    return made


def write(bundle: Bundle, run_id: str, fields: dict[str, Any]) -> None:
    bundle.engine.documents.transact(
        run_ref(run_id), lambda found, _: Write(None, {**(found or {}), **fields})
    )


FILTERS = [
    (RunFilter(paused=True), ["paused"]),
    (RunFilter(paused=False, step="add"), ["given up", "cancelled", "waiting"]),
    (RunFilter(cancelled=True), ["cancelled"]),
    (RunFilter(cancelled=False, dead_lettered=False), ["paused", "at the third step", "waiting"]),
    (RunFilter(step="wait"), ["at the third step"]),
    (RunFilter(status="PENDING"), ["paused", "at the third step", "waiting"]),
    (RunFilter(status="PENDING", cancelled=True), ["cancelled"]),
    (RunFilter(status="PENDING", paused=False), ["at the third step", "waiting"]),
    (RunFilter(status="ERROR"), ["given up"]),
    (RunFilter(since=NOON - timedelta(hours=1)), ["given up", "cancelled"]),
    (RunFilter(until=NOON - timedelta(hours=3)), ["waiting"]),
    (
        RunFilter(since=NOON - timedelta(hours=3), until=NOON, cancelled=False),
        ["paused", "at the third step"],
    ),
]


@pytest.mark.parametrize(("wanted", "names"), FILTERS, ids=lambda value: repr(value)[:60])
@pytest.mark.parametrize("most", [1, 2, 2000])
def test_each_filter_finds_its_runs_whatever_a_page_may_look_at(
    *,
    bundle: Bundle,
    runs: dict[str, str],
    unique: str,
    wanted: RunFilter,
    names: list[str],
    most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("leasehold.services.read_runs.MAX_LOOKED_AT", most)
    monkeypatch.setattr("leasehold.services.read_runs.SCAN_PAGE", 1)
    wanted = replace(wanted, label=f"team:{unique}")

    found, token = [], None
    for _ in range(len(runs) + 1):
        page = list_runs(bundle.engine, wanted, limit=1, page_token=token)
        found += [run.run_id for run in page.runs]
        token = page.next_page_token
        if token is None:
            break

    assert token is None, "the pages do not end"
    assert found == [runs[name] for name in names]
    assert [run.run_id for run in matching_runs(bundle.engine, wanted)] == found


def test_a_token_continues_a_list_whose_age_was_given_a_moment_later(
    bundle: Bundle, runs: dict[str, str], unique: str
) -> None:
    """`--since 3d` is another time each time it is typed."""
    wanted = RunFilter(label=f"team:{unique}", since=NOON - timedelta(hours=9))
    first = list_runs(bundle.engine, wanted, limit=2)

    later = replace(wanted, since=NOON - timedelta(hours=8))
    rest = list_runs(bundle.engine, later, page_token=first.next_page_token)

    assert [run.run_id for run in first.runs + rest.runs] == list(runs.values())
    assert rest.next_page_token is None


def test_times_with_nothing_between_them_are_refused(bundle: Bundle) -> None:
    with pytest.raises(InvalidRequestError, match="a time after 2026-03-01T12:00:00"):
        list_runs(bundle.engine, RunFilter(since=NOON, until=NOON))
