"""Who may call a `leasehold serve` that asks: by tokens, a proxy's header, sessions of browsers."""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from flask import Request as FlaskRequest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug import Request
from werkzeug.test import EnvironBuilder

from examples.remote_worker.worker import Leases, RefusedError
from leasehold.client.client import Client
from leasehold.errors import (
    CallerNotAllowedError,
    SettingError,
    UnauthenticatedError,
    UnsetSettingError,
)
from leasehold.registry.settings import read_settings
from leasehold.server.server import Server
from leasehold.testing import FrozenClock
from leasehold.web.sign_in import ServerCallers, _Guesses
from tests.api.server.conftest import long_leases, serving
from tests.worlds.ports import own_port

TOKEN = "an-operator-s-secret-of-tests"  # noqa: S105 - of tests
VIEWER = "a-viewer-s-token-of-the-tests"
BOTH = {"LEASEHOLD_TOKEN": TOKEN, "LEASEHOLD_VIEWER_TOKEN": VIEWER}
HEADER = {"LEASEHOLD_IDENTITY_HEADER": "X-Forwarded-User"}
#: A run that waits for a remote worker, until it is cancelled.
RUN = {"pipeline": "away", "input": {"n": 1}}
CLAIM = {"stepType": "away", "holder": "me"}
PAGE = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}

Serve = Callable[..., Server]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str

    @property
    def error(self) -> str:
        code: str = json.loads(self.text)["error"]["code"]
        return code


def ask(
    server: Server,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: Any = None,
) -> Answer:
    """Send a request with these headers alone; a body other than a text is sent as JSON."""
    port = int(server.url.rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    sent = dict(headers or {})
    if body is not None and not isinstance(body, str):
        body, sent = json.dumps(body), {"Content-Type": "application/json", **sent}
    try:
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        given = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, given, answer.read().decode())
    finally:
        connection.close()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def own(server: Server) -> dict[str, str]:
    """Return what a browser says of a request that a page of the server made."""
    return {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}


def form(server: Server, path: str, headers: dict[str, str] | None = None, **fields: str) -> Answer:
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    return ask(server, "POST", path, own(server) | kind | (headers or {}), urlencode(fields))


def cookie_of(answer: Answer) -> dict[str, str]:
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that asks for tokens; no test that shares it changes a run, or guesses often."""
    with serving(long_leases(tmp_path_factory.mktemp("asking"))) as start:
        yield start(**BOTH)


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server behind a proxy; the same holds."""
    with serving(long_leases(tmp_path_factory.mktemp("proxied"))) as start:
        yield start(**HEADER)


#: What a stranger may ask for; who calls without any token asks for all of it.
PATHS = [
    *(("GET", path) for path in ("/", "/runs", "/runs/r-none", "/ready", "/openapi.json")),
    *(("GET", path) for path in ("/health/", "/nowhere", "/static", "/sign-in/x")),
    *(("POST", path) for path in ("/runs", "/leases:claim", "/health", "/assets/x", "/sweep")),
]


