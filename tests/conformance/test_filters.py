"""Finding runs: by what an index tells and by what it does not, page by page, on either store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasehold.domain.announcement import AnnouncedEvent, Announcement
from leasehold.domain.announcing import deliveries_of
from leasehold.domain.delivery import DeliveryState, delivery_ref
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import run_ref, to_document
from leasehold.domain.stored import StoredDocument, Write
from leasehold.domain.stored import replace as replace_fields
from leasehold.domain.summary import summary_of
from leasehold.domain.trouble import Trouble
from leasehold.errors import InvalidRequestError
from leasehold.services import read_runs
from leasehold.services.batch import batch
from leasehold.services.engine import Engine, find_run
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.purge import purge
from leasehold.services.read_runs import (
    RunFilter,
    RunPage,
    list_runs,
    list_summaries,
    matching_runs,
)
from leasehold.services.start_run import StartRequest, start_run

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def runs(engine: Engine, unique: str) -> dict[str, str]:
    """Runs of one team by their names, the newest first; an hour lies between two of them."""
    names = ("given up", "cancelled", "paused", "at the third step", "waiting")
    made = {}
    for hours, name in enumerate(names):
        hour, half = "odd" if hours % 2 else "even", "early" if hours < 3 else "late"
        labels = {"team": unique, "hour": hour, "half": half}
        request = StartRequest("three", {"n": 1}, labels=labels)
        run_id = made[name] = start_run(engine, request).manifest.run_id
        fields: dict[str, Any] = {"createdAt": NOON - timedelta(hours=hours)}
        if name == "given up":
            fields |= {"deadLettered": True, "status": "ERROR", "deadLetteredAt": NOON}
            fields["deadLetterReason"] = "RETRIES_EXHAUSTED"
        if name == "at the third step":
            fields |= {"currentStep": "wait", "plan": ["add", "wait"]}
            fields["position"] = {"step": "wait"}
            fields["steps"] = {step: {"status": "PENDING"} for step in fields["plan"]}
        if name in ("paused", "cancelled"):
            operation = Operation.PAUSE if name == "paused" else Operation.CANCEL
            operate(engine, run_id, OperationRequest(operation, "ann"))
        write(engine, run_id, fields)
    return made


def write(engine: Engine, run_id: str, fields: dict[str, Any]) -> None:
    def written(found: Any, _: datetime) -> Write[None]:
        position = {**found["position"], **fields.get("position", {})}
        return Write(None, {**found, **fields, "position": position})

    engine.documents.transact(run_ref(run_id), written)


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
    (RunFilter(label="hour:even"), ["given up", "paused", "waiting"]),
    (RunFilter(label=("hour:even", "half:early")), ["given up", "paused"]),
    (RunFilter(label=("half:late", "hour:odd"), step="wait"), ["at the third step"]),
    (RunFilter(label=("hour:odd", "half:early"), cancelled=False), []),
    (RunFilter(label=("hour:even", "hour:odd")), []),
    (RunFilter(label="half:early", status="PENDING", since=NOON - timedelta(hours=2)), ["paused"]),
    (RunFilter(reason="RETRIES_EXHAUSTED"), ["given up"]),
    (RunFilter(reason="RETRIES_EXHAUSTED", dead_lettered=False), []),
    (RunFilter(reason="NEVER_STARTED"), []),
    (RunFilter(trouble=Trouble.RETRYING), []),
]


@pytest.mark.cover(2)
@pytest.mark.parametrize(
    "most",
    [
        1,
        pytest.param(2, marks=pytest.mark.one_store),  # of no store is how much is looked at
        pytest.param(2000, marks=pytest.mark.one_store),
    ],
)
@pytest.mark.parametrize(
    "list_some", [pytest.param(list_runs, marks=pytest.mark.one_store), list_summaries]
)
def test_each_filter_finds_its_runs_whatever_a_page_may_look_at(
    *,
    engine: Engine,
    runs: dict[str, str],
    unique: str,
    most: int,
    list_some: Callable[..., RunPage[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("leasehold.services.read_runs.MAX_RUNS_SEARCHED", most)
    monkeypatch.setattr("leasehold.services.read_runs.WHOLE_RUNS", 1)
    monkeypatch.setattr("leasehold.services.read_runs.SUMMARIES_PER_READ", 1)
    for row, names in FILTERS:
        wanted = replace(row, label=(f"team:{unique}", *row.labels))

        found, token = [], None
        for _ in range(len(runs) + 1):
            page = list_some(engine, wanted, limit=1, page_token=token)
            found += [run.run_id for run in page.runs]
            token = page.next_page_token
            if token is None:
                break

        assert token is None, f"the pages do not end: {row}"
        assert found == [runs[name] for name in names], row
        assert [run.run_id for run in matching_runs(engine, wanted)] == found, row


@pytest.mark.one_store
def test_a_page_ends_where_it_has_looked_at_so_many_runs_that_do_not_fit(
    engine: Engine, runs: dict[str, str], unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of few among many would be read to its end by one request."""
    assert read_runs.MAX_RUNS_SEARCHED == 2000  # as docs/operations.md says
    monkeypatch.setattr(read_runs, "MAX_RUNS_SEARCHED", 2)
    paused = RunFilter(label=f"team:{unique}", paused=True)

    page = list_summaries(engine, paused, limit=1)
    rest = list_summaries(engine, paused, limit=1, page_token=page.next_page_token)

    assert page.runs == []
    assert [run.run_id for run in rest.runs] == [runs["paused"]]


