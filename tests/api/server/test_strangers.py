"""Strangers that can reach the port, or send a person's browser to it, change nothing."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from leasehold.server import http_server
from leasehold.server.server import Server
from tests.api.server.conftest import Api
from tests.worlds.waiting import until

TOKEN = "0123456789abcdef-of-tests"  # noqa: S105 - of tests
RUN = {"pipeline": "three", "input": {"n": 1}}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "rebound.example:8080"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Content_Type": "text/plain"}, 415),
    ],
    ids=str,
)
def test_a_stranger_s_page_starts_nothing(api: Api, headers: dict[str, str], status: int) -> None:
    assert api.ask("POST", "/runs", RUN, **headers).status == status
    assert api.get("/runs")["runs"] == []


def test_beyond_this_machine_any_name_may_be_called_but_no_foreign_page_calls(
    serve: Callable[..., Server],
) -> None:
    """Every caller with the token is let in, but no page of another origin."""
    server = serve(host="0.0.0.0", LEASEHOLD_TOKEN=TOKEN)  # noqa: S104 - that is it
    api = Api(f"http://127.0.0.1:{server.url.rpartition(':')[2]}")
    signed = {"Authorization": f"Bearer {TOKEN}"}

    assert api.ask("GET", "/runs", Host="pipelines.internal", **signed).status == 200
    own = signed | {"Host": "pipelines.internal", "Origin": "https://pipelines.internal"}
    assert api.ask("POST", "/runs", RUN, **own).status == 201
    foreign = own | {"Origin": "https://evil.example"}
    assert api.ask("POST", "/runs", RUN, **foreign).status == 403


def test_by_default_nothing_listens_beyond_the_loopback_interface(api: Api) -> None:
    assert api.host == "127.0.0.1"


@pytest.fixture
def crowd(api: Api) -> Iterator[list[socket.socket]]:
    """Many callers: some say nothing, some half of a request, some half of a body."""
    beginnings = [
        b"",
        b"GET /runs HT",
        b"POST /runs HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{",
    ]
    with ExitStack() as open_:
        callers = []
        for number in range(90):
            caller = open_.enter_context(socket.create_connection((api.host, api.port), 30))
            caller.sendall(beginnings[number % 3])
            callers.append(caller)
        yield callers


def test_callers_that_never_end_keep_no_other_out(api: Api, crowd: list[socket.socket]) -> None:
    assert len(crowd) > http_server.THREADS

    assert api.post("/runs", RUN)["pipeline"] == "three"


def test_a_request_that_trickles_is_broken_off(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[..., Server]
) -> None:
    """A byte now and then is no activity: the time is that of the whole request."""
    monkeypatch.setattr(http_server, "REQUEST_TIMEOUT_S", 0.3)
    api = Api(serve().url)

    with socket.create_connection((api.host, api.port), 30) as caller:
        caller.setblocking(False)
        caller.send(b"GET /")

        def is_over() -> bool:
            try:
                caller.send(b"x")
                return caller.recv(1) == b""
            except BlockingIOError:
                return False
            except ConnectionError:
                return True

        until(is_over)


def test_a_body_over_the_limit_is_refused_unread(api: Api) -> None:
    with socket.create_connection((api.host, api.port), 30) as caller:
        head = (
            f"POST /runs HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\nContent-Length: {2**40}\r\n\r\n"
        )
        caller.sendall(head.encode())

        assert b" 413 " in caller.recv(100)
    assert api.get("/runs")["runs"] == []


def test_a_body_that_is_too_large_gets_its_answer(api: Api) -> None:
    refused = api.ask("POST", "/runs", RUN | {"labels": {"x": "x" * 24 * 2**20}})

    assert (refused.status, refused.body["error"]["code"]) == (413, "too_large")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"1\r\n \r\n" * 20_000, b"400"),
        (b"\r\n" * 40_000, b"400"),
        (b"5" * 100_000, b"400"),
        (b"2;x=" + b"x" * 100_000, b"400"),
        (b"2\r\n{}\r\n0\r\nX: " + b"x" * 100_000, b"400"),
        (b"f" * 40 + b"\r\n", b"413"),
    ],
    ids=["tiny", "empty", "size", "extension", "trailer", "huge"],
)
def test_a_body_of_nothing_but_lines_of_chunks_is_refused(
    api: Api, body: bytes, status: bytes
) -> None:
    """It would be read again from its beginning with each packet, by the thread of all callers."""
    lines = ("Content-Type: application/json", "Transfer-Encoding: chunked")
    with _connected(api) as caller:
        caller.sendall(_head(api, "POST", "/runs", *lines) + body)

        assert _answer_of(caller).startswith(b"HTTP/1.1 " + status)


def test_a_body_in_chunks_is_read_as_one(api: Api) -> None:
    body = json.dumps(RUN).encode().rjust(50_000)
    pieces = [body[: 7 * 4096], *(body[place:][:9] for place in range(7 * 4096, len(body), 9))]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in pieces)
    lines = ("Content-Type: application/json", "Transfer-Encoding: chunked", "Connection: close")
    with _connected(api) as caller:
        caller.sendall(_head(api, "POST", "/runs", *lines) + chunks + b"0\r\nX: y\r\n\r\n")

        assert _answer_of(caller).startswith(b"HTTP/1.1 201")


@pytest.mark.parametrize(
    ("target", "line"),
    [("/runs", f"Content-Length: {'9' * 5000}"), ("http://[::1/runs", "Accept: */*")],
    ids=["length", "address"],
)
def test_a_head_that_cannot_be_read_is_refused(
    api: Api, target: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    with _connected(api) as caller:
        caller.sendall(_head(api, "POST", target, "Content-Type: application/json", line))

        assert _answer_of(caller).startswith(b"HTTP/1.1 400")
    assert caplog.records == []


def test_empty_lines_before_a_request_are_passed_over(api: Api) -> None:
    with _connected(api) as caller:
        caller.sendall(b"\r\n" * 100_000 + _head(api, "GET", "/health", "Connection: close"))

        assert _answer_of(caller).startswith(b"HTTP/1.1 200")


def _head(api: Api, method: str, path: str, *lines: str) -> bytes:
    head = "".join(f"{line}\r\n" for line in (f"Host: 127.0.0.1:{api.port}", *lines))
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode()


def _connected(api: Api, most_received: int | None = None) -> socket.socket:
    caller = socket.socket()
    if most_received:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, most_received)
    caller.settimeout(30)
    caller.connect((api.host, api.port))
    return caller


def _answer_of(caller: socket.socket) -> bytes:
    """Return all that comes until the server closes."""
    answered = b""
    while block := caller.recv(65536):
        answered += block
    return answered


def test_callers_that_do_not_read_their_answers_hold_no_worker(api: Api) -> None:
    """Each sends a packet of requests, whose answers are larger than what the system keeps."""
    for number in range(100):
        api.post("/runs", RUN | {"idempotencyKey": f"{number:0200}"})
    packet = _head(api, "GET", "/manifests?limit=100") * 500
    with ExitStack() as open_:
        for _ in range(2 * http_server.THREADS):
            open_.enter_context(_connected(api, 4096)).sendall(packet)

        assert api.get("/health") == {"status": "ok"}
        assert api.post("/runs", RUN)["pipeline"] == "three"


def test_an_answer_that_is_not_read_is_broken_off(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[..., Server]
) -> None:
    monkeypatch.setattr(http_server, "ANSWER_TIMEOUT_S", 0.3)
    server = serve()
    api = Api(server.url)
    packet = _head(api, "GET", "/registry") * 500
    with _connected(api, 4096) as caller:
        caller.setblocking(False)
        caller.send(packet)

        def is_over() -> bool:
            try:
                caller.send(packet)
            except BlockingIOError:
                return False
            except ConnectionError:
                return True
            return False

        until(is_over)
        assert api.get("/health") == {"status": "ok"}


def test_requests_of_one_packet_are_answered_one_after_the_other(api: Api) -> None:
    last = _head(api, "GET", "/health", "Connection: close")
    with _connected(api) as caller:
        caller.sendall(_head(api, "GET", "/health") * 300 + last)

        assert _answer_of(caller).count(b"HTTP/1.1 200 OK") == 301


def test_at_the_limit_the_longest_silent_connection_gives_way(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[..., Server]
) -> None:
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", 50)
    api = Api(serve().url)
    with ExitStack() as open_:
        silent = [open_.enter_context(_connected(api)) for _ in range(120)]

        assert api.get("/health") == {"status": "ok"}
        assert silent[0].recv(1) == b""


def test_who_has_most_connections_gives_way_first(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[..., Server]
) -> None:
    """A caller that is silent for longer keeps its connection beside one that takes them all."""
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", 50)
    api = Api(serve().url)
    with ExitStack() as open_:
        other = open_.enter_context(
            socket.create_connection((api.host, api.port), 30, source_address=("127.0.0.2", 0))
        )
        crowd = [open_.enter_context(_connected(api)) for _ in range(120)]
        assert crowd[0].recv(1) == b""

        other.sendall(_head(api, "GET", "/health"))

        assert other.recv(100).startswith(b"HTTP/1.1 200")


def test_a_connection_that_says_nothing_is_closed_soon(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[..., Server]
) -> None:
    monkeypatch.setattr(http_server, "FIRST_BYTE_TIMEOUT_S", 0.1)
    api = Api(serve().url)

    with _connected(api) as caller:
        assert caller.recv(1) == b""


@pytest.mark.parametrize(
    ("method", "path", "line", "status"),
    [
        ("POST", "/runs", "Origin: https://evil.example", b"403"),
        ("POST", "/runs", "Content-Type: text/plain", b"415"),
        ("POST", "/nowhere", "Content-Type: application/json", b"404"),
        ("POST", "/runs:batch", "Content-Type: application/json", b"413"),
    ],
)
@pytest.mark.parametrize("length", ["Content-Length: 60000000", "Transfer-Encoding: chunked"])
def test_a_body_that_its_head_refuses_is_not_waited_for(
    api: Api, method: str, path: str, line: str, status: bytes, length: str
) -> None:
    with _connected(api) as caller:
        caller.sendall(_head(api, method, path, line, length, "Expect: 100-continue"))
        if status == b"413" and "chunked" in length:  # no head says how long that is
            caller.sendall(b"".join(b"100000\r\n" + b"x" * 2**20 + b"\r\n" for _ in range(4)))
            assert caller.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"

        answered = _answer_of(caller)

    assert answered.startswith(b"HTTP/1.1 " + status)
    assert answered.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 2", "Transfer-Encoding: chunked"),
        ("Content-Length: 2", "Content-Length: 3"),
        ("Content-Length: 2", "X-Folded: a", " b"),
        ("X-Folded: a", "\tContent-Length: 2"),
    ],
    ids=str,
)
def test_a_request_that_can_be_read_in_two_ways_is_refused(
    api: Api, lines: tuple[str, ...]
) -> None:
    kind = "Content-Type: application/json"
    with _connected(api) as caller:
        caller.sendall(_head(api, "POST", "/runs", kind, *lines) + b"{}")

        answer = _answer_of(caller)

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split()[1] == b"400"
    assert b"Content-Type: application/json" in head
    assert json.loads(body)["error"]["code"] == "invalid_request"
    assert api.get("/runs")["runs"] == []


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"NO WORDS AT ALL\r\n\r\n", b"400", "invalid_request"),
        (b"GET /runs HTTP/1.1\r\nX: " + b"a" * 300_000, b"431", "too_large"),
        (
            b"POST /runs HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
            b"501",
            "body_encoding",
        ),
        (
            b"POST /runs HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"400",
            "invalid_request",
        ),
    ],
    ids=["words", "head", "encoding", "chunk"],
)
def test_bytes_that_http_does_not_allow_are_answered_as_all_else(
    api: Api, sent: bytes, status: bytes, code: str
) -> None:
    """A client that reads the error of each refusal found a text there, and no error."""
    with _connected(api) as caller:
        caller.sendall(sent.replace(b"HOST", f"127.0.0.1:{api.port}".encode()))

        head, _, body = _answer_of(caller).partition(b"\r\n\r\n")

    assert head.split()[1] == status
    error = json.loads(body)["error"]
    assert (error["code"], error["details"]) == (code, {})
    assert error["message"].endswith(".")


@pytest.mark.parametrize(
    "before", ["X: y\nAuthorization:", "X: y\rAuthorization:", "Authorization"]
)
def test_a_header_that_http_does_not_allow_is_not_repeated(api: Api, before: str) -> None:
    """Answers are logged on their way, and the line may be the one with the caller's token."""
    with _connected(api) as caller:
        caller.sendall(f"GET /runs HTTP/1.1\r\n{before} Bearer {TOKEN}\r\n\r\n".encode())

        answer = _answer_of(caller)

    assert answer.split()[1] == b"400"
    assert TOKEN.encode() not in answer
