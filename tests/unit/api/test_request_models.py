"""Requests as models: what each field may be, and that a refusal is one line that names it."""

from __future__ import annotations

import importlib
import json
import pkgutil
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from leasehold import api, remote_workers
from leasehold.api.call_row import AnyRow
from leasehold.api.calls import CALLS
from leasehold.api.deliveries import DeliverBody, DeliveriesQuery
from leasehold.api.functions import EventBody, PushBody, TaskBody
from leasehold.api.operations import (
    ApproveBody,
    BatchBody,
    OperationBody,
    RecreateBody,
    ResumeBody,
    RetryBody,
)
from leasehold.api.overrides import OverrideBody
from leasehold.api.pauses import PauseBody, ResumePauseBody
from leasehold.api.request_model import RequestModel, RequestPart
from leasehold.api.results import PageQuery
from leasehold.api.runs import RunsQuery, StartBody
from leasehold.api.schedules import BackfillBody, PauseScheduleBody, TriggerBody
from leasehold.api.signals import SignalBody
from leasehold.domain.lifecycle import Operation
from leasehold.domain.trouble import Trouble
from leasehold.errors import InvalidRequestError
from leasehold.remote_workers.calls import (
    AcquireBody,
    AwaitBody,
    CallsBody,
    CheckpointBody,
    ClaimBody,
    CompleteBody,
    FailBody,
    GetFileBody,
    LeaseBody,
    ListFilesBody,
    PutFileBody,
    RecordCallBody,
    ReleaseBody,
    RenewBody,
    SpendingBody,
)
from leasehold.services.operate import OperationRequest
from leasehold.services.read_runs import RunFilter
from leasehold.services.request_bounds import (
    MAX_IDEMPOTENCY_KEY_CHARS,
    MAX_INTEGER,
    MAX_NAME_CHARS,
    MAX_PAGE_ITEMS,
    MAX_REASON_CHARS,
)
from leasehold.services.start_run import StartRequest