def test_a_reason_is_found_by_its_own_index(engine: Engine, runs: dict[str, str]) -> None:
    """So a page of it looks at no run that was given up for another one."""
    mine = [runs["given up"]]
    of_noon = RunFilter(reason="RETRIES_EXHAUSTED", since=NOON, until=NOON + timedelta(seconds=1))

    found = [run.run_id for run in matching_runs(engine, of_noon)]

    assert [run_id for run_id in found if run_id in runs.values()] == mine
    assert not list(matching_runs(engine, replace(of_noon, reason="STUCK_IN_PROGRESS")))


@pytest.mark.parametrize("list_some", [list_runs, list_summaries])
def test_runs_are_found_by_how_their_ids_begin(
    engine: Engine, unique: str, list_some: Callable[..., RunPage[Any]]
) -> None:
    """In the order of their ids, page by page, and whatever else is asked for is looked at."""
    request = StartRequest("three", {"n": 1}, labels={"team": unique})
    names = [f"{unique}{end}" for end in ("", "-a", "-b", "-c", "x")]
    first = start_run(engine, request).manifest
    for number, name in enumerate(names):
        document = {**to_document(first), "runId": name, "createdAt": NOON + timedelta(number)}
        if name.endswith("-b"):
            document["labels"] = ["odd:one"]
        engine.documents.transact(run_ref(name), lambda _, __, it=document: Write(None, it))

    def found(wanted: RunFilter) -> list[str]:
        ids, token = [], None
        while True:
            page = list_some(engine, wanted, limit=2, page_token=token)
            ids += [run.run_id for run in page.runs]
            token = page.next_page_token
            if token is None:
                return ids

    assert found(RunFilter(id_prefix=unique)) == names
    assert found(RunFilter(id_prefix=f"{unique}-")) == names[1:4]
    assert found(RunFilter(id_prefix=unique, label="odd:one")) == [names[2]]
    assert found(RunFilter(id_prefix=unique, label=f"team:{unique}", step="add")) == [
        name for name in names if not name.endswith("-b")
    ]
    assert found(RunFilter(id_prefix=unique, since=NOON + timedelta(3))) == names[3:]
    assert found(RunFilter(id_prefix=unique, until=NOON + timedelta(1))) == names[:1]
    assert found(RunFilter(id_prefix=unique, status="ERROR")) == []
    assert found(RunFilter(id_prefix=unique, pipeline="other")) == []
    assert found(RunFilter(id_prefix=unique, dead_lettered=True)) == []
    assert found(RunFilter(id_prefix=unique, trouble=Trouble.SILENT)) == []
    assert found(RunFilter(id_prefix=f"{unique}y")) == []


