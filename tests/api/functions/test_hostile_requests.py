"""A function answers requests of a stranger with 4xx and a clear line, and changes nothing."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import socket
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from leasehold.testing import InProcessEngine
from leasehold.web.entry import guarded
from tests.worlds.functions import Function, function_of, one_store

DEEP = b'{"a":' * 50_000 + b"1" + b"}" * 50_000
DEEP_LIST = b"[" * 100_000 + b"]" * 100_000
DIGITS = b"9" * 5_000
JSON = {"Content-Type": "application/json"}

#: What no endpoint can make anything of, as it is sent.
NO_OBJECT = {
    "deep objects": DEEP,
    "deep lists": DEEP_LIST,
    "a lone surrogate": rb'{"runId":"\ud800"}',
    "a surrogate as a name": rb'{"\udfff":1}',
    "not a number": b'{"runId":NaN}',
    "infinity": b'{"runId":-Infinity}',
    "half an object": b'{"runId":',
    "UTF-16": '{"runId":"r"}'.encode("utf-16"),
    "Latin-1": '{"runId":"é"}'.encode("latin-1"),
    "a mark of byte order": b"\xef\xbb\xbf{}",
    "NUL": b"\x00",
    "a list": b"[]",
    "a field that steers a terminal": rb'{"\u001b]0;x\u0007\n\u202e":1}',
    "a number of 5,000 digits": DIGITS,
    "a field of 5,000 digits": b'{"runId":' + DIGITS + b"}",
    "an unknown field of 5,000 digits": b'{"x":' + DIGITS + b"}",
}

#: Values that a field of any kind may be sent.
VALUES = [
    int(DIGITS[:4_000]),
    1e308,
    True,
    None,
    [],
    {},
    [[[{}]]],
    "",
    "\x00",
    "\u202e\x1b[31m",
    "x" * 100_000,
    -1,
]
#: As their JSON is, where json.dumps does not write it so.
RAW = [DIGITS, b"-" + DIGITS, b"1" + b"0" * 4_999 + b".5", b"1e400", b"-1e400", b"1E-999999"]

BODIES: dict[str, dict[str, list[str]]] = {
    "serve_api": {
        "/runs": ["pipeline", "input", "idempotencyKey", "labels"],
        "/runs/r-none:pause": ["reason"],
        "/runs/r-none:recreate": ["reason", "fromStep", "input", "labels"],
        "/runs:batch": ["action", "filter", "limit", "dryRun", "reason", "fromStep"],
        "/runs/r-none/signals/go": ["value", "id"],
        "/pauses:set": ["step", "all", "why"],
        "/pauses:clear": ["step", "all"],
        "/schedules/none:pause": ["why"],
        "/schedules/none:resume": [],
        "/schedules/none:trigger": ["id"],
        "/schedules/none:backfill": ["first", "last"],
    },
    "execute_step": {"/": ["runId", "generation"]},
    "manage_lease": {
        "/leases:claim": ["stepType", "holder"],
        "/leases:acquire": ["runId", "holder"],
        "/leases:renew": ["runId", "leaseId", "fencingToken", "progress"],
        "/leases:checkpoint": [
            "runId",
            "leaseId",
            "fencingToken",
            "iterationCount",
            "partialResults",
            "phase",
        ],
        "/leases:complete": ["runId", "leaseId", "fencingToken", "output", "status"],
        "/leases:fail": ["runId", "leaseId", "fencingToken", "error", "permanent"],
        "/leases:release": ["runId", "leaseId", "fencingToken"],
        "/leases:await": ["runId", "leaseId", "fencingToken", "name", "timeoutS", "otherwise"],
    },
}
#: Values that are right, beside the one that is not.
RIGHT: dict[str, Any] = {
    "pipeline": "three",
    "input": {"n": 1},
    "action": "pause",
    "filter": {"pipeline": "three"},
    "limit": 1,
    "runId": "r-none",
    "generation": 1,
    "stepType": "add",
    "holder": "me",
    "leaseId": "l",
    "fencingToken": 1,
    "iterationCount": 1,
    "partialResults": 1,
    "output": 1,
    "error": {"message": "m"},
    "name": "go",
    "value": 1,
    "why": "w",
    "first": "2026-01-01",
    "last": "2026-01-02",
}
PATHS = [(name, path) for name, paths in BODIES.items() for path in paths]


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Function]]:
    """The functions on one store: no refusal depends on what else was asked."""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        catalog = "tests.worlds.catalogs.sample"
        one_store(tmp_path_factory.mktemp("hostile"), patch, LEASEHOLD_CATALOG=catalog)
        opened = contextlib.contextmanager(function_of)
        yield {name: stack.enter_context(opened(name)) for name in BODIES}


@pytest.fixture
def function(functions: dict[str, Function], request: pytest.FixtureRequest) -> Function:
    return functions[request.param]


def refused(function: Function, path: str, body: bytes) -> int:
    """Return the status; what is answered is an error with one line, which is not long."""
    answer = function.client.post(path, data=body, headers=JSON)
    if answer.status_code >= 400:
        error = answer.get_json()["error"]
        assert len(error["message"]) < 2_000, (path, body[:80], len(error["message"]))
        assert error["message"].isprintable()
    return answer.status_code


@pytest.mark.parametrize(("function", "path"), PATHS, indirect=["function"])
def test_a_body_that_is_not_an_object_is_refused(function: Function, path: str) -> None:
    answered = {name: refused(function, path, body) for name, body in NO_OBJECT.items()}

    assert {name: status for name, status in answered.items() if not 400 <= status < 500} == {}


def test_a_path_that_steers_a_terminal_is_repeated_in_one_line(serve_api: Function) -> None:
    answer = serve_api.client.get("/runs/%1b%5D0;x%07%E2%80%AE/none")

    assert answer.status_code == 404
    assert answer.get_json()["error"]["message"].startswith(
        r"/runs/\x1b]0;x\x07\u202e/none is not served here"
    )


@pytest.mark.parametrize(("function", "path"), PATHS, indirect=["function"])
def test_a_compressed_body_is_refused_as_one(function: Function, path: str) -> None:
    """Read as JSON it would be garbage, and the line about that helps no caller."""
    headers = JSON | {"Content-Encoding": "gzip"}

    packed = function.client.post(path, data=gzip.compress(b"{}"), headers=headers)
    plain = function.client.post(path, data=b"[]", headers=JSON | {"Content-Encoding": "identity"})

    assert packed.status_code == 415
    assert packed.get_json()["error"]["message"] == (
        "The body has Content-Encoding 'gzip'; allowed: plain JSON, without this header."
    )
    assert plain.status_code == 400


def test_a_body_that_stays_away_is_not_waited_for(
    serve_api: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many such callers as an instance has threads would stop it."""
    monkeypatch.setattr("leasehold.web.entry._MAX_BODY_SILENCE_S", 0.05)
    ours, theirs = socket.socketpair()

    class Body(io.BytesIO):
        def readinto(self, buffer: Any) -> int:
            return ours.recv_into(buffer)

    with ours, theirs:
        theirs.sendall(b'{"pipeline"')
        answer = serve_api.client.post(
            "/runs",
            headers=JSON,
            input_stream=Body(),
            environ_overrides={"gunicorn.socket": ours, "CONTENT_LENGTH": "1000"},
        )

        assert answer.status_code == 400
        assert "11 bytes, then broken off" in answer.get_json()["error"]["message"]
        assert ours.gettimeout() is None
        assert ours.recv(1) == b""  # gunicorn reads the rest of a body before the next request


