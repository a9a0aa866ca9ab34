"""What a web page, or a caller that only reaches a port, may make the dev server do: nothing."""

from __future__ import annotations

import http.client
import json
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from leasehold.devserver.server import DevServer
from tests.worlds.bundles import dev_server

JSON = {"Content-Type": "application/json"}
#: Far more than any server takes, or may use, and the size of the blocks that it is sent in.
LARGE, BLOCK = 80 * 2**20, 2**20


class Answered(NamedTuple):
    status: int
    headers: dict[str, str]
    error: Any


class Place(NamedTuple):
    """A server of the dev server, and a request that it takes."""

    port: int
    path: str
    body: dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    environ = {"LEASEHOLD_CATALOG": "tests.worlds.catalogs.bundle_of_remote"}
    with dev_server(tmp_path_factory.mktemp("strangers"), environ) as server:
        yield server


@pytest.fixture(scope="module")
def places(server: DevServer) -> dict[str, Place]:
    ports = {it.name: it.port for it in server._functions}  # noqa: SLF001 - all that it serves
    task = {"task": {"httpRequest": {"url": "http://127.0.0.1:1/"}}}
    return {
        "serve_api": Place(ports["serve_api"], "/runs", {"pipeline": "both", "input": {}}),
        "execute_step": Place(ports["execute_step"], "/", {"runId": "r-none", "generation": 1}),
        "sweep_dead_letters": Place(ports["sweep_dead_letters"], "/", {}),
        "manage_lease": Place(
            ports["manage_lease"], "/leases:claim", {"stepType": "elsewhere", "holder": "me"}
        ),
        "tasks": Place(_port(server.tasks_url), "/v2/projects/p/locations/l/queues/q/tasks", task),
        "faults": Place(_port(server.tasks_url), "/faults", {"kind": "lost"}),
    }


@pytest.fixture(
    params=["serve_api", "execute_step", "sweep_dead_letters", "manage_lease", "tasks", "faults"]
)
def place(places: dict[str, Place], request: pytest.FixtureRequest) -> Place:
    return places[request.param]


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])


def ask(place: Place, method: str, body: bytes | None = None, **headers: str) -> Answered:
    """Send a request with these headers alone, in which `_` stands for `-`."""
    sent = {name.replace("_", "-"): text for name, text in headers.items()}
    connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=20)
    connection.putrequest(method, place.path, skip_host=True, skip_accept_encoding=True)
    for name, text in {"Host": f"127.0.0.1:{place.port}", **sent}.items():
        connection.putheader(name, text)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return Answered(answer.status, {k.lower(): v for k, v in answer.getheaders()}, text)


def posted(place: Place, **headers: str) -> Answered:
    return ask(
        place,
        "POST",
        json.dumps(place.body).encode(),
        **{"Content_Type": JSON["Content-Type"], **headers},
    )


FOREIGN = {
    "another name": {"Host": "evil.example"},
    "a name that was rebound": {"Host": "evil.example:{port}"},
    "another port": {"Host": "127.0.0.1:1"},
    "no port": {"Host": "127.0.0.1"},
    "a name with ours in it": {"Host": "127.0.0.1.evil.example:{port}"},
    "a name with ours before it": {"Host": "localhost:{port}@evil.example"},
    "an address of the network": {"Host": "192.168.0.7:{port}"},
    "any address": {"Host": "0.0.0.0:{port}"},
    "an empty name": {"Host": ""},
    "a page": {"Origin": "https://evil.example"},
    "a page of another port": {"Origin": "http://127.0.0.1:3000"},
    "a page by another of our names": {"Origin": "http://localhost:{port}"},
    "a page over https": {"Origin": "https://127.0.0.1:{port}"},
    "a page of no origin": {"Origin": "null"},
    "a request across sites": {"Sec_Fetch_Site": "cross-site"},
    "a request of the same site": {"Sec_Fetch_Site": "same-site"},
    "a site nobody knows": {"Sec_Fetch_Site": "x"},
    "a frame of a page": {
        "Sec_Fetch_Site": "cross-site",
        "Sec_Fetch_Mode": "navigate",
        "Sec_Fetch_Dest": "iframe",
    },
    "a page that names a proxy": {"Origin": "https://evil.example", "X_Forwarded_Host": "proxy"},
}