LEASE = {"runId": "r-1", "leaseId": "l-1", "fencingToken": 1}
RIGHT: dict[type[RequestModel], dict[str, Any]] = {
    StartBody: {"pipeline": "review"},
    RunsQuery: {},
    OperationBody: {},
    ResumeBody: {},
    RetryBody: {},
    ApproveBody: {},
    RecreateBody: {},
    BatchBody: {"action": "pause", "limit": 1},
    TaskBody: {"runId": "r-1", "generation": 1},
    PushBody: {"message": {"data": ""}},
    EventBody: {"data": {"runId": "r-1", "occurrence": "4.2", "channel": "log"}},
    ClaimBody: {"stepType": "count", "holder": "vm-1"},
    AcquireBody: {"runId": "r-1", "holder": "vm-1"},
    LeaseBody: LEASE,
    AwaitBody: LEASE | {"name": "approval"},
    SignalBody: {"value": None},
    ReleaseBody: LEASE,
    SpendingBody: LEASE,
    RenewBody: LEASE,
    CheckpointBody: LEASE | {"iterationCount": 0, "partialResults": None},
    CompleteBody: LEASE | {"output": None},
    FailBody: LEASE | {"error": {"message": "no"}},
    PageQuery: {},
    PutFileBody: LEASE | {"name": "a", "content": ""},
    GetFileBody: LEASE | {"name": "a"},
    ListFilesBody: LEASE,
    RecordCallBody: LEASE | {"key": "ask", "result": None},
    CallsBody: LEASE,
    DeliveriesQuery: {},
    DeliverBody: {"channel": "slack"},
    OverrideBody: {"until": "2027-01-01", "why": "slow day"},
    PauseBody: {"step": "charge", "why": "slow day"},
    ResumePauseBody: {"step": "charge"},
    PauseScheduleBody: {"why": "slow day"},
    TriggerBody: {"id": "ticket-4711"},
    BackfillBody: {"first": "2026-01-01", "last": "2026-01-02"},
}
LONG_NAME = f"a text of 1 to {MAX_NAME_CHARS} printable characters"
#: Each limit: the value that just fits, and the one that does not, with what is said of it.
LIMITS: list[tuple[type[RequestModel], str, Any, Any, str]] = [
    (
        StartBody,
        "idempotencyKey",
        "k" * MAX_IDEMPOTENCY_KEY_CHARS,
        "k" * (MAX_IDEMPOTENCY_KEY_CHARS + 1),
        "1 to 256 printable",
    ),
    (
        RunsQuery,
        "limit",
        str(MAX_PAGE_ITEMS),
        str(MAX_PAGE_ITEMS + 1),
        "a whole number from 1 to 1000",
    ),
    (RunsQuery, "limit", "1", "0", "a whole number from 1 to 1000"),
    (
        PageQuery,
        "limit",
        str(MAX_PAGE_ITEMS),
        str(MAX_PAGE_ITEMS + 1),
        "a whole number from 1 to 1000",
    ),
    (ListFilesBody, "limit", MAX_PAGE_ITEMS, MAX_PAGE_ITEMS + 1, "a whole number from 1 to 1000"),
    (BatchBody, "limit", MAX_PAGE_ITEMS, MAX_PAGE_ITEMS + 1, "a whole number from 1 to 1000"),
    (
        DeliveriesQuery,
        "limit",
        str(MAX_PAGE_ITEMS),
        str(MAX_PAGE_ITEMS + 1),
        "a whole number from 1 to 1000",
    ),
    (DeliveriesQuery, "state", "given_up", "gone", "due, claimed, announced, given_up"),
    (DeliverBody, "channel", "x" * MAX_NAME_CHARS, "x" * (MAX_NAME_CHARS + 1), LONG_NAME),
    (BatchBody, "limit", 1, 0, "a whole number from 1 to 1000"),
    (OverrideBody, "timeoutS", 604_800, 604_800.1, "seconds from 0 to 604800"),
    (OverrideBody, "timeoutS", 0.5, float("nan"), "seconds from 0 to 604800"),
    (OverrideBody, "deadlineS", 15, 14, "a whole number from 15 to 604800"),
    (
        OverrideBody,
        "why",
        "x" * MAX_REASON_CHARS,
        "x" * (MAX_REASON_CHARS + 1),
        "1 to 500 printable",
    ),
    (PauseBody, "why", "x" * MAX_REASON_CHARS, "x" * (MAX_REASON_CHARS + 1), "1 to 500 printable"),
    (ResumePauseBody, "step", "charge", "", "1 to 128 printable"),
    (PauseScheduleBody, "why", "x" * MAX_REASON_CHARS, "", "1 to 500 printable"),
    (TriggerBody, "id", "x" * MAX_NAME_CHARS, "x" * (MAX_NAME_CHARS + 1), LONG_NAME),
    (BackfillBody, "first", "2027-01-01T00:00:00Z", "2h", "a time with its zone"),
    (BackfillBody, "last", "2027-01-01T00:00:00Z", "2h", "a time with its zone"),
    (OverrideBody, "until", "2027-01-01T00:00:00Z", "2h", "a time with its zone"),
    *(
        (
            model,
            "reason",
            "x" * MAX_REASON_CHARS,
            "x" * (MAX_REASON_CHARS + 1),
            "at most 500 printable",
        )
        for model in (OperationBody, RecreateBody, BatchBody, DeliverBody)
    ),
    *(
        (model, "step", "x" * MAX_NAME_CHARS, "x" * (MAX_NAME_CHARS + 1), LONG_NAME)
        for model in (OperationBody, RecreateBody, BatchBody)
    ),
    (RecreateBody, "fromStep", "x" * MAX_NAME_CHARS, "x" * (MAX_NAME_CHARS + 1), LONG_NAME),
    (RetryBody, "note", "ä\n" * 1365 + "x", "ä\n" * 1366, "1 to 4096 bytes"),
    (AwaitBody, "timeoutS", 3660 * 86400, 3661 * 86400, "seconds from 0 to"),
    (AwaitBody, "otherwise", "fail", "die", "block, continue, fail"),
    (SignalBody, "id", "x" * MAX_NAME_CHARS, "x" * (MAX_NAME_CHARS + 1), LONG_NAME),
    (RetryBody, "note", "shorter", " \n", "printable characters and newlines"),
    (BatchBody, "note", "a\tb", "a\x1b[31mb", "printable characters and newlines"),
    (OperationBody, "generation", 1, 0, "a whole number from 1"),
    (OperationBody, "generation", MAX_INTEGER, MAX_INTEGER + 1, "a whole number from 1"),
    (TaskBody, "generation", 1, 0, "a whole number from 1"),
    (TaskBody, "runId", "r" * 128, "r" * 129, "the id of a run"),
    (ClaimBody, "stepType", "x" * MAX_NAME_CHARS, "x" * (MAX_NAME_CHARS + 1), LONG_NAME),
    (ClaimBody, "holder", "x" * MAX_NAME_CHARS, "x" * (MAX_NAME_CHARS + 1), LONG_NAME),
    (AcquireBody, "holder", "x" * MAX_NAME_CHARS, "x" * (MAX_NAME_CHARS + 1), LONG_NAME),
    (LeaseBody, "leaseId", "x" * MAX_NAME_CHARS, "x" * (MAX_NAME_CHARS + 1), LONG_NAME),
    (LeaseBody, "fencingToken", MAX_INTEGER, MAX_INTEGER + 1, "a whole number from 1"),
    (
        CheckpointBody,
        "phase",
        "x" * MAX_NAME_CHARS,
        "x" * (MAX_NAME_CHARS + 1),
        "at most 128 printable",
    ),
    (CheckpointBody, "iterationCount", 0, -1, "a whole number from 0"),
    (
        CompleteBody,
        "output",
        nested := json.loads("[" * 198 + "]" * 198),
        [[[nested]]],
        "a JSON value",
    ),
]
REFUSED = object()
#: Fields that take any JSON value.
ANY_VALUE = {"input", "output", "partialResults", "result", "request", "value"}
#: Values that no field takes that is not of their very type.
ODD = [True, 1.5, float("nan"), float("inf"), 10**4000, "\ud800", b"x", [], {}, [[]], {"a": {}}, -1]


