"""A client of a server: what may answer, and what becomes of who waits for a run there."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from leasehold import Client, Manifest
from leasehold.api.call_row import ACTOR_HEADER
from leasehold.api.runs import RunResponse
from leasehold.bootstrap import boot
from leasehold.client import run_wait
from leasehold.client.http_calls import RunsApi
from leasehold.client.run_wait import retry_unreachable
from leasehold.domain import lifecycle
from leasehold.domain.trace import TraceType
from leasehold.errors import (
    InvalidRequestError,
    ServerRefusedError,
    ServerUnreachableError,
    TooLargeError,
)
from leasehold.testing import InProcessEngine
from tests.worlds.builders import new_run, rules_of, step_settings
from tests.worlds.ports import own_port
from tests.worlds.runs_api import runs_api
from tests.worlds.serving import while_serving

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
Answering = Callable[..., str]
Serving = Callable[[Callable[[Any], None]], str]

#: What a server sends, and what is said of it. None: it sends as much as it can.
ODD_ANSWERS: list[tuple[int, dict[str, str], bytes, str]] = [
    (200, {"Content-Type": "text/html"}, b"<h1>Hi</h1>", "answers with text/html, not with JSON"),
    (200, {}, b"[" * 100_000, "not with JSON"),
    (200, {}, b"\xff", "not with JSON"),
    (200, {"Content-Length": "9" * 5000}, b"no", "not with JSON"),
    (302, {"Location": "http://127.0.0.1:1/runs"}, b"", "redirects to http://127.0.0.1:1/runs"),
    (307, {"Location": "/login"}, b"", "redirects to /login, which is not followed"),
    (304, {}, b"", "redirects to None"),
    (404, {"Content-Type": "text/html"}, b"<h1>No</h1>", "404 Not Found"),
    (500, {}, b'{"error": {"code": "internal", "message": "It broke."}}', "It broke"),
]


@pytest.fixture
def serving() -> Iterator[Serving]:
    """Starts a server that answers each request in the way it is given."""
    servers = contextlib.ExitStack()

    def start(answer: Callable[[Any], None]) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer(self)

            do_POST = do_GET  # noqa: N815 - the name that the server calls

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.enter_context(while_serving(server))
        return f"http://127.0.0.1:{server.server_port}"

    with servers:
        yield start


@pytest.fixture
def answering(serving: Serving) -> Answering:
    """Starts a server that gives these answers one after the other, the last one forever."""

    def start(*answers: tuple[int, Any]) -> str:
        left = list(answers)

        def answer(handler: Any) -> None:
            status, body = left.pop(0) if len(left) > 1 else left[0]
            handler.send_response(status)
            handler.end_headers()
            handler.wfile.write(json.dumps(body).encode())

        return serving(answer)

    return start


def look(url: str) -> Any:
    return Client(url).page()


@pytest.mark.parametrize("body", [{}, [], {"runs": [{"runId": 1}], "nextPageToken": None}])
def test_another_kind_of_server_is_told_from_a_runs_api(answering: Answering, body: Any) -> None:
    with pytest.raises(ServerRefusedError, match="not as the runs API"):
        look(answering((200, body)))


@pytest.mark.parametrize("url", ["http://[::1", "http://127.0.0.1:1"])
def test_a_server_that_is_not_there_is_said_to_be_unreachable(url: str) -> None:
    with pytest.raises(
        (ServerUnreachableError, InvalidRequestError), match=r"does not answer|address is"
    ):
        look(url)


def test_an_error_is_told_in_the_words_of_the_server(answering: Answering) -> None:
    with pytest.raises(ServerRefusedError, match="limit is wrong"):
        look(answering((400, {"error": {"message": "limit is wrong"}})))


def test_the_words_of_a_server_are_told_up_to_a_limit(answering: Answering) -> None:
    words = "0123456789" * 100

    with pytest.raises(ServerRefusedError) as refused:
        look(answering((400, {"error": {"message": f"{words}and more"}})))

    assert words in refused.value.message
    assert "and more" not in refused.value.message


@pytest.mark.parametrize(("code", "kept"), [(403, None), ("forbidden", "forbidden")])
def test_an_error_of_a_proxy_before_the_server_keeps_its_message(
    answering: Answering, code: Any, kept: str | None
) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo"}]
    error = {"code": code, "message": "Permission denied", "details": details}
    with pytest.raises(ServerRefusedError, match=r"Permission denied$") as refused:
        look(answering((403, {"error": error})))
    assert refused.value.details["code"] == kept


@pytest.mark.parametrize(
    "body", [[], None, {}, {"error": "no"}, {"error": {"message": None}}, {"error": {"code": []}}]
)
def test_an_error_without_a_message_is_reported_by_its_status(
    answering: Answering, body: Any
) -> None:
    with pytest.raises(ServerRefusedError, match=r"404 Not Found$"):
        look(answering((404, body)))


def test_a_body_that_a_server_does_not_read_to_its_end_is_said_to_be_too_large(
    answering: Answering,
) -> None:
    """It answers and closes: what is still sent meets a connection that is reset."""
    error = {
        "code": "too_large",
        "message": "the body has 16,777,230 bytes; at most 10 are allowed",
        "details": {},
    }

    with pytest.raises(TooLargeError, match="at most 10 are allowed"):
        RunsApi(answering((413, {"error": error}))).call("/runs", {"input": "x" * 2**24})


def test_a_page_that_leads_to_itself_is_not_read_forever(answering: Answering) -> None:
    files = {"files": [{"name": "a", "size": 1}], "nextPageToken": "a"}
    runs = {"runs": [], "nextPageToken": "a"}

    for answer, read in ((files, lambda c: c.files("r-1")), (runs, lambda c: [*c.runs()])):
        with pytest.raises(ServerRefusedError, match="not as the runs API"):
            read(Client(answering((200, answer))))


def test_a_server_that_answers_with_another_run_is_not_believed(answering: Answering) -> None:
    """A cache before it may have mixed two answers up."""
    rules = rules_of(step_settings("draft"), step_settings("send"))
    run = lifecycle.start(None, NOW, rules=rules, new=new_run("r-2")).manifest
    answer = RunResponse.of(run).model_dump(mode="json", by_alias=True)
    client = Client(answering((200, answer)))

    assert client.get("r-2").run_id == "r-2"
    with pytest.raises(ServerRefusedError, match="not as the runs API"):
        client.get("r-1")


def test_each_outage_of_a_wait_is_tolerated_as_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait may take days, and a server is restarted now and then."""
    monkeypatch.setattr(run_wait, "OUTAGE_PATIENCE_S", 0.0)
    rules = rules_of(step_settings("draft"), step_settings("send"))
    run = lifecycle.start(None, NOW, rules=rules, new=new_run("r-1")).manifest
    away = ServerUnreachableError(url="http://x", problem="it is away", sent=True)
    answers = iter([away, run, away, run])

    def read(_: str) -> Manifest:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    wait = run_wait.RunWait(read, "r-1", None, None)
    for _ in range(4):
        wait.poll()

    assert wait.run is run