# -- programs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("not-the-token-of-this-one"),
        bearer(TOKEN[:-1]),
        bearer(TOKEN + "x"),
        bearer(TOKEN.upper()),
        bearer(""),
        bearer("\xe9" * 30),
        bearer(f"{TOKEN}, Bearer {TOKEN}"),
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
        {"X-Serverless-Authorization": f"Bearer {TOKEN}"},
        {"X-Forwarded-User": "ann"},
        {"X-Forwarded-For": "127.0.0.1"},
        {"X-Leasehold-Actor": "operator"},
        {"Cookie": f"leasehold-session-8080={TOKEN}"},
        {"Cookie": "leasehold-session-8080=operator.99999999999.0.0"},
        {"Cookie": "leasehold-session-8080=operator.x.0.0; leasehold-session-1=....."},
    ],
    ids=str,
)
def test_without_the_token_nothing_is_read_and_nothing_changed(
    serve: Serve, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(**BOTH)

    for method, path in PATHS if not headers else PATHS[1::4]:
        refused = ask(server, method, path, headers, RUN if method == "POST" else None)

        assert (refused.status, refused.error) == (401, "unauthenticated"), path
        assert refused.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in refused.text
    assert TOKEN not in caplog.text
    assert json.loads(ask(server, "GET", "/runs", bearer(TOKEN)).text)["runs"] == []


def test_with_the_token_a_program_does_everything(serve: Serve) -> None:
    server = serve(**BOTH)

    started = ask(server, "POST", "/runs", bearer(TOKEN), RUN)
    run_id = json.loads(started.text)["runId"]
    assert started.status == 201
    for way in (bearer(TOKEN), {"Authorization": f"bearer  {TOKEN}"}):
        assert ask(server, "GET", f"/runs/{run_id}", way).status == 200
    claim = CLAIM | {"stepType": "add"}
    assert ask(server, "POST", "/leases:claim", bearer(TOKEN), claim).status == 400
    assert ask(server, "GET", "/ready", bearer(TOKEN)).status == 200


def test_with_the_token_of_viewers_a_program_reads_and_changes_nothing(serve: Serve) -> None:
    server = serve(**BOTH)

    assert ask(server, "GET", "/runs", bearer(VIEWER)).status == 200
    span = {"first": "2026-01-01", "last": "2026-01-02"}
    calls = {
        "/runs": RUN,
        "/leases:claim": CLAIM,
        "/sweep": {},
        "/runs/r-none:cancel": {},
        "/runs/r-none/signals/go": {"value": 1},
        "/pauses:set": {"all": True, "why": "x"},
        "/pauses:clear": {"all": True},
        "/schedules/nightly:trigger": {},
        "/schedules/nightly:backfill": span,
    }
    for path, body in calls.items():
        refused = ask(server, "POST", path, bearer(VIEWER), body)

        assert (refused.status, refused.error) == (403, "caller_not_allowed"), path
        assert "viewer may read, and this call takes the right to c" in refused.text


def test_service_managers_ask_without_a_token_whether_the_process_runs(asking: Server) -> None:
    assert ask(asking, "GET", "/health").text == '{"status":"ok"}'


def test_the_trace_has_the_token_s_role_behind_the_name_that_a_caller_gives(serve: Serve) -> None:
    server = serve(**BOTH)
    run_id = json.loads(ask(server, "POST", "/runs", bearer(TOKEN), RUN).text)["runId"]

    for actor, path in (("ann@laptop", "pause"), ("", "resume")):
        headers = bearer(TOKEN) | ({"X-Leasehold-Actor": actor} if actor else {})
        ask(server, "POST", f"/runs/{run_id}:{path}", headers, {})

    trace = ask(server, "GET", f"/runs/{run_id}/trace", bearer(TOKEN)).text
    assert re.findall(r'"actor":"([^"]*)"', trace) == ["ann@laptop via operator", "operator"]


def test_a_body_of_a_stranger_is_not_waited_for(asking: Server) -> None:
    port = int(asking.url.rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest("POST", "/runs:batch")
    connection.putheader("Content-Length", str(2**30))
    connection.endheaders()

    assert connection.getresponse().status == 401
    connection.close()


def test_without_a_token_this_machine_is_served_as_ever(serve: Serve) -> None:
    server = serve()

    assert ask(server, "POST", "/runs", None, RUN).status == 201
    assert ask(server, "POST", "/runs", bearer("some-token-that-is-set"), RUN).status == 201
    assert ask(server, "GET", "/sign-in").status == 404


def test_too_many_wrong_tokens_of_an_address_are_slowed_and_sessions_go_on(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While they are, the right token is refused as well: else the answers would tell it."""
    monkeypatch.setattr(_Guesses, "GUESSES_PER_S", 0.0)
    server = serve(**BOTH)
    session = cookie_of(form(server, "/sign-in", token=TOKEN))

    answers = [ask(server, "GET", "/runs", bearer("w" * 20)).status for _ in range(60)]

    assert answers == [401] * 50 + [429] * 10
    right = ask(server, "GET", "/runs", bearer(TOKEN))
    assert (right.status, right.error) == (429, "too_many_attempts")
    assert right.headers["retry-after"] == "1"
    assert form(server, "/sign-in", token=TOKEN).status == 429
    assert ask(server, "GET", "/runs", session).status == 200


def test_a_form_is_a_guess_too_and_a_network_of_ipv6_counts_as_one_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stranger with one address of it has as many as it likes."""
    monkeypatch.setattr(_Guesses, "GUESSES_PER_S", 0.0)
    server = callers(**BOTH)

    def status_of(address: str) -> int:
        headers = {"Sec-Fetch-Site": "same-origin"}
        sent = EnvironBuilder("/sign-in", method="POST", data={"token": "w"}, headers=headers)
        answer = server.answer(FlaskRequest(sent.get_environ() | {"REMOTE_ADDR": address}))
        return 0 if answer is None else answer.status_code

    statuses = [status_of(f"2001:db8::{number:x}") for number in range(60)]

    assert statuses == [401] * 50 + [429] * 10
    assert status_of("2001:db8:0:1::1") == 401


def test_wrong_tokens_of_any_number_of_addresses_take_no_memory() -> None:
    guesses = _Guesses()

    for number in range(3000):
        guesses.note_wrong(str(number))

    assert len(guesses._wrong) == guesses.MAX_PEERS  # noqa: SLF001 - that is it


# -- a proxy that signs people in ------------------------------------------------------------------


def test_a_proxy_says_who_it_is_and_the_trace_has_the_name(serve: Serve) -> None:
    server = serve(**HEADER)
    ann = {"X-Forwarded-User": "J\xc3\xbcrgen"}

    assert ask(server, "GET", "/runs").status == 401
    assert ask(server, "GET", "/health").status == 200
    run_id = json.loads(ask(server, "POST", "/runs", ann, RUN).text)["runId"]
    ask(server, "POST", f"/runs/{run_id}:pause", ann, {})
    trace = ask(server, "GET", f"/runs/{run_id}/trace", ann).text
    assert re.findall(r'"actor":"([^"]*)"', trace) == ["Jürgen"]


@pytest.mark.parametrize(
    "value",
    ["", " ", "ann,eve", "ann, eve", "x" * 1000, "a\tb", "\xe2\x80\xae"],
    ids=repr,
)
def test_a_name_that_a_trace_cannot_show_is_no_sign_in(proxied: Server, value: str) -> None:
    """Two headers of one name arrive as one with a comma: a proxy that only adds its own."""
    assert ask(proxied, "GET", "/runs", {"X-Forwarded-User": value}).status == 401


def test_what_all_pages_share_is_read_without_a_sign_in_and_leads_nowhere_else(
    asking: Server,
) -> None:
    for path in ("/assets/x", "/assets/../runs", "/assets/%2e%2e/runs", "/assets//runs"):
        assert ask(asking, "GET", path).status == 404, path


def test_a_header_whose_name_a_proxy_does_not_know_as_its_own_is_none(proxied: Server) -> None:
    assert ask(proxied, "GET", "/runs", {"X_Forwarded_User": "ann"}).status == 401


def test_who_came_by_the_proxy_has_the_rights_of_the_setting(serve: Serve) -> None:
    server = serve(**HEADER, LEASEHOLD_RIGHTS="ann=operator,bob@example.com=viewer")

    def status(name: str, method: str = "GET") -> int:
        body = RUN if method == "POST" else None
        return ask(server, method, "/runs", {"X-Forwarded-User": name}, body).status

    assert (status("ann"), status("ann", "POST")) == (200, 201)
    assert (status("bob@example.com"), status("bob@example.com", "POST")) == (200, 403)
    assert (status("eve"), status("Ann")) == (403, 403)


def test_a_token_and_a_proxy_each_let_in_and_other_sign_ins_are_the_proxy_s(serve: Serve) -> None:
    server = serve(**BOTH, **HEADER, LEASEHOLD_RIGHTS="ann=viewer")
    ann = {"X-Forwarded-User": "ann"}

    assert ask(server, "POST", "/runs", bearer(TOKEN), RUN).status == 201
    assert ask(server, "POST", "/runs", ann, RUN).status == 403
    assert ask(server, "GET", "/runs", ann | {"Authorization": "Basic YW5uOng="}).status == 200
    assert ask(server, "GET", "/runs", ann | bearer("the-token-of-another-one")).status == 200


# -- browsers --------------------------------------------------------------------------------------


def test_a_browser_gets_a_page_to_sign_in_that_leads_back(serve: Serve) -> None:
    server = serve(**BOTH)

    page = ask(server, "GET", "/runs?label=a%3D1&x=%22%3E%3Cscript%3E", PAGE)

    assert page.status == 401
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["referrer-policy"] == "same-origin"
    assert "<script" not in page.text
    assert 'name="token" type="password"' in page.text
    (path,) = re.findall(r'name="next" value="([^"]*)"', page.text)
    assert path == "/runs?label=a%3D1&amp;x=%22%3E%3Cscript%3E"
    answer = form(server, "/sign-in", token=TOKEN, next="/runs?label=a%3D1")
    assert (answer.status, answer.headers["location"]) == (303, "/runs?label=a%3D1")
    assert answer.headers["cache-control"] == "no-store"


def test_a_session_s_cookie_is_for_this_server_s_pages_alone_and_has_no_token(serve: Serve) -> None:
    server = serve(**BOTH)
    port = server.url.rpartition(":")[2]

    answer = form(server, "/sign-in", token=f" {TOKEN}\n", next="/")

    name, *parts = answer.headers["set-cookie"].split("; ")
    assert name.startswith(f"leasehold-session-{port}=operator.")
    assert TOKEN not in name
    assert {"HttpOnly", "Path=/", "SameSite=Strict", "Max-Age=43200"} <= set(parts)
    assert "Secure" not in parts
    tls = {"Host": "runs.example.com", "Origin": "https://runs.example.com"}
    assert "Secure" in _open_server(serve, tls).headers["set-cookie"]


def _open_server(serve: Serve, headers: dict[str, str]) -> Answer:
    """Return the answer to a sign-in behind a proxy that speaks TLS."""
    server = serve(host="0.0.0.0", **BOTH)  # noqa: S104 - that is it
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    return ask(server, "POST", "/sign-in", headers | kind, urlencode({"token": TOKEN}))


def test_a_session_reads_and_changes_from_pages_of_this_server_alone(serve: Serve) -> None:
    server = serve(**BOTH)
    session = cookie_of(form(server, "/sign-in", token=TOKEN))

    assert ask(server, "GET", "/runs", session).status == 200
    assert ask(server, "POST", "/runs", session | own(server), RUN).status == 201
    foreign: list[dict[str, str]] = [
        *({"Sec-Fetch-Site": site} for site in ("cross-site", "same-site", "none")),
        *({"Origin": origin} for origin in ("https://evil.example", "null")),
        {},
    ]
    for headers in foreign:
        assert ask(server, "POST", "/runs", session | headers, RUN).status == 403, headers


def test_a_form_of_a_session_that_is_over_leads_to_the_sign_in(asking: Server) -> None:
    """And from there back to its page, where the person does it again."""
    page = form(asking, "/runs/r-none:cancel", reason="x")

    assert page.status == 401
    assert 'name="next" value="/"' in page.text
    assert "Nothing was changed" in page.text


@pytest.mark.parametrize(
    ("referer", "leads_to"),
    [
        ("http://127.0.0.1/runs/r-none?a=b#c", "/runs/r-none?a=b"),
        ("http://127.0.0.1//evil.example/x", "/"),
        ("http://127.0.0.1:no", "/"),
        ("http://[", "/"),
        ("\x00\xff", "/"),
    ],
)
def test_a_sign_in_leads_back_to_the_page_of_a_form_and_nowhere_else(
    referer: str, leads_to: str
) -> None:
    body = {"method": "POST", "content_type": "application/x-www-form-urlencoded", "data": "a=b"}
    headers = {"Referer": referer, "Sec-Fetch-Site": "same-origin"}
    request = Request(EnvironBuilder("/runs/r-none:cancel", headers=headers, **body).get_environ())

    page = STRANGERS.refusal_of(request)

    assert page is not None
    assert page.status_code == 401
    assert f'name="next" value="{leads_to}"' in page.get_data(as_text=True)


def test_a_viewer_s_session_changes_nothing(serve: Serve) -> None:
    server = serve(**BOTH)
    session = cookie_of(form(server, "/sign-in", token=VIEWER))

    assert ask(server, "GET", "/runs", session).status == 200
    assert ask(server, "POST", "/runs", session | own(server), RUN).status == 403
    for path in ("/registry", "/schedules"):
        page = ask(server, "GET", path, session | {"Accept": "text/html"}).text
        assert re.findall(r'<form method="post" action="([^"]*)"', page) == ["/sign-out"], path


@pytest.mark.parametrize("token", ["", "x" * 20, TOKEN + "x", VIEWER[:-1]])
def test_a_wrong_token_gives_no_cookie_and_says_so(
    asking: Server, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    page = form(asking, "/sign-in", token=token, next="/runs")

    assert page.status == 401
    assert "set-cookie" not in page.headers
    assert "That is not a token of this server." in page.text
    assert 'value="/runs"' in page.text
    assert not token or token not in caplog.text + page.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "none", "Origin": ""},
    ],
    ids=str,
)
def test_a_page_of_another_origin_signs_no_person_in_or_out(
    asking: Server, headers: dict[str, str]
) -> None:
    for path in ("/sign-in", "/sign-out"):
        answer = form(asking, path, headers, token=TOKEN)

        assert answer.status in (403, 415)
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "\\\\evil.example",
        "javascript:alert(1)",
        "runs",
        "",
        "/runs\r\nSet-Cookie: a=b",
        "/\t/evil.example",
        "/\u2028",
        "/sign-out",
        "/sign-in?next=/",
    ],
)
def test_a_sign_in_leads_to_no_other_server(asking: Server, path: str) -> None:
    answer = form(asking, "/sign-in", token=TOKEN, next=path)

    assert (answer.status, answer.headers["location"]) == (303, "/")
    again = ask(asking, "GET", f"/sign-in?{urlencode({'next': path})}", cookie_of(answer))
    assert (again.status, again.headers["location"]) == (303, "/")


