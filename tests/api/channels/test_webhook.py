"""A webhook is signed as its standard says, and each way it can end is told from the others."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import timedelta
from http.server import BaseHTTPRequestHandler

import pytest
import trustme
from standardwebhooks import Webhook, WebhookVerificationError

from leasehold import WebhookChannel
from leasehold.adapters.channels import webhook
from leasehold.adapters.clock import SystemClock
from leasehold.errors import (
    ChannelRefusedError,
    ChannelUnansweredError,
    ChannelUnavailableError,
    LeaseholdError,
)
from tests.api.channels.web_server import WebServer, answering, breaking_off, serving
from tests.worlds.deliveries import KEY, NOW, SHORT_S, TIMEOUT_S, delivery, opener
from tests.worlds.ports import own_port

TEAM = WebhookChannel(name="team", url_variable="TEAM_URL", secret_variable="TEAM_SECRET")  # noqa: S106 - a name
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()


def environ_of(server: WebServer, secret: str = SECRET) -> dict[str, str]:
    return {"TEAM_URL": f"http://127.0.0.1:{server.port}/in?a=1", "TEAM_SECRET": secret}


def refused_by(server: WebServer, timeout: float = TIMEOUT_S) -> LeaseholdError:
    with pytest.raises(LeaseholdError) as refused:
        opener(environ_of(server))(TEAM).send(delivery(), timeout=timeout)
    return refused.value


def test_what_arrives_is_verified_by_the_standards_own_library(server: WebServer) -> None:
    opener(environ_of(server), clock=SystemClock())(TEAM).send(delivery(), timeout=TIMEOUT_S)

    (request,) = server.requests
    message = Webhook(SECRET).verify(request.body.decode(), dict(request.headers))
    assert request.path == "/in?a=1"
    assert request.headers["webhook-id"] == message["id"] == KEY
    assert message["type"] == "leasehold.run_blocked"
    assert message["data"]["summary"] == delivery().summary
    assert message["data"]["links"]["why"] == "https://shop.example/runs/letters-1/why"
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(request.body.decode(), dict(request.headers))


def test_a_new_secret_is_brought_in_beside_the_old_one(server: WebServer) -> None:
    opener(environ_of(server, f"{OTHER} {SECRET}"))(TEAM).send(delivery(), timeout=TIMEOUT_S)

    (request,) = server.requests
    first, second = request.headers["webhook-signature"].split()
    timestamp = str(int(NOW.timestamp()))
    keys = [base64.b64decode(secret.removeprefix("whsec_")) for secret in (OTHER, SECRET)]
    assert [first, second] == [
        webhook.signatures([key], KEY, timestamp, request.body) for key in keys
    ]


def test_each_try_has_the_same_id(server: WebServer) -> None:
    """It is what a receiver knows a repetition by; the time that is signed is that of the try."""
    sender = opener(environ_of(server))(TEAM)
    for token in (1, 2):
        sender.send(delivery(token=token, tries=token), timeout=TIMEOUT_S)
    sender.send(delivery(round=2), timeout=TIMEOUT_S)

    assert [it.headers["webhook-id"] for it in server.requests] == [KEY, KEY, f"{KEY}:2"]


@pytest.mark.parametrize("status", [401, 403, 404, 410, 301, 308])
def test_what_no_other_try_changes_is_a_refusal(server: WebServer, status: int) -> None:
    server.answer = answering(status, Location=f"http://127.0.0.1:{server.port}/elsewhere")

    error = refused_by(server)

    assert type(error) is ChannelRefusedError
    assert f"127.0.0.1 answered {status}" in error.message
    assert [it.path for it in server.requests] == ["/in?a=1"]  # and nothing is followed


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, ChannelUnavailableError),
        (307, ChannelUnavailableError),
        (400, ChannelUnavailableError),
        (429, ChannelUnavailableError),
        (500, ChannelUnavailableError),
        (503, ChannelUnavailableError),
        (502, ChannelUnansweredError),
        (504, ChannelUnansweredError),
    ],
)
def test_anything_else_may_be_taken_later(
    server: WebServer, status: int, kind: type[ChannelUnavailableError]
) -> None:
    server.answer = answering(status)

    error = refused_by(server)

    assert type(error) is kind
    assert error.retry_after is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120),
        ("0", 0),
        ("99999999", 3600),
        ("Sun, 22 Nov 2026 12:00:30 GMT", 30),
        ("Sun, 22 Nov 2026 11:00:00 GMT", 0),
        ("Mon, 23 Nov 2026 12:00:00 GMT", 3600),
        ("Sun, 22 Nov 2026 12:00:30", None),
        ("soon", None),
        ("-1", None),
        ("9" * 5000, None),
    ],
)
def test_it_is_waited_for_as_long_as_it_asks_but_no_longer_than_an_hour(
    server: WebServer, text: str, seconds: float | None
) -> None:
    server.answer = answering(503, Retry_After=text)

    error = refused_by(server)

    assert isinstance(error, ChannelUnavailableError)
    assert error.retry_after == (None if seconds is None else timedelta(seconds=seconds))


def _garbage(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"220 mail.example ESMTP\r\n")


def _half(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 20")


@pytest.mark.parametrize("answer", [breaking_off, _garbage, _half])
def test_without_an_answer_it_is_unknown_whether_it_was_taken(
    server: WebServer, answer: Callable[[BaseHTTPRequestHandler], None]
) -> None:
    server.answer = answer

    assert type(refused_by(server)) is ChannelUnansweredError
    assert len(server.requests) == 1


@pytest.mark.parametrize("way", ["silent", "dripping"])
def test_a_server_that_never_ends_its_answer_blocks_nothing(server: WebServer, way: str) -> None:
    """The time is that of the whole call: a byte now and then does not lengthen it."""
    server.answer = getattr(server, way)

    for timeout in SHORT_S:
        error = refused_by(server, timeout)
        if server.requests:
            break

    assert type(error) is ChannelUnansweredError
    assert f"no answer within {timeout:g} s" in error.message


def test_a_name_server_that_never_answers_blocks_nothing(server: WebServer) -> None:
    """And as nothing was sent, nothing is unknown; nor is it sent once its caller has given up."""

    def resolve(host: str, port: int) -> list[str]:
        server.ending.wait(60)
        return ["127.0.0.1"]

    sender = opener(environ_of(server), resolve=resolve)(TEAM)

    with pytest.raises(ChannelUnavailableError) as refused:
        sender.send(delivery(), timeout=0.1)

    assert type(refused.value) is ChannelUnavailableError
    assert server.requests == []


def test_a_refused_connection_is_not_an_unknown_result() -> None:
    environ = environ_of(WebServer(own_port()))

    with pytest.raises(ChannelUnavailableError) as refused:
        opener(environ)(TEAM).send(delivery(), timeout=TIMEOUT_S)

    assert type(refused.value) is ChannelUnavailableError
    assert "Connection refused" in refused.value.message


@pytest.mark.parametrize(
    "secret", ["", "secret", "whsec_", "whsec_%%%", "whsec_c2hvcnQ=", "whsec_" + "QUFB" * 30]
)
def test_a_secret_that_signs_nothing_is_said_without_it(server: WebServer, secret: str) -> None:
    with pytest.raises(ChannelUnavailableError, match="TEAM_SECRET is not") as refused:
        opener(environ_of(server, secret))(TEAM).send(delivery(), timeout=TIMEOUT_S)

    assert not secret or secret not in refused.value.message.replace("whsec_ and", "")
    assert server.requests == []


# -- TLS ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "problem"),
    [("hooks.shop.example", None), ("other.example", "certificate is not accepted: Hostname mism")],
)
def test_the_server_has_to_prove_that_it_is_the_host(
    trusted: trustme.CA, name: str, problem: str | None
) -> None:
    """The connection is made to an address; the certificate is that of the name."""
    with serving(trusted.issue_cert(name)) as server:
        url = f"https://hooks.shop.example:{server.port}/in"
        sender = opener({"TEAM_URL": url, "TEAM_SECRET": SECRET}, resolve=lambda *_: ["127.0.0.1"])(
            TEAM
        )
        if problem is None:
            sender.send(delivery(), timeout=TIMEOUT_S)
        else:
            with pytest.raises(ChannelUnavailableError, match=problem):
                sender.send(delivery(), timeout=TIMEOUT_S)

    hosts = [request.headers["Host"] for request in server.requests]
    assert hosts == ([] if problem else [f"hooks.shop.example:{server.port}"])


def test_a_self_signed_certificate_is_not_accepted() -> None:
    own = trustme.CA().issue_cert("127.0.0.1")
    with serving(own) as server:
        environ = {"TEAM_URL": f"https://127.0.0.1:{server.port}/", "TEAM_SECRET": SECRET}
        with pytest.raises(ChannelUnavailableError, match="its certificate is not accepted"):
            opener(environ)(TEAM).send(delivery(), timeout=TIMEOUT_S)

    assert server.requests == []
