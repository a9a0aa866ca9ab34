"""Signed links: a person answers without signing in, until the link is over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from werkzeug import Request

from leasehold.domain.announcement import AnnouncedEvent, Priority
from leasehold.domain.delivery import Delivery, DeliveryState
from leasehold.domain.event_message import announced_facts
from leasehold.domain.manifest import Manifest
from leasehold.domain.signal_link import LINK_LIFE, PublicUrl, SignalLink
from leasehold.domain.status import RunStatus
from leasehold.registry.settings import read_settings
from leasehold.server.server import ServeOptions, Server
from leasehold.testing import InProcessEngine
from leasehold.web.sign_in import ServerCallers
from tests.worlds.functions import Function, function_of, one_store
from tests.worlds.ports import own_port
from tests.worlds.waiting import until
from tests.worlds.wrapped import Wrapped

SECRET = "-".join(["of", "links"] * 4)
BROWSER = {"Accept": "text/html", "Sec-Fetch-Site": "none", "Host": "localhost"}
FORM = {"Accept": "text/html", "Sec-Fetch-Site": "same-origin", "Host": "localhost"}


class Unread(Wrapped[Any]):
    """A store of which nothing is to be read."""

    def get(self, ref: object) -> None:
        raise AssertionError(f"{ref} is read")

    query = get


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    return one_store(
        tmp_path,
        monkeypatch,
        LEASEHOLD_CATALOG="tests.api.waits.approvals",
        LEASEHOLD_LINK_SECRET=f"new-{SECRET},{SECRET}",
    )


@pytest.fixture
def engine(environ: dict[str, str]) -> Iterator[InProcessEngine]:
    with InProcessEngine(environ=environ, workers=0) as engine:
        yield engine


@pytest.fixture
def serve_api(engine: InProcessEngine) -> Iterator[Function]:
    assert engine
    yield from function_of("serve_api")


@pytest.fixture
def waiting(engine: InProcessEngine) -> Manifest:
    run_id = engine.start("approved", {}).run_id
    engine.run_until_idle()
    return engine.show(run_id)


def link(run: Manifest, *, secret: str = SECRET, seconds: int = 3600, life: str = "") -> str:
    until = int(run.updated_at.timestamp()) + seconds
    return SignalLink(run.run_id, life or run.life, "approval", until).address("", secret)


def test_a_link_shows_the_question_and_its_form_sends_the_answer_once(
    serve_api: Function, engine: InProcessEngine, waiting: Manifest
) -> None:
    address = link(waiting)
    page = serve_api.client.get(address, headers=BROWSER)
    asked = engine.show(waiting.run_id)
    sent = serve_api.client.post(address, data={"value": '{"approved": true}'}, headers=FORM)
    again = serve_api.client.post(address, data={"value": '{"approved": true}'}, headers=FORM)
    other = serve_api.client.post(address, data={"value": '{"approved": false}'}, headers=FORM)
    engine.adopt(waiting.run_id)
    engine.run_until_idle()

    assert (page.status_code, "A run waits for approval" in page.text) == (200, True)
    assert asked == waiting, "to open a link changes nothing"
    assert (sent.status_code, again.status_code, other.status_code) == (200, 200, 409)
    assert engine.output(waiting.run_id) == {"published": {"approved": True, "by": "someone"}}
    assert page.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("HEAD", {}),
        ("GET", {"Sec-Purpose": "prefetch;prerender", "Purpose": "prefetch"}),
        ("GET", {"Accept": "*/*", "User-Agent": "Slackbot-LinkExpanding 1.0"}),
        ("OPTIONS", {}),
    ],
)
def test_a_program_that_looks_at_a_link_changes_nothing(
    serve_api: Function,
    engine: InProcessEngine,
    waiting: Manifest,
    method: str,
    headers: dict[str, str],
) -> None:
    """Mail filters, chats and browsers open what they find, and a person has not answered yet."""
    address = link(waiting)
    answer = serve_api.client.open(address, method=method, headers=BROWSER | headers)

    assert answer.status_code == (405 if method == "OPTIONS" else 200)
    assert engine.show(waiting.run_id) == waiting
    assert serve_api.client.get(address, headers=BROWSER).status_code == 200


@pytest.mark.parametrize(
    ("secret", "seconds", "life"),
    [("another-secret-0123456789", 3600, ""), (SECRET, -10, ""), (SECRET, 3600, "00000000")],
)
def test_a_link_that_is_over_or_forged_is_refused(
    serve_api: Function,
    engine: InProcessEngine,
    waiting: Manifest,
    secret: str,
    seconds: int,
    life: str,
) -> None:
    address = link(waiting, secret=secret, seconds=seconds, life=life)
    answers = [
        serve_api.client.get(address, headers=BROWSER),
        serve_api.client.post(address, data={"value": "1"}, headers=FORM),
    ]

    assert [answer.status_code for answer in answers] == [403, 403]
    assert "ask for a new one" in answers[0].text
    assert engine.show(waiting.run_id) == waiting


@pytest.mark.parametrize("changed", ["until", "life", "key", "name", "run"])
def test_a_changed_link_is_refused(
    serve_api: Function, waiting: Manifest, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a look at the store, which costs: a caller needs no sign-in to open a link."""
    provider = serve_api.provider
    engine = replace(provider.engine, documents=Unread(provider.engine.documents))
    bundle = replace(provider._bundle, engine=engine)  # noqa: SLF001 - it opens its stores itself
    monkeypatch.setattr(provider, "_bundle", bundle)
    address = link(waiting)
    query = {name: one for name, (one,) in parse_qs(urlsplit(address).query).items()}
    later = str(int(query["until"]) + 1)
    changes = {
        "until": address.replace(query["until"], later),
        "life": address.replace(query["life"], "0" * 8),
        "key": address.replace(query["key"], query["key"][::-1]),
        "name": address.replace("/approval/", "/refusal/"),
        "run": address.replace(waiting.run_id, "r-0123456789abcdef"),
    }

    assert serve_api.client.get(changes[changed], headers=BROWSER).status_code == 403