def models() -> list[type[BaseModel]]:
    """Return all shapes of the API."""
    found: set[type[BaseModel]] = set()
    for package in (api, remote_workers):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and issubclass(value, BaseModel):
                    found.add(value)
    return sorted(found - {BaseModel}, key=lambda model: model.__name__)


def refusal(model: type[RequestModel], given: dict[str, Any]) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as refused:
        model.read(given)
    return refused.value


def test_each_request_is_looked_at_here() -> None:
    known = {model for model in models() if issubclass(model, RequestModel)}

    assert known - {RequestModel} == set(RIGHT)


@pytest.mark.parametrize(("model", "field", "fits", "too_much", "allowed"), LIMITS)
def test_each_limit_is_refused_in_one_line(
    model: type[RequestModel], field: str, fits: Any, too_much: Any, allowed: str
) -> None:
    model.read(RIGHT[model] | {field: fits})

    error = refusal(model, RIGHT[model] | {field: too_much})

    assert error.details["field"] == field
    assert error.message.startswith(f"{field} is ")
    assert allowed in error.details["allowed"]
    assert len(error.message) < 500 or isinstance(too_much, int)
    assert "\n" not in error.message


@pytest.mark.parametrize(
    ("model", "path", "fits", "too_much", "allowed"),
    [
        (ResumeBody, "budget.usd", 0.01, 0, "a number of dollars above 0"),
        (StartBody, "budget.tokens", 1, 0, "a whole number from 1"),
        (StartBody, "budget.usd", 10**6, float("inf"), "at most 1,000,000"),
        (StartBody, "budget.usd", 5, "5", "a number of dollars above 0"),
        (RenewBody, "spent.usd", 0, -0.01, "a number of dollars from 0"),
        (RenewBody, "spent.tokens", 0, -1, "a whole number from 0"),
    ],
)
def test_each_amount_is_refused_in_one_line(
    model: type[RequestModel], path: str, fits: float, too_much: Any, allowed: str
) -> None:
    part, _, name = path.partition(".")
    model.read(RIGHT[model] | {part: {name: fits}})

    error = refusal(model, RIGHT[model] | {part: {name: too_much}})

    assert error.message.startswith(f"{path} is ")
    assert allowed in error.details["allowed"]


@pytest.mark.parametrize("model", RIGHT)
def test_a_field_takes_no_value_of_another_type(model: type[RequestModel]) -> None:
    """Whatever is taken is as it was given: nothing is made of a text, a boolean or a fraction."""
    booleans = {"dryRun", "permanent", "continued", "deadLettered", "paused", "cancelled"}
    booleans |= {"keepPartial", "all", "anew", "keep", "failedItems"}
    empty = {"labels", "filter"}
    for name in names_of(model) - ANY_VALUE:
        for value in ODD:
            read = taken(model, name, value)
            if read is not REFUSED:
                assert read == value or (name in empty and not value), name
                assert isinstance(value, bool) <= (name in booleans), name


def taken(model: type[RequestModel], name: str, value: Any) -> Any:
    """Return the value as it was read, or REFUSED."""
    try:
        return model.read(RIGHT[model] | {name: value}).to_json().get(name)
    except InvalidRequestError:
        return REFUSED


