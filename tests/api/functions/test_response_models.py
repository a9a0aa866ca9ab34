"""The answers of the functions agree with the models of the API, field for field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import quote

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from pydantic import TypeAdapter
from werkzeug.serving import make_server

from leasehold import Client
from leasehold.api import calls
from leasehold.api.call_row import AnyRow, PlainText
from leasehold.api.calls import CALLS, specified
from leasehold.api.errors import ErrorResponse
from leasehold.api.functions import OutcomeResponse, SweepResponse
from leasehold.api.openapi import path_of
from leasehold.api.results import FileEntry, FilesResponse, PageQuery
from leasehold.api.runs import StartBody
from leasehold.client.arguments import Filters
from leasehold.domain.artifact_name import files_folder
from leasehold.errors import InvalidRequestError, UnknownFileError
from leasehold.remote_workers.calls import (
    LEASE_CALLS,
    CheckpointResponse,
    ClaimResponse,
    GetFileResponse,
    RenewResponse,
)
from leasehold.services.engine import find_run
from leasehold.services.request_bounds import MAX_PAGE_ITEMS
from leasehold.services.start_run import StartRequest, start_run
from leasehold.testing import InProcessEngine
from tests.worlds.functions import Function
from tests.worlds.serving import while_serving

#: What this API says of itself; `$ref` leads into it.
SPECIFICATION: dict[str, Any] = json.loads(specified(CALLS))

START = {"pipeline": "three", "input": {"n": 1}, "labels": {"team": "a"}}
BATCH = {"action": "pause", "filter": {"label": "team:a"}, "limit": 10}
OVERRIDE = {"timeoutS": 30, "until": "2999-01-01", "why": "slow day"}


def is_as(model: Any, answer: Any) -> bool:
    """Return whether the answer is one of the model, and has nothing that the model lacks."""
    adapter = TypeAdapter(model)
    read = adapter.validate_python(answer)
    return without_nulls(adapter.dump_python(read, mode="json", by_alias=True)) == without_nulls(
        answer
    )


def problems_with(row: AnyRow, answer: Any) -> list[str]:
    """Return what an answer has that the specification does not."""
    described = SPECIFICATION["paths"][path_of(row)][row.method.lower()]["responses"]
    content = described.get(str(answer.status_code), described["default"])["content"]
    if answer.mimetype not in content:
        return [f"it is {answer.mimetype}"]
    schema = {**SPECIFICATION, **content[answer.mimetype].get("schema", {})}
    value = answer.get_json() if answer.is_json else answer.text
    found = OAS31Validator(schema).iter_errors(value)
    return [error.message for error in found]


def without_nulls(value: Any) -> Any:
    match value:
        case dict():
            return {name: without_nulls(it) for name, it in value.items() if it is not None}
        case list():
            return [without_nulls(it) for it in value]
        case _:
            return value


@pytest.mark.parametrize("route", CALLS, ids=lambda route: f"{route.method} {route.path}")
def test_each_page_of_the_api_answers_as_its_model(
    serve_api: Function, engine: InProcessEngine, route: AnyRow
) -> None:
    run_id = serve_api.post("/runs", START)[1]["runId"]
    bodies = {"/runs": START, "/runs:batch": BATCH, "/overrides/<step>:set": OVERRIDE}
    bodies["/runs/<run_id>:deliver"] = {"channel": "none"}
    bodies["/runs/<run_id>/signals/<name>"] = {"value": None}
    bodies["/schedules/<name>:pause"] = {"why": "slow day"}
    bodies["/schedules/<name>:backfill"] = {"first": "2026-01-01", "last": "2026-01-02"}
    bodies["/pauses:set"] = {"step": "add", "why": "slow day"}
    bodies["/pauses:clear"] = {"step": "add"}
    body: Any = bodies.get(route.path)
    if route.path.endswith(":resume"):
        serve_api.post(f"/runs/{run_id}:pause")
    if route.path.endswith(":recreate"):
        serve_api.post(f"/runs/{run_id}:cancel")
    if route.method == "GET":
        engine.adopt(run_id)
        engine.run_until_idle()

    if route.gives is bytes:
        folder = files_folder(find_run(engine.engine, run_id).manifest)
        engine.engine.artifacts.put(f"{folder}/a/b", b"bytes")

    path = route.path.replace("<run_id>", run_id)
    path = path.replace("<step>", "add").replace("<path:name>", "a/b").replace("<name>", "none")
    answer = serve_api.client.open(path, method=route.method, json=body)

    if route.path.endswith((":retry", ":approve", ":stack")):  # a run that waits has none of it
        assert answer.status_code == 409
        assert is_as(ErrorResponse, answer.get_json())
    elif route.path.endswith(":deliver") or "<name>" in route.path:  # the catalog has none
        assert answer.status_code == 404
        assert is_as(ErrorResponse, answer.get_json())
    elif route.gives is bytes:
        assert (answer.status_code, answer.data) == (200, b"bytes")
    elif route.gives is PlainText:
        assert answer.status_code == 200
        assert answer.content_type == PlainText.mimetype
        assert answer.text.startswith("# HELP leasehold_")
    else:
        assert answer.status_code < 300
        assert is_as(route.gives, answer.get_json())
    assert problems_with(route, answer) == []


#: Each is wrong for at least one of the calls, as a query or as a body.
WRONG: tuple[Any, ...] = (
    None,
    [],
    {"limit": "x", "status": "\x00", "input": 1, "pipeline": ["a"], "step": 1, "why": None},
    {"limit": -1, "pageToken": "?", "labels": {"": 1}, "action": "x", "filter": [], "value": {}},
)


def test_each_wrong_request_gets_an_answer_that_the_specification_has(serve_api: Function) -> None:
    """The nightly job makes many more of them, from the specification itself."""
    run_id = serve_api.post("/runs", START)[1]["runId"]

    for row in CALLS:
        for (run, name), wrong in product(((run_id, "add"), ("r-none", "\x00")), WRONG):
            path = row.path.replace("<run_id>", run)
            for part in ("<path:name>", "<name>", "<step>"):
                path = path.replace(part, quote(name))
            query = wrong if row.method == "GET" and isinstance(wrong, dict) else None
            body = wrong if row.method == "POST" else None

            answer = serve_api.client.open(path, method=row.method, query_string=query, json=body)

            assert answer.status_code < 500, (row.name, run, name, wrong, answer.text)
            assert problems_with(row, answer) == [], (row.name, run, name, wrong, answer.text)


@pytest.mark.parametrize("rows", [CALLS, LEASE_CALLS], ids=["runs", "leases"])
def test_the_specification_is_valid_and_has_each_call_once(rows: tuple[AnyRow, ...]) -> None:
    found = json.loads(specified(rows))

    OpenAPIV31SpecValidator(found).validate()

    operations = [operation for path in found["paths"].values() for operation in path.values()]
    assert sorted(it["operationId"] for it in operations) == sorted({row.name for row in rows})
    assert len(operations) == len(rows)


def test_the_specification_says_what_a_caller_has_to_be_allowed_to_do() -> None:
    of = {row.name: row.needs.right for row in CALLS}

    assert {name for name, right in of.items() if right == "cancel"} == {"cancel"}
    assert {row.name for row in CALLS if row.method == "POST"} == {
        name for name, right in of.items() if right != "read"
    }
    assert SPECIFICATION["paths"]["/runs/{runId}:cancel"]["post"]["x-leasehold-right"] == "cancel"


def test_a_server_answers_with_its_specification(serve_api: Function) -> None:
    status, found = serve_api.get("/openapi.json")

    assert (status, found) == (200, SPECIFICATION)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/runs/r-none", 404),
        ("GET", "/runs?limit=x", 400),
        ("GET", "/nothing", 404),
        ("DELETE", "/runs", 405),
        ("POST", "/runs", 400),
    ],
)
def test_each_refusal_is_of_one_shape(
    serve_api: Function, method: str, path: str, status: int
) -> None:
    answer = serve_api.client.open(path, method=method)

    assert answer.status_code == status
    assert is_as(ErrorResponse, answer.get_json())


def test_the_other_functions_answer_as_their_models(
    engine: InProcessEngine, execute_step: Function, sweep_dead_letters: Function
) -> None:
    run = engine.start("three", {"n": 1})

    done = execute_step.post(json={"runId": run.run_id, "generation": 1})[1]
    queue = {"X-CloudTasks-QueueName": "add"}
    rejected = execute_step.post(json={}, headers=queue)[1]
    swept = sweep_dead_letters.post()[1]

    assert is_as(OutcomeResponse, done)
    assert list(done) == ["outcome"]
    assert is_as(OutcomeResponse, rejected)
    assert is_as(SweepResponse, swept)


@pytest.fixture
def leases(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Function:
    monkeypatch.setenv("LEASEHOLD_CATALOG", "tests.api.functions.remote_steps")
    found: Function = request.getfixturevalue("manage_lease")
    return found


def test_the_lease_api_answers_as_its_models(leases: Function) -> None:
    start_run(leases.provider.engine, StartRequest("last", {}))
    claim = {"stepType": "free", "holder": "vm-1"}
    claimed = leases.post("/leases:claim", claim)[1]
    lease = {name: claimed[name] for name in ("runId", "leaseId", "fencingToken")}
    checkpoint = lease | {"iterationCount": 1, "partialResults": [1], "phase": "p"}

    kept = leases.post("/leases:checkpoint", checkpoint)[1]
    renewed = leases.post("/leases:renew", lease)[1]
    put = leases.post("/leases:putFile", lease | {"name": "a", "content": "YQ=="})[1]
    got = leases.post("/leases:getFile", lease | {"name": "a"})[1]
    listed = leases.post("/leases:listFiles", lease)[1]
    released = leases.post("/leases:release", lease)[1]
    again = leases.post("/leases:claim", claim)[1]

    assert is_as(ClaimResponse, claimed)
    assert is_as(CheckpointResponse, kept)
    assert is_as(RenewResponse, renewed)
    assert is_as(FileEntry, put)
    assert is_as(GetFileResponse, got)
    assert is_as(FilesResponse, listed)
    assert is_as(OutcomeResponse, released)
    assert is_as(ClaimResponse, again)
    assert again["resume"] == {"phase": "p", "iterationCount": 1, "partialResults": [1]}


# -- the client of the command line ----------------------------------------------------------------


@pytest.fixture
def server(serve_api: Function) -> Iterator[Client]:
    """The function behind a real socket, and the client that reads it."""
    server = make_server("127.0.0.1", 0, serve_api.client.application, threaded=True)
    with while_serving(server):
        yield Client(f"http://127.0.0.1:{server.server_port}", actor="ada")


def test_the_client_gets_the_figures_as_they_are(server: Client) -> None:
    text = server.call(calls.metrics, None)

    assert isinstance(text, PlainText)
    assert 'leasehold_runs{state="pending"} 0' in text.splitlines()


def test_the_client_reads_what_the_server_answers(server: Client) -> None:
    wanted: Filters = {"pipeline": "three", "label": "team:a"}
    start = StartBody(pipeline="three", input={"n": 1}, idempotency_key="key", labels={"team": "a"})
    run, is_new = server.call(calls.start, start)
    same, is_newer = server.call(calls.start, start)

    paused = Client(server.connection, actor="jörg").pause(run, reason="lunch", generation=1)
    dry = server.batch("cancel", wanted, limit=MAX_PAGE_ITEMS, dry_run=True)
    done = server.batch("cancel", wanted, limit=MAX_PAGE_ITEMS)
    again = server.batch("cancel", wanted, limit=MAX_PAGE_ITEMS)
    made = server.recreate(run, input={"n": 2})

    page = server.page(limit=1, **wanted)
    rest = server.page(limit=MAX_PAGE_ITEMS, page_token=page.next_page_token, **wanted)
    assert (is_new, is_newer, same) == (True, False, run)
    assert (paused.run_id, paused.paused) == (run.run_id, True)
    assert (dry.matched, dry.changed, dry.refused) == (1, 0, [])
    assert (done.matched, done.changed, done.refused) == (1, 1, [])
    assert again.refused == [(run.run_id, "not_allowed")]
    assert [found.run_id for found in page.runs + rest.runs] == [made.run_id, run.run_id]
    assert server.get(made.run_id).input == '{"n":2}'
    actors = {event.type: event.model_dump().get("actor") for event in server.trace(run.run_id)}
    assert (actors["run_paused"], actors["run_cancelled"]) == ("jörg", "ada")


def test_the_client_reads_outputs_and_files(server: Client, engine: InProcessEngine) -> None:
    run_id = engine.start("files", {"n": 4}).run_id
    engine.run_until_idle()
    folder = files_folder(find_run(engine.engine, run_id).manifest)
    large = bytes(range(256)) * 16 * 1024
    for number in range(3):
        engine.engine.artifacts.put(f"{folder}/{number}?a=b #1%2F", large)

    assert server.output(run_id)["files"] == ["notes/one.txt"]
    assert server.output(run_id, "write_file")["n"] == 4
    names = [entry.name for entry in server.files(run_id)]
    assert names == [*(f"{number}?a=b #1%2F" for number in range(3)), "notes/one.txt"]
    rest = server.call(calls.files, PageQuery(page_token=names[2]), run_id).files
    assert [(entry.name, entry.size) for entry in rest] == [("notes/one.txt", 3)]
    with server.call(calls.file, None, run_id, name=names[1]) as content:
        assert content.size == len(large)
        assert b"".join(content.blocks) == large
    with (
        pytest.raises(UnknownFileError, match="has no file 'two'"),
        server.call(calls.file, None, run_id, name="two"),
    ):
        pass


def test_the_client_knows_the_limits_of_the_server(server: Client, serve_api: Function) -> None:
    limit = f"a whole number from 1 to {MAX_PAGE_ITEMS}"

    with pytest.raises(
        InvalidRequestError, match=f"limit is {MAX_PAGE_ITEMS + 1}; allowed: {limit}"
    ):
        server.page(limit=MAX_PAGE_ITEMS + 1)
    with pytest.raises(InvalidRequestError, match="nextPageToken"):
        server.page(limit=MAX_PAGE_ITEMS, page_token="of another list")  # noqa: S106 - no secret
    assert limit in serve_api.get(f"/runs?limit={MAX_PAGE_ITEMS + 1}")[1]["error"]["message"]
    assert serve_api.get(f"/runs?limit={MAX_PAGE_ITEMS}")[0] == 200