@pytest.mark.parametrize("prefix", ["", "-a", "a/b", "a b", "é", "x" * 129])
def test_what_no_id_begins_with_is_refused(engine: Engine, prefix: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"idPrefix is .*beginning of the id of a run"):
        list_runs(engine, RunFilter(id_prefix=prefix))


def lease_until(end: datetime) -> dict[str, Any]:
    return {
        "leaseId": "l",
        "holder": "h",
        "acquiredAt": end - timedelta(hours=1),
        "expiresAt": end,
        "maxExpiresAt": end,
    }


@pytest.fixture
def troubled(engine: Engine, unique: str) -> dict[str, str]:
    """Runs in each trouble, and some in none, by their names."""
    now = engine.clock.now()
    past, just_past, ahead = (now + timedelta(seconds=s) for s in (-86_400, -1, 3600))
    over = {"deadLettered": True, "deadLetteredAt": past, "deadLetterReason": "NEVER_STARTED"}
    kinds: dict[str, dict[str, Any]] = {
        "waiting": {"alarmAt": ahead},
        "late": {"alarmAt": past},
        "a moment late": {"alarmAt": just_past},
        "retrying": {"alarmAt": ahead, "status": "ERROR"},
        "retrying late": {"alarmAt": past, "status": "ERROR"},
        "paused": {"alarmAt": None, "status": "ERROR", "paused": True},
        "given up": {"alarmAt": past, "status": "ERROR", **over},
        "cancelled": {"alarmAt": past, "status": "IN_PROGRESS", "cancelled": True},
        "held": {"alarmAt": ahead, "status": "IN_PROGRESS"},
        "silent": {"alarmAt": just_past, "status": "IN_PROGRESS"},
        "silent late": {"alarmAt": past, "status": "IN_PROGRESS"},
    }
    made = {}
    for name, fields in kinds.items():
        request = StartRequest("three", {"n": 1}, labels={"team": unique})
        made[name] = start_run(engine, request).manifest.run_id
        if fields.get("status") == "IN_PROGRESS":
            fields["position"] = {"lease": lease_until(fields["alarmAt"])}
        write(engine, made[name], fields)
    return made


#: Which of these runs is found by each trouble.
TROUBLES: dict[Trouble, set[str]] = {
    Trouble.RETRYING: {"retrying", "retrying late"},
    Trouble.SILENT: {"silent", "silent late"},
    Trouble.OVERDUE: {"late", "retrying late", "silent late"},
    Trouble.ANNOUNCEMENT: set(),
}


@pytest.mark.cover(2)
@pytest.mark.parametrize("list_some", [list_runs, list_summaries])
@pytest.mark.parametrize("limit", [1, 50])
def test_runs_in_trouble_are_found(
    *,
    engine: Engine,
    troubled: dict[str, str],
    unique: str,
    limit: int,
    list_some: Callable[..., RunPage[Any]],
) -> None:
    """Silent and overdue ones the oldest alarm first; each once, however small the pages are."""
    for trouble, names in TROUBLES.items():
        wanted = RunFilter(label=f"team:{unique}", trouble=trouble)
        found, token = [], None
        for _ in range(2 * len(troubled)):
            page = list_some(engine, wanted, limit=limit, page_token=token)
            found += [run.run_id for run in page.runs]
            token = page.next_page_token
            if token is None:
                break

        assert token is None, f"the pages do not end: {trouble}"
        assert len(found) == len(names), trouble
        assert set(found) == {troubled[name] for name in names}, trouble
        assert {run.run_id for run in matching_runs(engine, wanted)} == set(found), trouble
        if trouble is Trouble.SILENT:
            assert found == [troubled["silent late"], troubled["silent"]]