def test_a_link_of_another_site_finds_a_person_s_session(serve: Serve) -> None:
    """The browser sends no cookie with it, but with the page that opens itself from here."""
    server = serve(**BOTH)
    session = cookie_of(form(server, "/sign-in", token=TOKEN))
    link = PAGE | {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    link |= {"Sec-Fetch-Dest": "document"}

    page = ask(server, "GET", "/runs?state=ended", link)

    (address,) = re.findall(r'http-equiv="refresh" content="0;url=([^"]*)"', page.text)
    assert address == "/sign-in?next=%2Fruns%3Fstate%3Dended"
    led = ask(server, "GET", address, PAGE | session)
    assert (led.status, led.headers["location"]) == (303, "/runs?state=ended")
    unsigned = ask(server, "GET", address, PAGE)
    assert unsigned.status == 200
    assert "refresh" not in unsigned.text
    assert 'value="/runs?state=ended"' in unsigned.text


def test_a_person_signs_out(serve: Serve) -> None:
    server = serve(**BOTH)
    session = cookie_of(form(server, "/sign-in", token=TOKEN))

    answer = form(server, "/sign-out", session)

    assert (answer.status, answer.headers["location"]) == (303, "/")
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert ask(server, "GET", "/sign-out", session).status == 405


def test_a_large_form_to_sign_in_is_not_read(asking: Server) -> None:
    assert form(asking, "/sign-in", token="x" * 100_000).status == 413


def test_only_a_proxy_s_people_get_no_form(proxied: Server) -> None:
    page = ask(proxied, "GET", "/", PAGE)

    assert page.status == 401
    assert "X-Forwarded-User" in page.text
    assert "<form" not in page.text


# -- sessions, by themselves -----------------------------------------------------------------------


def callers(clock: FrozenClock | None = None, **settings: str) -> ServerCallers:
    return ServerCallers(None, read_settings(settings), clock)


STRANGERS = callers(**BOTH)


def role_of(callers: ServerCallers, cookie: str) -> str | None:
    return callers._sessions._role_of(cookie)  # noqa: SLF001 - that is it


def test_servers_with_one_token_believe_each_other_s_sessions_and_another_token_ends_them() -> None:
    cookie = callers(**BOTH)._sessions.make("operator")  # noqa: SLF001 - as above

    assert role_of(callers(**BOTH), cookie) == "operator"
    assert role_of(callers(LEASEHOLD_TOKEN="x" * 16), cookie) is None
    assert role_of(callers(**BOTH | {"LEASEHOLD_TOKEN": VIEWER + "x"}), cookie) is None


def test_while_a_token_is_changed_both_are_good_and_so_are_the_sessions_of_both(
    serve: Serve,
) -> None:
    """Programs get the new one one after the other, and no person has to sign in meanwhile."""
    new = "the-token-after-the-change"
    before = callers(**BOTH)._sessions.make("operator")  # noqa: SLF001 - as above
    after = callers(LEASEHOLD_TOKEN=new)._sessions.make("operator")  # noqa: SLF001 - as above
    changing = BOTH | {"LEASEHOLD_TOKEN": f"{new},{TOKEN}"}
    server = serve(**changing)

    for token in (new, TOKEN):
        assert ask(server, "GET", "/runs", {"Authorization": f"Bearer {token}"}).status == 200
    assert ask(server, "GET", "/runs", {"Authorization": f"Bearer {new},{TOKEN}"}).status == 401
    assert [role_of(callers(**changing), one) for one in (before, after)] == ["operator"] * 2
    assert role_of(callers(LEASEHOLD_TOKEN=new), before) is None
    with Client(server.url, environ=changing) as client:
        assert client.start("away", {"n": 1}).run_id


def test_the_key_of_a_token_is_made_once_and_at_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """To make it takes long, on purpose: a stranger could have it made with each cookie."""
    make, rounds = hashlib.pbkdf2_hmac, []

    def pbkdf2_hmac(name: str, token: bytes, salt: bytes, count: int) -> bytes:
        rounds.append(count)
        return make(name, token, salt, count)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", pbkdf2_hmac)
    server = callers(LEASEHOLD_TOKEN=secrets.token_hex())
    at_start = len(rounds)

    cookies = ["operator.99999999999.0.0", server._sessions.make("operator")]  # noqa: SLF001 - as above
    roles = [role_of(server, cookie) for cookie in cookies]

    assert roles == [None, "operator"]
    assert (at_start, rounds) == (0, [100_000])


def test_a_session_is_over_after_twelve_hours() -> None:
    clock = FrozenClock()
    server = callers(clock, **BOTH)
    cookie = server._sessions.make("viewer")  # noqa: SLF001 - as above

    clock.advance(12 * 3600 - 1)
    assert role_of(server, cookie) == "viewer"
    clock.advance(1)
    assert role_of(server, cookie) is None


def test_a_changed_session_is_refused() -> None:
    server = callers(**BOTH)
    cookie = server._sessions.make("viewer")  # noqa: SLF001 - as above
    role, over_at, nonce, signature = cookie.split(".")

    for changed in (
        f"operator.{over_at}.{nonce}.{signature}",
        f"{role}.{int(over_at) + 1}.{nonce}.{signature}",
        f"{role}.{over_at}.{nonce}x.{signature}",
        f"{role}.{over_at}.{nonce}.{signature[:-1]}",
        f"{role}.{over_at}.{nonce}.{signature}é",
        f"{role}.{over_at}.{nonce}.",
        f"{role}.{over_at}.{nonce}",
        cookie.upper(),
        "",
        "...",
        "viewer....",
    ):
        assert role_of(server, changed) is None, changed


LATIN = st.text(st.characters(codec="latin-1"), max_size=60)
COOKIES = st.lists(
    st.tuples(st.sampled_from(["", "=", ".", "operator", "9" * 30, "\xff", '"', "é"]), LATIN)
)


@given(
    scheme=st.sampled_from(["Bearer ", "bearer", "", "Basic ", "\x00"]),
    token=LATIN,
    cookies=COOKIES,
    name=st.sampled_from(["leasehold-session-8080", "leasehold-session-", "x"]),
    host=LATIN,
    peer=st.sampled_from(["", "x", "::1", "fe80::1%lo", "::ffff:10.0.0.1", "10.0.0.1"]),
    method=st.sampled_from(["GET", "POST", "HEAD", "OPTIONS", "\xe9"]),
    accept=st.sampled_from(["text/html", "*/*", "text/html;q=\xff", ""]),
)
def test_no_headers_of_a_stranger_let_it_in_or_break_the_server(
    scheme: str,
    token: str,
    cookies: list[tuple[str, str]],
    name: str,
    host: str,
    peer: str,
    method: str,
    accept: str,
) -> None:
    sent = "; ".join(f"{name}={'.'.join(parts)}" for parts in cookies)
    head = {
        "REQUEST_METHOD": method,
        "PATH_INFO": "/runs",
        "SERVER_PORT": "8080",
        "HTTP_AUTHORIZATION": scheme + token,
        "HTTP_COOKIE": sent,
        "HTTP_HOST": host,
        "HTTP_ACCEPT": accept,
        "REMOTE_ADDR": peer,
        "QUERY_STRING": token,
    }

    refused = STRANGERS.refusal_of(Request(dict(head)))

    assert refused is not None
    assert refused.status_code in (401, 403, 429)
    assert STRANGERS.body_limit(dict(head), 10) == 0


# -- the settings, and the command -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["LEASEHOLD_TOKEN", "LEASEHOLD_VIEWER_TOKEN"])
@pytest.mark.parametrize(
    "text",
    [
        "short",
        "with a blank in it 123",
        f"{TOKEN},",
        f"{TOKEN},a-second-1234567890,a-third-1234567890",
        "x" * 4097,
        "ü" * 20,
        "a\n" * 9,
    ],
)
def test_an_invalid_token_is_refused_and_not_shown(name: str, text: str) -> None:
    with pytest.raises(SettingError, match="16 to 4096 printable") as refused:
        read_settings({name: text})

    assert text not in str(refused.value)
    assert text not in str(refused.value.details)


@pytest.mark.parametrize("name", ["Cookie", "authorization", "HOST", "X User", "X_User", "é", "-"])
def test_a_header_with_another_meaning_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match="the name of a header"):
        read_settings({"LEASEHOLD_IDENTITY_HEADER": name})


