"""Pages of runs: what one odd document says of its creation hides no other, on either store."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from leasehold.domain.manifest import run_ref
from leasehold.domain.stored import Ref, Write
from leasehold.errors import InvalidRequestError
from leasehold.ports.documents import Documents, Query
from leasehold.services.adopt_runs import live_runs
from leasehold.services.audit import audit
from leasehold.services.engine import Engine
from leasehold.services.paging import pages
from leasehold.services.read_runs import (
    RunFilter,
    RunPage,
    list_runs,
    list_summaries,
    matching_runs,
    read_timeline,
)
from leasehold.services.start_run import StartRequest, start_run

ODD: dict[str, Any] = {
    "a number": 1_760_000_000,
    "a fraction": 0.5,
    "a huge number": 1e300,
    "true": True,
    "a word": "yesterday",
    "two words": "the day before",
    "no zone": "2026-01-01T00:00:00",
    "no zone in year 1": "0001-01-01T00:00:00",
    "another zone in year 1": "0001-01-01T00:00:00+14:00",
    "no text": "",
    "a surrogate pair": "\U0001f480",
    "a list": [1, "a"],
    "an object": {"seconds": 1},
    "year 1": datetime(1, 1, 1, tzinfo=UTC),
    "year 9999": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    "nothing": None,
}


def start(engine: Engine, label: str) -> str:
    key, _, value = label.partition(":")
    request = StartRequest("three", {"n": 1}, labels={key: value})
    return start_run(engine, request).manifest.run_id


def spoil(engine: Engine, run_id: str, **fields: Any) -> None:
    engine.documents.transact(
        run_ref(run_id), lambda found, _: Write(None, {**(found or {}), **fields})
    )


@pytest.mark.cover(2)
@pytest.mark.parametrize("list_some", [list_runs, list_summaries])
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_odd_times_of_creation_hide_no_other_run(
    engine: Engine, label: str, limit: int, list_some: Callable[..., RunPage[Any]]
) -> None:
    even = []
    for value in ODD.values():
        even.append(start(engine, label))
        spoil(engine, start(engine, label), createdAt=value)
    even.append(start(engine, label))

    wanted, token, found = RunFilter(label=label), None, []
    for _ in range(3 * len(ODD)):
        page = list_some(engine, wanted, limit=limit, page_token=token)
        found += [run.run_id for run in page.runs]
        token = page.next_page_token
        if token is None:
            break

    assert token is None, "the pages do not end"
    assert len(found) == len(set(found))
    assert [run_id for run_id in found if run_id in even] == even[::-1]


@pytest.mark.parametrize(
    ("limit", "sizes"), [(1, [1, 1, 1, 1, 0]), (2, [2, 2, 0]), (3, [3, 1]), (4, [4, 0]), (5, [4])]
)
def test_pages_have_each_document_once_and_end(
    documents: Documents, unique: str, limit: int, sizes: list[int]
) -> None:
    collection = f"runs/r-{unique}/trace"
    for number in range(4):
        documents.transact(Ref(collection, f"{number}"), lambda *_: Write(None, {"type": "x"}))

    read = list(pages(documents, Query(collection, limit=limit)))

    assert [len(page) for page in read] == sizes
    assert [found.ref.id for page in read for found in page] == ["0", "1", "2", "3"]


def test_all_runs_of_a_filter_are_read_page_by_page(
    engine: Engine, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them share the value that the list is ordered by."""
    monkeypatch.setattr("leasehold.services.read_runs.WHOLE_RUNS", 1)
    run_ids = [start(engine, label) for _ in range(4)]
    for run_id in run_ids[:2]:
        spoil(engine, run_id, createdAt=datetime(2020, 1, 1, tzinfo=UTC))

    found = [run.run_id for run in matching_runs(engine, RunFilter(label=label))]
    events = read_timeline(engine, run_ids[3])

    assert found[:2] == [run_ids[3], run_ids[2]]
    assert found[2:] == sorted(run_ids[:2], reverse=True)
    assert [event.type for event in events] == ["run_started"]


def token_of(*parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "token",
    [
        base64.urlsafe_b64encode(f"{at} r-1 00000000".encode()).decode().rstrip("=")
        for at in ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00", "9999-12-31T23:59:59-14:00")
    ]
    + [
        *("", "=", "é", "\x00", "A" * 100_000, "bnVsbA", "W10", "\ud800"),
        token_of("0001-01-01T00:00:00+14:00", "r-1", "00000000"),
        token_of({"at": "0001-01-01T00:00:00+14:00"}, "r-1", "00000000"),
        token_of(1, 2, 3),
        token_of({}, {}, {}),
        base64.urlsafe_b64encode(b"[" * 3_000).decode(),
        base64.urlsafe_b64encode(b"[" + b"9" * 5_000 + b",2,3]").decode(),
    ],
    ids=lambda token: ascii(token[:12]),
)
def test_a_token_that_is_none_of_ours_is_refused(engine: Engine, token: str) -> None:
    with pytest.raises(InvalidRequestError, match="nextPageToken"):
        list_runs(engine, RunFilter(), page_token=token)


def test_a_token_of_a_place_that_no_document_has_is_refused(engine: Engine, label: str) -> None:
    """It has the mark of its query, so that its time and its id are looked at."""
    wanted = RunFilter(label=label)
    for _ in range(2):
        start(engine, label)
    given = list_runs(engine, wanted, limit=1).next_page_token
    assert given is not None
    kept, run_id, mark = json.loads(base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)))

    times = ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00", "x", 7, None, "9" * 5_000)
    ids = ("", "a/b", "__a__", ".", "9" * 1_501, 7, None)
    for place in [({"at": at}, run_id) for at in times] + [(kept, id_) for id_ in ids]:
        with pytest.raises(InvalidRequestError, match="nextPageToken"):
            list_runs(engine, wanted, page_token=token_of(*place, mark))


def test_the_audit_and_a_start_get_past_odd_times(
    engine: Engine, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both go through all runs, page by page."""
    monkeypatch.setattr("leasehold.services.audit.WHOLE_RUNS", 1)
    monkeypatch.setattr("leasehold.services.adopt_runs.SCAN_PAGE", 1)
    monkeypatch.setattr("leasehold.services.adopt_runs.WHOLE_RUNS", 1)
    odd, even = [], start(engine, label)
    for value in ODD.values():
        odd.append(start(engine, label))
        spoil(engine, odd[-1], createdAt=value, alarmAt=value)

    assert even in set(live_runs(engine.documents))
    assert set(odd) & {found.run_id for found in audit(engine)}