def test_other_filters_hold_beside_a_trouble(
    engine: Engine, troubled: dict[str, str], unique: str
) -> None:
    overdue = RunFilter(label=f"team:{unique}", trouble=Trouble.OVERDUE)

    def found(wanted: RunFilter) -> set[str]:
        return {run.run_id for run in list_runs(engine, wanted).runs}

    assert found(replace(overdue, status="PENDING")) == {troubled["late"]}
    assert found(replace(overdue, status="ERROR")) == {troubled["retrying late"]}
    assert found(replace(overdue, since=engine.clock.now())) == set()
    assert found(replace(overdue, pipeline="other")) == set()
    assert found(replace(overdue, id_prefix=troubled["late"])) == {troubled["late"]}


def test_a_run_that_owes_its_announcement_is_found_once(
    engine: Engine, troubled: dict[str, str], unique: str
) -> None:
    """By the last one, whatever channels it has; what was given up of an earlier one is past."""
    states = {
        "given up": ("given_up", "announced"),
        "cancelled": ("due", "given_up"),
        "late": ("announced", "announced"),
        "waiting": ("claimed", "due"),
    }
    for minute, (name, (first, second)) in enumerate(states.items()):
        told = Announcement(
            occurrence="4",
            event=AnnouncedEvent.RUN_BLOCKED,
            at=NOON + timedelta(minutes=minute),
            channels=("log", "ops"),
        )
        write(engine, troubled[name], {"announcement": to_document(told)})
        run = find_run(engine, troubled[name]).manifest
        earlier = replace_fields(run, announcement=replace_fields(told, occurrence="3"))
        owed = zip(deliveries_of(run, timedelta()), (first, second), strict=True)
        past = [
            replace_fields(it, state=DeliveryState.GIVEN_UP)
            for it in deliveries_of(earlier, timedelta())
        ]
        for one in [*(replace_fields(it, state=DeliveryState(state)) for it, state in owed), *past]:
            ref = delivery_ref(one.run_id, one.occurrence, one.channel)
            engine.documents.transact(ref, lambda _, __, it=one: Write(None, StoredDocument(it)))
    wanted = RunFilter(label=f"team:{unique}", trouble=Trouble.ANNOUNCEMENT)

    found, token = [], None
    for _ in range(30):
        page = list_summaries(engine, wanted, limit=1, page_token=token)
        found += [run.run_id for run in page.runs]
        token = page.next_page_token
        if token is None:
            break

    assert found == [troubled[name] for name in ("waiting", "cancelled", "given up")]
    assert [run.run_id for run in matching_runs(engine, wanted)] == found


@pytest.mark.parametrize("wanted", [{"trouble": Trouble.SILENT}, {"id_prefix": "r-1"}])
def test_no_purge_looks_for_what_is_not_listed_newest_first(
    engine: Engine, wanted: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequestError, match="none for a purge"):
        purge(engine, RunFilter(**wanted), ended_before=NOON)


def test_a_token_continues_a_list_whose_age_was_given_a_moment_later(
    engine: Engine, runs: dict[str, str], unique: str
) -> None:
    """`--since 3d` is another time each time it is typed."""
    wanted = RunFilter(label=f"team:{unique}", since=NOON - timedelta(hours=9))
    first = list_runs(engine, wanted, limit=2)

    later = replace(wanted, since=NOON - timedelta(hours=8))
    rest = list_runs(engine, later, page_token=first.next_page_token)

    assert [run.run_id for run in first.runs + rest.runs] == list(runs.values())
    assert rest.next_page_token is None


@pytest.fixture
def early(runs: dict[str, str], unique: str) -> RunFilter:
    """Finds three of the runs by the one label, and two of them by both."""
    return RunFilter(label=(f"team:{unique}", "half:early", "hour:even"))


