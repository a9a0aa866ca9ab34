"""A function as Cloud Run starts it: what its server makes of odd headers is checked as well."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.worlds.function_process import function_process
from tests.worlds.tokens import claims, removed
from tests.worlds.waiting import until

PERSON = removed(claims(email="ann@example.com", aud="32555940559.apps.googleusercontent.com"))
BAD = "Authorization: Bearer x.y.z"


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    """Where `serve_api` is served; its store is not opened for what is asked here."""
    own = {
        "K_SERVICE": "serve-api",
        "LEASEHOLD_CALLERS": "iam",
        "LEASEHOLD_STORE": "firestore://project/database",
        "LEASEHOLD_ARTIFACTS": "gs://bucket/prefix",
        "LEASEHOLD_TASKS": "cloud-tasks://project/location",
        "LEASEHOLD_FUNCTION_URL": "https://execute-step-1.europe-west1.run.app",
        "LEASEHOLD_TASK_ACCOUNT": "tasks@project.iam.gserviceaccount.com",
    }
    with function_process({**os.environ, **own}, "serve_api") as url:
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        found = parts.hostname, parts.port
        until(lambda: _is_there(found), 60)
        yield found


def _is_there(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True


def answer_to(address: tuple[str, int], *lines: str) -> str:
    """Return the status line of the answer to these bytes; nothing more is sent."""
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall("".join(f"{line}\r\n" for line in lines).encode("latin-1"))
        return connection.makefile("rb").readline().decode().split(" ", 1)[1][:3]


def status_of(address: tuple[str, int], *headers: str) -> int:
    """Return the status of GET /health with these lines, as they are."""
    lines = ["GET /health HTTP/1.1", f"Host: {address[0]}", "Connection: close", *headers]
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1"))
        head = connection.makefile("rb").readline()
    return int(head.split()[1])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([f"Authorization: Bearer {PERSON}"], 200),
        ([f"authorization: Bearer {PERSON}"], 200),
        ([f"X-Serverless-Authorization: Bearer {PERSON}", BAD], 200),
        ([], 401),
        ([BAD], 401),
        ([f"Authorization: Bearer {PERSON}"] * 2, 401),
        ([BAD, f"Authorization: Bearer {PERSON}"], 401),
        # WSGI has one name for both; what nobody has checked must not take the place of the other.
        ([BAD, f"X_Serverless_Authorization: Bearer {PERSON}"], 401),
        ([f"Authorization : Bearer {PERSON}"], 400),
        ([BAD, f" Bearer {PERSON}"], 400),
        (["X-Forwarded-For: 127.0.0.1", "X-CloudTasks-QueueName: add"], 401),
        ([f"Authorization: Bearer {'a' * 100_000}"], 431),
    ],
)
def test_headers_that_a_server_changes_let_no_caller_in(
    address: tuple[str, int], headers: list[str], status: int
) -> None:
    assert status_of(address, *headers) == status


POST = ("POST /runs HTTP/1.1", "Host: x", f"Authorization: Bearer {PERSON}")
CHUNKED = "Transfer-Encoding: chunked"
NOTHING = ("", "0", "", "")


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ((*POST, "Content-Length: 2", CHUNKED, *NOTHING), "400"),
        ((*POST, "Content-Length: 2", "Content-Length: 16", "", "{}"), "400"),
        ((*POST, "Content-Length: +2", "", "{}"), "400"),
        ((*POST, "Content-Length: -2", "", "{}"), "400"),
        ((*POST, "X-A: b", " c", "Content-Length: 2", "", "{}"), "400"),
        ((*POST, "X-A: b\rX-C: d", "Content-Length: 2", "", "{}"), "400"),
        ((*POST, "X A: b", "Content-Length: 2", "", "{}"), "400"),
        ((*POST, f"X-A: {'a' * 200_000}", ""), "431"),
        ((*POST, *(f"X-{number}: a" for number in range(200)), ""), "431"),
        ((*POST, "Transfer-Encoding: chunked, identity", *NOTHING), "400"),
        ((*POST, "Transfer-Encoding: gzip, chunked", *NOTHING), "415"),
        ((*POST, CHUNKED, "", "-1", "", ""), "400"),
        ((POST[0], POST[1], CHUNKED, "", "0", POST[2], "", ""), "401"),
        # a stranger, and somebody whose body is too large: neither sends it
        ((*POST[:2], "Content-Length: 1000000", "", ""), "401"),
        ((*POST, "Content-Length: 99999999999999999999", "", "{"), "413"),
    ],
    ids=lambda it: "" if isinstance(it, str) else it[2][:12] + "|".join(it[3:])[:40],
)
def test_a_body_without_a_clear_end_stops_no_caller(
    address: tuple[str, int], lines: tuple[str, ...], status: str
) -> None:
    assert answer_to(address, *lines) == status