def test_the_name_of_a_caller_is_sent_with_all_its_letters(serving: Serving) -> None:
    heard: list[str] = []

    def answer(handler: Any) -> None:
        heard.append(handler.headers[ACTOR_HEADER].encode("latin-1").decode())
        handler.send_response(404)
        handler.end_headers()

    with pytest.raises(ServerRefusedError):
        Client(serving(answer), actor="Zoë Łuk 東").pause("r-1")

    assert heard == ["Zoë Łuk 東"]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_a_proxy_answers_for_a_server_that_is_away_passes(
    answering: Answering, status: int
) -> None:
    with pytest.raises(ServerUnreachableError) as away:
        look(answering((status, "<h1>Away</h1>")))

    assert away.value.retryable


def test_who_waits_bears_a_server_that_is_away_for_a_moment(answering: Answering) -> None:
    away = (503, {"error": {"message": "the store does not answer"}})
    url = answering(away, away, (200, {"runs": [], "nextPageToken": None}))

    page = retry_unreachable(lambda: look(url))()

    assert page.runs == []


@pytest.mark.parametrize(("status", "headers", "body", "said"), ODD_ANSWERS)
def test_an_odd_answer_is_one_clear_line(
    serving: Serving, status: int, headers: dict[str, str], body: bytes, said: str
) -> None:
    def answer(handler: Any) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    with pytest.raises(ServerRefusedError) as refused:
        Client(serving(answer)).get("r-1")
    assert said in refused.value.message
    assert "\n" not in refused.value.message