def names_of(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


@pytest.mark.parametrize("model", RIGHT)
def test_a_field_that_may_be_left_out_may_not_be_null(model: type[RequestModel]) -> None:
    takes_null = {"idempotencyKey", "labels", *ANY_VALUE}
    for name in names_of(model) - RIGHT[model].keys():
        if name in takes_null and (model, name) != (RecreateBody, "labels"):
            model.read(RIGHT[model] | {name: None})
        else:
            error = refusal(model, RIGHT[model] | {name: None})
            assert error.message.startswith(f"{name} is None; allowed: ")


@pytest.mark.parametrize("model", RIGHT)
def test_an_unknown_field_is_named_with_those_that_are_known(model: type[RequestModel]) -> None:
    if model in (TaskBody, PushBody, EventBody):  # a later version may put more into it
        model.read(RIGHT[model] | {"colour": "red"})
        return

    error = refusal(model, RIGHT[model] | {"colour": "red"})

    assert (error.details["field"], error.details["value"]) == ("colour", "red")
    assert error.details["allowed"] == "one of the fields " + ", ".join(
        field.alias or name for name, field in model.model_fields.items()
    )


@pytest.mark.parametrize("model", RIGHT)
def test_a_caller_names_fields_as_json_does(model: type[RequestModel]) -> None:
    for name, field in model.model_fields.items():
        if field.alias not in (None, name):
            given = {**RIGHT[model], name: 1}
            if model is TaskBody:
                given.pop(field.alias)
            assert refusal(model, given).details["field"] in (name, field.alias)


def test_a_field_within_an_object_is_named_with_it() -> None:
    within = refusal(RenewBody, LEASE | {"progress": {"fraction": 2}})
    unknown = refusal(RenewBody, LEASE | {"progress": {"fraction": 1, "word": ""}})
    none = refusal(BatchBody, RIGHT[BatchBody] | {"filter": {"label": None}})
    missing = refusal(FailBody, LEASE | {"error": {}})
    odd = refusal(FailBody, LEASE | {"error": "no"})

    assert within.message == "progress.fraction is 2; allowed: a number from 0 to 1."
    assert unknown.message == "progress.word is ''; allowed: one of the fields fraction, message."
    a_text = "a text that is not empty"
    assert none.message == f"filter.label is None; allowed: {a_text}, or a list of 1 to 16."
    assert missing.message == "error.message is None; allowed: a text that is not empty."
    assert odd.message == (
        "error is 'no'; allowed: an object with the fields message, code, type, details, traceback."
    )


def test_a_missing_value_that_may_be_null_is_said_to_be_missing() -> None:
    assert refusal(CompleteBody, LEASE).message == "output is 'missing'; allowed: a JSON value."


@pytest.mark.parametrize("body", [{}, LEASE | {"error": {}}])
def test_a_million_unknown_fields_are_not_listed(body: dict[str, Any]) -> None:
    """A body may be 16 MiB large; to say the first of them is enough."""
    many = {f"field{number}": 1 for number in range(200_000)}
    given = {**LEASE, "error": many} if body else many

    error = refusal(FailBody, given)

    assert len(error.message) < 1000


@pytest.mark.parametrize(
    ("text", "allowed"),
    [("01", True), ("1000", True), ("1_0", False), ("+1", False), (" 1", False), ("1.0", False)],
)
def test_a_number_of_a_query_is_digits_alone(text: str, allowed: bool) -> None:
    if allowed:
        assert RunsQuery.read({"limit": text}).limit == int(text)
    else:
        assert refusal(RunsQuery, {"limit": text}).details["value"] == text


@pytest.mark.parametrize("row", [row for row in CALLS if row.takes], ids=lambda row: row.path)
def test_a_request_arrives_as_the_client_sent_it(row: AnyRow) -> None:
    assert row.takes is not None
    sent = row.takes.read(RIGHT[row.takes])

    assert type(sent).read(json.loads(json.dumps(sent.to_json()))) == sent


@pytest.mark.parametrize(
    ("operation", "sent", "asked"),
    [
        (Operation.PAUSE, OperationBody(), {}),
        (
            Operation.RETRY,
            RetryBody(reason="corrected", generation=4, step="report"),
            {"reason": "corrected", "generation": 4, "step": "report"},
        ),
        (
            Operation.RECREATE,
            RecreateBody(from_step="report", labels={"a": "b"}),
            {"from_step": "report", "labels": {"a": "b"}},
        ),
        (Operation.RECREATE, RecreateBody(input=None), {"input": None}),
        (Operation.APPROVE, ApproveBody(output=None), {"output": None}),
        (
            Operation.RECREATE,
            RecreateBody(input={"n": 1}, labels={}),
            {"input": {"n": 1}, "labels": {}},
        ),
    ],
)
def test_an_operation_arrives_as_the_client_sent_it(
    operation: Operation, sent: OperationBody, asked: dict[str, Any]
) -> None:
    arrived = type(sent).read(json.loads(json.dumps(sent.to_json())))

    assert arrived.to_request(operation, "ada") == OperationRequest(operation, "ada", **asked)
    assert ("input" in sent.to_json()) == ("input" in asked)


TOKEN = "token"  # noqa: S105 - no secret
FILTERS: list[tuple[dict[str, Any], RunFilter]] = [
    ({}, RunFilter()),
    (
        {"status": "ERROR", "pipeline": "p", "dead_lettered": False, "label": "k:v"},
        RunFilter("ERROR", "p", False, "k:v"),
    ),
    (
        {"label": ("k:v", "a:b, c", 'say:"hi"')},
        RunFilter(label=("k:v", "a:b, c", 'say:"hi"')),
    ),
    ({"dead_lettered": True}, RunFilter(dead_lettered=True)),
    (
        {"paused": True, "cancelled": False, "step": "draft"},
        RunFilter(paused=True, cancelled=False, step="draft"),
    ),
    (
        {"reason": "NEVER_STARTED", "id_prefix": "r-1", "trouble": "silent"},
        RunFilter(reason="NEVER_STARTED", id_prefix="r-1", trouble=Trouble.SILENT),
    ),
    (
        {"since": "2026-01-01", "until": "2026-02-01T12:30:01.000005Z"},
        RunFilter(
            since=datetime(2026, 1, 1, tzinfo=UTC), until=datetime(2026, 2, 1, 12, 30, 1, 5, UTC)
        ),
    ),
]


@pytest.mark.parametrize(("given", "wanted"), FILTERS)
def test_a_filter_arrives_as_the_client_sent_it(given: dict[str, Any], wanted: RunFilter) -> None:
    query = RunsQuery.read(RunsQuery(**given, limit=7, page_token=TOKEN).to_texts())
    sent = BatchBody.model_validate(
        {"action": "recreate", "filter": given, "limit": MAX_PAGE_ITEMS}
    )
    body = BatchBody.read(json.loads(json.dumps(sent.to_json())))

    assert (query.to_filter(), query.limit, query.page_token) == (wanted, 7, TOKEN)
    assert body.filter.to_filter() == wanted


def test_the_files_of_a_start_arrive_as_the_client_sent_them() -> None:
    sent = StartBody(pipeline="p", input={"n": 1}, idempotency_key="k").with_files({"a": b"\xff"})

    arrived = StartBody.read(json.loads(json.dumps(sent.to_json()))).to_request()

    assert arrived == StartRequest("p", {"n": 1}, "k", files={"a": b"\xff"})


def test_the_client_refuses_what_the_server_would() -> None:
    with pytest.raises(InvalidRequestError, match="limit is 1001; allowed: a whole number"):
        RunsQuery(limit=MAX_PAGE_ITEMS + 1)
    with pytest.raises(InvalidRequestError, match="reason is 'xxx"):
        OperationBody(reason="x" * (MAX_REASON_CHARS + 1))
    with pytest.raises(InvalidRequestError, match=r"trouble is 'loud'; allowed: .*announcement"):
        RunsQuery.read({"trouble": "loud"})
    with pytest.raises(InvalidRequestError, match="idPrefix is '/'; allowed: the beginning of"):
        RunsQuery(id_prefix="/")


@pytest.mark.parametrize("model", models())
def test_each_shape_can_be_described(model: type[BaseModel]) -> None:
    """As a specification needs it; a limit of a field stands in its schema."""
    if model not in (RequestModel, RequestPart):
        schema = TypeAdapter(model).json_schema(mode="serialization")
        assert schema["type"] == "object"


def test_a_limit_stands_in_the_schema_of_its_field() -> None:
    limit = BatchBody.model_json_schema()["properties"]["limit"]
    key = StartBody.model_json_schema()["properties"]["idempotencyKey"]

    assert (limit["minimum"], limit["maximum"]) == (1, MAX_PAGE_ITEMS)
    assert key["anyOf"][0] == {
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_IDEMPOTENCY_KEY_CHARS,
    }