@pytest.mark.cover(1)
@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_a_page_is_refused_whatever_it_asks(place: Place, headers: dict[str, str]) -> None:
    sent = {name: text.replace("{port}", str(place.port)) for name, text in headers.items()}

    for method in ("GET", "POST", "DELETE", "OPTIONS"):
        answered = ask(place, method, b"{}" if method == "POST" else None, **sent)

        assert answered.status == 403
        assert json.loads(answered.error)["error"]["code"] in {"foreign_host", "foreign_origin"}
        assert not [name for name in answered.headers if name.startswith("access-control")]


OF_A_FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    "headers",
    [
        *({"Content_Type": kind} for kind in ("text/plain", "multipart/form-data", "json")),
        {"Content_Type": OF_A_FORM, "Referer": "http://127.0.0.1:{port}/"},
        {"Content_Type": "", "Sec_Fetch_Site": "same-origin"},
    ],
)
def test_a_body_that_a_form_can_send_is_refused(place: Place, headers: dict[str, str]) -> None:
    sent = {name: text.replace("{port}", str(place.port)) for name, text in headers.items()}

    answered = ask(place, "POST", b'{"pipeline": "both"}', **sent)

    assert answered.status == 415
    assert "application/json" in json.loads(answered.error)["error"]["message"]


def test_a_form_without_the_token_of_a_page_is_refused(place: Place) -> None:
    """Its origin is right: a place with pages takes their forms, and the others take none."""
    origin = f"http://127.0.0.1:{place.port}"

    answered = ask(
        place, "POST", b"pipeline=both", Content_Type=OF_A_FORM, Origin=origin, Accept="text/html"
    )

    assert answered.status in (403, 415)


@pytest.mark.cover(1)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "localhost:{port}"},
        {"Host": "LocalHost:{port}"},
        {"Host": "[::1]:{port}"},
        {"Content_Type": "application/json; charset=utf-8"},
        {"Content_Type": OF_A_FORM},
        {"Content_Type": ""},
        {"Origin": "http://127.0.0.1:{port}", "Sec_Fetch_Site": "same-origin"},
        {"Sec_Fetch_Site": "none"},
    ],
)
def test_a_program_and_a_page_of_the_server_itself_are_served(
    place: Place, headers: dict[str, str]
) -> None:
    sent = {name: text.replace("{port}", str(place.port)) for name, text in headers.items()}

    answered = posted(place, **sent)

    assert answered.status not in {403, 415}
    assert not [name for name in answered.headers if name.startswith("access-control")]


def test_a_link_of_another_page_leads_a_person_here_and_changes_nothing(place: Place) -> None:
    """No other page reads the answer; the same request by another method is refused."""
    followed = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    followed |= {"Sec_Fetch_Dest": "document"}

    assert ask(place, "GET", **followed).status not in {403, 415}
    assert ask(place, "POST", b"{}", **followed).status == 403


def test_without_a_body_no_content_type_is_asked_for(places: dict[str, Place]) -> None:
    run = json.loads(posted(places["serve_api"]).error)
    paused = places["serve_api"]._replace(path=f"/runs/{run['runId']}:pause")

    assert ask(paused, "POST").status == 200
    assert ask(places["faults"], "DELETE").status == 200


@pytest.mark.parametrize(
    "request_line",
    ["GET http://evil.example/runs HTTP/1.1", "GET /runs HTTP/1.0", "GET /runs HTTP/1.1"],
)
def test_a_request_that_names_no_host_of_ours_is_refused(
    places: dict[str, Place], request_line: str
) -> None:
    place = places["serve_api"]
    host = f"Host: 127.0.0.1:{place.port}\r\n" if "evil" in request_line else ""

    answered = raw(place, f"{request_line}\r\n{host}\r\n".encode())

    assert re.match(rb"HTTP/1.[01] (403|400) ", answered), answered[:200]