@pytest.mark.parametrize(
    "value",
    ["", "{", '{"approved": 7}', '{"approved": true, "approved": false}', '"\\ud800"', "[" * 4000],
)
def test_a_bad_answer_is_refused_and_changes_nothing(
    serve_api: Function, engine: InProcessEngine, waiting: Manifest, value: str
) -> None:
    answer = serve_api.client.post(link(waiting), data={"value": value}, headers=FORM)

    assert answer.status_code == 400
    assert engine.show(waiting.run_id) == waiting


def test_a_run_that_does_not_wait_any_more_says_so(
    serve_api: Function, engine: InProcessEngine, waiting: Manifest
) -> None:
    engine.cancel(waiting.run_id)
    page = serve_api.client.get(link(waiting), headers=BROWSER)

    assert (page.status_code, "Nothing to do" in page.text) == (200, True)


@pytest.mark.parametrize("token", ["", "x" * 32], ids=["loopback", "token"])
def test_a_server_takes_the_form_of_a_link(
    environ: dict[str, str], engine: InProcessEngine, waiting: Manifest, token: str
) -> None:
    """It reads as much of a body as its path takes; a link is not in the table of paths."""
    options = ServeOptions(port=own_port(), workers=1)
    server = Server(options, lambda _: None, environ | {"LEASEHOLD_TOKEN": token})
    server.start()
    body = urlencode({"value": '{"approved": true, "by": "' + "a" * 5000 + '"}'})
    headers = {"Sec-Fetch-Site": "same-origin", "Accept": "text/html"}

    def send(text: str) -> int:
        own = headers | {"Content-Type": "application/x-www-form-urlencoded"}
        caller = HTTPConnection(server.url.removeprefix("http://"), timeout=30)
        with closing(caller):
            caller.request("POST", link(waiting), text, own)
            return caller.getresponse().status

    try:
        statuses = [send("value=" + "x" * 20_000), send(body), send(body)]
        until(lambda: engine.show(waiting.run_id).status is RunStatus.COMPLETED)
    finally:
        server.stop()

    assert statuses == [413, 200, 200]
    assert engine.output(waiting.run_id)["published"] == {"approved": True, "by": "a" * 5000}


def test_a_link_needs_no_sign_in_and_nothing_else_is_open() -> None:
    """Of a server that has a token: the signature of the link stands for it."""
    settings = read_settings({"LEASEHOLD_TOKEN": "x" * 32, "LEASEHOLD_LINK_SECRET": SECRET})
    callers = ServerCallers(None, settings)
    paths = (
        "/runs/r-1/signals/approval/link",
        "/runs/r-1/signals/approval",
        "/runs/r-1",
        "/runs/r-1/signals/a/b/link",
        "/runs:batch/signals/a/link",
    )

    refused = [callers.refusal_of(Request.from_values(path, method="POST")) for path in paths]

    assert [one is None for one in refused] == [True, False, False, False, False]


def _announced(run: Manifest) -> Delivery:
    at = run.updated_at
    return Delivery(
        run_id=run.run_id,
        occurrence="1",
        channel="mail",
        pipeline=run.pipeline,
        event=AnnouncedEvent.RUN_BLOCKED,
        priority=Priority.HIGH,
        step="ask",
        summary="It waits.",
        signal="approval",
        mark=run.life,
        state=DeliveryState.DUE,
        created_at=at,
        updated_at=at,
        give_up_at=at + timedelta(days=1),
    )


def test_an_announcement_has_the_link_where_a_secret_is_set(
    serve_api: Function, waiting: Manifest
) -> None:
    url = PublicUrl("https://shop.example", [SECRET])
    links = announced_facts(_announced(waiting), url)["links"]
    without = announced_facts(_announced(waiting), "https://shop.example")["links"]
    address = links["signal"].removeprefix("https://shop.example")

    until = int(parse_qs(urlsplit(address).query)["until"][0])
    assert until == int((waiting.updated_at + LINK_LIFE).timestamp())
    assert serve_api.client.get(address, headers=BROWSER).status_code == 200
    assert set(without) == {"run", "why", "trace"}
    assert SECRET not in links["signal"]
