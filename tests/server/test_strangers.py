"""What those who can reach the port, or send a person's browser to it, cannot do."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from leasehold.server import http_server
from leasehold.server.server import Server
from tests.server.conftest import Api
from tests.waiting import until

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
    """Whoever can reach it is let in there, as --host says; a browser is still not to be used."""
    api = Api(serve(host="0.0.0.0").url.replace("0.0.0.0", "127.0.0.1"))  # noqa: S104 - that is it

    assert api.ask("GET", "/runs", Host="pipelines.internal").status == 200
    own = {"Host": "pipelines.internal", "Origin": "https://pipelines.internal"}
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


def test_callers_that_never_end_keep_nobody_out(api: Api, crowd: list[socket.socket]) -> None:
    assert len(crowd) > http_server.THREADS

    assert api.post("/runs", RUN)["pipeline"] == "three"


def test_a_request_that_trickles_is_broken_off(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[..., Server]
) -> None:
    """A byte now and then is no activity: the time is that of the whole request."""
    monkeypatch.setattr(http_server, "REQUEST_S", 0.3)
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