def test_an_answer_that_is_cut_off_or_drips_is_none(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"{")

    def drip(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        with contextlib.suppress(OSError):  # it listens no more
            while not over.wait(0.01):
                handler.wfile.write(b" ")

    def hang(_: Any) -> None:
        over.wait(30)

    over = threading.Event()
    with pytest.raises(ServerUnreachableError, match=r"IncompleteRead|100 more expected"):
        Client(serving(cut)).get("r-1")
    for answer, said, timeout in ((drip, "not whole within 1.5 s", 1.5), (hang, "timed out", 0.2)):
        with pytest.raises(ServerUnreachableError, match=said):
            RunsApi(serving(answer)).call("/runs", timeout=timeout)
    over.set()


# -- a start whose answer is lost ------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "k"])
def test_a_start_whose_answer_is_lost_is_one_run(environ: dict[str, str], key: str | None) -> None:
    bundle = boot(environ)
    losing = ["/runs"] * 3
    with runs_api(bundle.engine, losing) as url:
        client = Client(url)
        run = client.start("answers", {"theText": "why?"}, idempotency_key=key)

        assert losing == []
        assert [found.run_id for found in client.runs()] == [run.run_id]
    bundle.close()


def test_a_start_that_reached_no_server_fails_at_once() -> None:
    with pytest.raises(ServerUnreachableError, match=r"refused. Is .* running there\?$") as error:
        Client("http://127.0.0.1:1").start("answers", {})

    assert error.value.details["sent"] is False


def test_a_start_that_is_never_answered_says_how_to_repeat_it(
    answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.client.run_wait.OUTAGE_PATIENCE_S", 0.3)

    with pytest.raises(ServerUnreachableError, match=r"is away\.(\n|$)") as error:
        Client(answering((503, {"error": {"message": "the store is away."}}))).start("answers", {})

    (note,) = error.value.__notes__
    assert re.search("idempotency key 'client-[0-9a-f]{16}' begins no second run", note)


def test_an_operation_whose_answer_is_lost_is_given_again_and_done_once(
    environ: dict[str, str],
) -> None:
    bundle = boot(environ)
    losing: list[str] = []
    with runs_api(bundle.engine, losing) as url:
        client = Client(url)
        run = client.start("answers", {"theText": "why?"})
        losing.append(f"/runs/{run.run_id}:pause")
        with pytest.raises(ServerUnreachableError) as error:
            client.pause(run, generation=run.generation)

        assert error.value.details["sent"] is True
        assert client.pause(run, generation=run.generation).paused
        assert [it.type for it in client.trace(run)].count(TraceType.RUN_PAUSED) == 1
    bundle.close()


def test_a_wait_goes_on_when_the_server_comes_back(
    environ: dict[str, str], engine: InProcessEngine
) -> None:
    with runs_api(engine.engine, port=own_port()) as url:
        client = Client(url)
        run = client.start("refuses", {})
    looked = threading.Event()

    def wait() -> Manifest:
        looked.set()
        return client.wait(run)

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait)
        assert looked.wait(30)
        with runs_api(engine.engine, port=int(url.rpartition(":")[2])):
            ended = waiting.result(30)

    assert ended.dead_lettered