def test_names_without_a_domain_are_for_a_proxy_alone() -> None:
    """In a function the same would be a slip: its callers have emails."""
    with pytest.raises(SettingError, match="EMAIL=read"):
        read_settings({"LEASEHOLD_RIGHTS": "ann=read"})

    assert read_settings(HEADER | {"LEASEHOLD_RIGHTS": "ann=read"})["LEASEHOLD_RIGHTS"]


@pytest.mark.parametrize(
    "settings", [{"LEASEHOLD_VIEWER_TOKEN": TOKEN}, BOTH | {"LEASEHOLD_VIEWER_TOKEN": TOKEN}]
)
def test_the_token_of_viewers_is_another_and_needs_the_first(
    serve: Serve, settings: dict[str, str]
) -> None:
    with pytest.raises(SettingError, match="LEASEHOLD_VIEWER_TOKEN") as refused:
        serve(**settings)

    assert TOKEN not in str(refused.value)


def test_beyond_this_machine_nothing_is_served_without_a_sign_in(serve: Serve) -> None:
    with pytest.raises(UnsetSettingError, match="LEASEHOLD_TOKEN is not set, and --host"):
        serve(host="0.0.0.0")  # noqa: S104 - that is it


def test_the_command_does_not_begin_beyond_this_machine_without_a_sign_in(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "leasehold", "serve", "--host", "::", "--port"]

    done = subprocess.run(
        [*command, str(own_port())],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "LEASEHOLD_TOKEN is not set, and --host :: lets in callers of other machines" in line
    assert "LEASEHOLD_IDENTITY_HEADER" in line
    assert list(tmp_path.iterdir()) == []


# -- clients ---------------------------------------------------------------------------------------


def test_a_client_signs_in_with_the_token_of_its_environment(serve: Serve) -> None:
    server = serve(**BOTH)

    with pytest.raises(UnauthenticatedError):
        Client(server.url, environ={}).get("r-none")
    with Client(server.url, environ={"LEASEHOLD_TOKEN": TOKEN}) as client:
        started = client.start("three", {"n": 1})
        assert client.get(started.run_id).run_id == started.run_id
    with (
        Client(server.url, environ={"LEASEHOLD_TOKEN": VIEWER}) as viewer,
        pytest.raises(CallerNotAllowedError, match="viewer may read"),
    ):
        viewer.cancel(started.run_id)


def test_a_command_signs_in_with_the_token_of_its_environment(serve: Serve, tmp_path: Path) -> None:
    url = serve(**BOTH).url

    def asked(**settings: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "leasehold", "runs", "--url", url]
        environ = {name: text for name, text in os.environ.items() if name not in BOTH} | settings
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=environ,
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )

    assert asked(LEASEHOLD_TOKEN=VIEWER).returncode == 0
    refused = asked()
    assert refused.returncode != 0
    assert "The caller is not known: the request has no token" in refused.stderr
    assert "; commands send what LEASEHOLD_TOKEN has." in refused.stderr