def test_labels_mean_the_same_in_any_order_and_given_twice(
    engine: Engine, runs: dict[str, str], early: RunFilter
) -> None:
    """Also to the token of a page, which tells the lists of other filters from its own."""
    turned = replace(early, label=(*reversed(early.labels), *early.labels))
    alone, fewer = RunFilter(label=("half:early",) * 2), replace(early, label=early.labels[:2])

    first = list_runs(engine, early, limit=1)
    rest = list_runs(engine, turned, page_token=first.next_page_token)

    assert [run.run_id for run in first.runs + rest.runs] == [runs["given up"], runs["paused"]]
    assert rest.next_page_token is None
    assert alone == RunFilter(label="half:early")
    with pytest.raises(InvalidRequestError, match="pageToken"):
        list_runs(engine, fewer, page_token=first.next_page_token)


def test_a_batch_changes_the_runs_with_all_labels_alone(
    engine: Engine, runs: dict[str, str], early: RunFilter
) -> None:
    resume = OperationRequest(Operation.RESUME, "ann")

    done = batch(engine, resume, early, limit=9)

    assert (done.matched, done.changed) == (2, 1)
    assert done.refused == [(runs["given up"], "not_allowed")]


def test_a_purge_deletes_the_runs_with_all_labels_alone(
    engine: Engine, runs: dict[str, str], unique: str
) -> None:
    team = RunFilter(label=f"team:{unique}")
    batch(engine, OperationRequest(Operation.CANCEL, "ann"), team, limit=9)
    fits = replace(team, label=(*team.labels, "hour:odd", "half:early"))

    done = purge(engine, fits, ended_before=NOON.replace(year=2999))

    assert (done.matched, done.purged) == (1, 1)
    left = [run.run_id for run in list_runs(engine, team).runs]
    assert left == [run_id for name, run_id in runs.items() if name != "cancelled"]


def test_no_run_is_looked_for_by_more_labels_than_one_can_have(
    engine: Engine, runs: dict[str, str], unique: str
) -> None:
    many = tuple(f"team:{unique}-{number}" for number in range(17))
    at_most = "label is 17; allowed: at most 16 labels"

    assert list_runs(engine, RunFilter(label=many[:16] * 2)).runs == []
    with pytest.raises(InvalidRequestError, match=at_most):
        list_runs(engine, RunFilter(label=many))
    with pytest.raises(InvalidRequestError, match=at_most):
        batch(
            engine,
            OperationRequest(Operation.CANCEL, "ann"),
            RunFilter(label=many),
            limit=9,
        )
    with pytest.raises(InvalidRequestError, match=at_most):
        purge(engine, RunFilter(label=many), ended_before=NOON)


def test_times_with_nothing_between_them_are_refused(engine: Engine) -> None:
    with pytest.raises(InvalidRequestError, match="a time after 2026-03-01T12:00:00"):
        list_runs(engine, RunFilter(since=NOON, until=NOON))


def test_a_summary_in_a_list_is_that_of_the_whole_run(
    engine: Engine, runs: dict[str, str], unique: str
) -> None:
    """Also of steps that the catalog does not have: a deploy before this one had them."""
    steps = {"old_step": {"status": "COMPLETED"}, "add": {"status": "IN_PROGRESS"}}
    steps["add"]["progress"] = {"fraction": 0.25, "message": "half"}  # type: ignore[assignment]
    lease = {"leaseId": "l", "holder": "h", "acquiredAt": NOON, "expiresAt": NOON}
    position = {"step": "add", "heartbeatAt": NOON, "lease": lease | {"maxExpiresAt": NOON}}
    odd = {"plan": [*steps], "steps": steps, "currentStep": "add", "position": position}
    write(engine, runs["waiting"], odd)
    wanted = RunFilter(label=f"team:{unique}")

    page = list_summaries(engine, wanted)

    whole = [summary_of(run) for run in list_runs(engine, wanted).runs]
    assert len(whole) == 5
    assert page.runs == whole
    assert page.runs[-1].progress.model_dump() == {
        "stepsDone": 1,
        "steps": 2,
        "fraction": 0.625,
        "message": "half",
    }
    assert page.runs[-1].heartbeat_at == NOON