@pytest.mark.parametrize(("function", "path"), PATHS, indirect=["function"])
def test_a_value_that_no_field_takes_fails_nothing(function: Function, path: str) -> None:
    """A few are right, such as an input of null; none of them may be answered 500."""
    fields = BODIES[next(name for name, it in PATHS if it == path)][path]
    right = {name: RIGHT[name] for name in fields if name in RIGHT}
    for field in [*fields, "unknown"]:
        texts = [*(json.dumps(value).encode() for value in VALUES[1:]), *RAW]
        for text in texts:
            before = json.dumps({**right, field: "@"}).encode()
            status = refused(function, path, before.replace(b'"@"', text))
            assert status < 500, (field, text[:80])


def test_a_parameter_that_no_operation_takes_is_refused_before_anything_is_done(
    serve_api: Function,
) -> None:
    status, answer = serve_api.post("/sweep?dryRun=true", {})

    assert status == 400
    assert answer["error"]["message"] == "dryRun is 'true'; allowed: no parameters."


def test_an_unexpected_error_tells_a_caller_nothing_of_itself() -> None:
    def fail() -> NoReturn:
        raise KeyError("api_key=hunter2")

    answer = guarded(fail)

    assert (answer.status_code, answer.get_json()["error"]["code"]) == (500, "internal")
    assert "hunter2" not in answer.get_data(as_text=True)


@pytest.mark.parametrize("path", ["/sweep", "/audit:repair", "/schedules/none:resume"])
def test_a_field_that_no_call_takes_is_refused_before_anything_is_done(
    serve_api: Function, path: str
) -> None:
    """A caller that asks for a dry run, where there is none, would have the call done."""
    status, answer = serve_api.post(path, {"dryRun": True})

    assert status == 400
    assert answer["error"]["message"] == "dryRun is 'given'; allowed: no fields."


@pytest.mark.parametrize("header", ["X-Leasehold-Actor"])
@pytest.mark.parametrize("name", ["a\x1b[31m", "\u202e", "x" * 100_000, "\x00", "a\x85b"])
def test_a_name_that_no_trace_can_show_is_refused(
    functions: dict[str, Function], header: str, name: str
) -> None:
    sent = name.encode().decode("latin-1")
    answer = functions["serve_api"].client.post("/runs/r-none:pause", headers={header: sent})

    assert answer.status_code == 400
    assert answer.get_json()["error"]["details"]["field"] == header


def test_a_name_that_ends_with_any_letter_is_kept_whole(
    serve_api: Function, engine: InProcessEngine
) -> None:
    """The last byte of "à" is a space of Latin-1, which a header is first taken for."""
    run_id = engine.start("three", {"n": 1}).run_id

    sent = "Nicolà".encode().decode("latin-1")
    serve_api.client.post(f"/runs/{run_id}:pause", headers={"X-Leasehold-Actor": sent})

    assert engine.trace(run_id)[-1].model_dump()["actor"] == "Nicolà"


@pytest.mark.parametrize(
    "path",
    [
        "/runs/" + "x" * 100_000,
        "/runs/%00",
        "/runs/%ed%a0%80",
        "/runs/r-none%0d%0aX:%20y",
        "/runs/..%2f..%2fetc",
        "//runs",
        "/runs/%f0%9f/trace",
        "/" + "a/" * 10_000,
        "/runs?" + "a=1&" * 10_000,
        "/runs?limit=" + "9" * 5_000,
        "/runs?pageToken=" + "A" * 100_000,
        "/runs?status=%00%ed%a0%80",
        "/runs?label=%ff",
        "/runs?pipeline=%00",
    ],
    ids=lambda path: path[:20],
)
def test_an_odd_address_fails_nothing(functions: dict[str, Function], path: str) -> None:
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "QUERY"):
        answer = functions["serve_api"].client.open(path, method=method)

        assert answer.status_code < 500, method
        assert len(answer.get_data()) < 4_000, method