def test_the_worker_of_the_example_sends_the_token(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = Leases(serve(**BOTH).url)

    with pytest.raises(RefusedError, match="unauthenticated"):
        leases.call("claim", CLAIM, tries=1)
    monkeypatch.setenv("LEASEHOLD_TOKEN", TOKEN)
    with pytest.raises(RefusedError, match="nothing_to_claim"):
        leases.call("claim", CLAIM, tries=1)


def test_an_invalid_token_is_sent_to_no_server(serve: Serve) -> None:
    with pytest.raises(SettingError, match="not shown") as refused:
        Client(serve(**BOTH).url, environ={"LEASEHOLD_TOKEN": "a b"})

    assert "a b" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "warns"),
    [
        ("http://127.0.0.1:8080", False),
        ("http://127.9.9.9:8080", False),
        ("http://localhost:8080", False),
        ("http://[::1]:8080", False),
        ("https://runs.example.com", False),
        ("http://runs.example.com", True),
        ("http://localhost.example.com", True),
        ("http://10.0.0.7:8080", True),
    ],
)
def test_a_token_that_goes_over_the_network_in_clear_is_warned_of_once(
    url: str, *, warns: bool
) -> None:
    lines: list[str] = []

    Client(url, environ={"LEASEHOLD_TOKEN": TOKEN}, warn=lines.append)
    Client(url, environ={}, warn=lines.append)

    assert len(lines) == warns
    assert TOKEN not in "".join(lines)


def test_no_line_of_a_server_with_debug_logs_has_the_token(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = serve(**BOTH)

    ask(server, "GET", "/runs", bearer(TOKEN))
    form(server, "/sign-in", token=TOKEN)
    ask(server, "GET", f"/runs?token={TOKEN}x")

    assert TOKEN not in caplog.text.replace(f"{TOKEN}x", "")