MALFORMED = {
    "no protocol": b"GET /runs\r\n\r\n",
    "no such version": b"GET /runs HTTP/9.9\r\n{host}\r\n",
    "no such method": b"G\xc3\xa9T /runs HTTP/1.1\r\n{host}\r\n",
    "no path": b"GET  HTTP/1.1\r\n{host}\r\n",
    "a star": b"OPTIONS * HTTP/1.1\r\n{host}\r\n",
    "an authority": b"CONNECT evil.example:80 HTTP/1.1\r\n{host}\r\n",
    "NUL in the path": b"GET /ru\x00ns HTTP/1.1\r\n{host}\r\n",
    "a long line": b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n{host}\r\n",
    "a line of a megabyte": b"GET /" + b"x" * 2**20,
    "a long header": b"GET /runs HTTP/1.1\r\n{host}X: " + b"x" * 100_000 + b"\r\n\r\n",
    "many headers": b"GET /runs HTTP/1.1\r\n{host}" + b"X: 1\r\n" * 1_000 + b"\r\n",
    "many parameters": b"GET /runs?" + b"a=1&" * 1_900 + b" HTTP/1.1\r\n{host}\r\n",
    "a folded header": b"GET /runs HTTP/1.1\r\n{host}X: 1\r\n Host: evil\r\n\r\n",
    "a space before the colon": b"POST /runs HTTP/1.1\r\n{host}Content-Length : 5\r\n\r\n12345",
    "NUL in a header": b"GET /runs HTTP/1.1\r\n{host}X: \x00\r\n\r\n",
    "no size": b"POST /runs HTTP/1.1\r\n{host}{json}Content-Length: x\r\n\r\n",
    "a negative size": b"POST /runs HTTP/1.1\r\n{host}{json}Content-Length: -1\r\n\r\n",
    "a size with a sign": b"POST /runs HTTP/1.1\r\n{host}{json}Content-Length: +2\r\n\r\n{}",
    "a size of 5,000 digits": b"POST /runs HTTP/1.1\r\n{host}{json}Content-Length: "
    + b"9" * 5_000
    + b"\r\n\r\n",
    "two sizes": b"POST /runs HTTP/1.1\r\n{host}{json}Content-Length: 2\r\n"
    b"Content-Length: 9\r\n\r\n{}",
    "a size and chunks": b"POST /runs HTTP/1.1\r\n{host}{json}Content-Length: 2\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "another coding": b"POST /runs HTTP/1.1\r\n{host}{json}Transfer-Encoding: gzip\r\n\r\n{}",
    "no size of a chunk": b"POST /runs HTTP/1.1\r\n{host}{json}{chunked}x\r\n{}\r\n0\r\n\r\n",
    "a negative chunk": b"POST /runs HTTP/1.1\r\n{host}{json}{chunked}-2\r\n{}\r\n0\r\n\r\n",
    "a chunk that is longer": b"POST /runs HTTP/1.1\r\n{host}{json}{chunked}1\r\n{}\r\n0\r\n\r\n",
    "a chunk without an end": b"POST /runs HTTP/1.1\r\n{host}{json}{chunked}" + b"1" * 100_000,
    "a broken trailer": b"POST /runs HTTP/1.1\r\n{host}{json}{chunked}2\r\n{}\r\n0\r\nX\r\n\r\n",
    "an empty line": b"\r\n" * 1_000,
    "TLS": bytes.fromhex("16030100c8010000c40303") + b"\x00" * 200,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize(
    "name",  # the functions have one kind of server, the double has another
    ["serve_api", pytest.param("execute_step", marks=pytest.mark.nightly), "tasks"],
)
def test_an_invalid_request_is_refused_and_harms_nothing(
    places: dict[str, Place], capfd: pytest.CaptureFixture[str], name: str, sent: bytes
) -> None:
    place = places[name]
    parts = {
        b"{host}": f"Host: 127.0.0.1:{place.port}\r\n".encode(),
        b"{json}": b"Content-Type: application/json\r\n",
        b"{chunked}": b"Transfer-Encoding: chunked\r\n\r\n",
    }
    for mark, text in parts.items():
        sent = sent.replace(mark, text)

    with socket.create_connection(("127.0.0.1", place.port), timeout=20) as connection:
        with suppress(OSError):  # it may be closed before all of it is sent
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            answered = connection.recv(65536)
            assert not re.match(rb"HTTP/1.[01] [1235]", answered), answered[:300]

    assert ask(place, "GET").status < 500
    assert "Traceback" not in capfd.readouterr().err


def test_two_hosts_are_none(places: dict[str, Place]) -> None:
    place = places["serve_api"]
    ours, theirs = f"127.0.0.1:{place.port}", "evil.example"

    for first, second in ((ours, theirs), (theirs, ours)):
        lines = f"GET /runs HTTP/1.1\r\nHost: {first}\r\nHost: {second}\r\n\r\n"
        assert re.match(rb"HTTP/1.[01] (403|400) ", raw(place, lines.encode()))


@pytest.mark.parametrize("header", ["SCRIPT_NAME: /runs", "PATH_INFO: /health", "REMOTE_USER: ada"])
def test_no_header_says_where_the_application_is_mounted(
    places: dict[str, Place], header: str
) -> None:
    place = places["serve_api"]
    lines = f"GET /runs HTTP/1.1\r\nHost: 127.0.0.1:{place.port}\r\n{header}\r\n\r\n"

    answered = raw(place, lines.encode())

    assert re.match(rb"HTTP/1.[01] (200|400) ", answered), answered[:200]


def raw(place: Place, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", place.port), timeout=20) as connection:
        connection.sendall(sent)
        return connection.recv(65536)


BROKEN = {
    "nothing": b"",
    "half a line": b"POST /ru",
    "half the headers": b"POST /runs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX: ",
    "the headers alone": b"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n",
    "half a body": b"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    b'Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"pipeline":',
    "half a chunk": b"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n{",
}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize(
    "name", [pytest.param("serve_api", marks=pytest.mark.nightly), "manage_lease", "tasks"]
)
def test_requests_that_never_end_keep_no_caller_out(
    places: dict[str, Place], name: str, sent: bytes
) -> None:
    place = places[name]
    text = sent.replace(b"{port}", str(place.port).encode()).replace(b"{path}", place.path.encode())
    held = [socket.create_connection(("127.0.0.1", place.port), timeout=20) for _ in range(24)]
    try:
        for connection in held:
            connection.sendall(text)
        began = time.monotonic()
        answered = posted(place)
        took = time.monotonic() - began
    finally:
        for connection in held:
            connection.close()

    assert answered.status < 500
    assert took < 5


def test_a_request_that_broke_off_changes_nothing(places: dict[str, Place]) -> None:
    """What came of a body may be JSON: nothing at all stands for an empty object."""
    place = places["serve_api"]
    run_id = json.loads(posted(place).error)["runId"]
    lines = (
        f"POST /runs/{run_id}:pause HTTP/1.1\r\nHost: 127.0.0.1:{place.port}\r\n"
        "Content-Type: application/json\r\nContent-Length: 30\r\n\r\n"
    )

    for half in ("", "{}"):
        with socket.create_connection(("127.0.0.1", place.port), timeout=20) as connection:
            connection.sendall(f"{lines}{half}".encode())
            connection.shutdown(socket.SHUT_WR)
            answer = http.client.HTTPResponse(connection)
            answer.begin()

            assert answer.status == 400
            assert b"of 30 bytes" in answer.read()
    run = json.loads(ask(place._replace(path=f"/runs/{run_id}"), "GET").error)
    assert not run["paused"]


@pytest.mark.skipif(sys.platform != "linux", reason="the memory is read from /proc")
@pytest.mark.cover(1)
@pytest.mark.parametrize(
    "name",
    ["serve_api", "execute_step", pytest.param("manage_lease", marks=pytest.mark.nightly), "tasks"],
)
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_any_size_takes_no_memory_and_gets_its_answer(
    server: DevServer, places: dict[str, Place], name: str, *, chunked: bool
) -> None:
    if chunked and name == "tasks":
        pytest.skip("the double takes no chunks")
    place, process = places[name], worker_of(server, name)
    before = peak(process)
    blocks = (b" " * BLOCK for _ in range(LARGE // BLOCK))
    sized = {} if chunked else {"Content-Length": str(LARGE)}
    connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=60)
    connection.request("POST", place.path, blocks, JSON | sized, encode_chunked=chunked)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()

    assert answer.status in {400, 413}, text
    assert "limit" in text or "at most" in text
    assert peak(process) - before < 60 * 2**20


def worker_of(server: DevServer, name: str) -> list[Path]:
    """Return what tells of the processes that answer: the double is in this one."""
    masters = {
        it.function.name: it._servers[-1].pid  # noqa: SLF001 - it is looked at from outside
        for it in server._processes  # noqa: SLF001
    }
    if name not in masters:
        return [Path("/proc/self/status")]
    parent = f"PPid:\t{masters[name]}\n"
    return [it for it in Path("/proc").glob("[0-9]*/status") if parent in it.read_text()]


def peak(process: list[Path]) -> int:
    """Return the most memory that one of them ever had, in bytes."""
    found = [re.search(r"VmHWM:\s+(\d+) kB", it.read_text()) for it in process]
    return max(int(it[1]) * 1024 for it in found if it)
