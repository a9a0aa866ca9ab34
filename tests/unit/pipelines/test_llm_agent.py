"""The agent that asks a model, at an endpoint that misbehaves: each way has its end."""

from __future__ import annotations

import json
import logging
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.services.operate import OperationRequest, operate
from leasehold.testing import FrozenClock, InProcessEngine
from pipelines.review.supervision import ASPECTS
from tests.worlds.builders import environ_of
from tests.worlds.model_server import (
    Call,
    ModelServer,
    Reply,
    answering,
    good,
    hang,
    hang_up,
    refusing,
    saying,
    trickle,
)
from tests.worlds.serving import while_serving

KEY = "sk-secret-0123456789"
CLAIM = "A worker must renew its lease every 10 seconds."


@pytest.fixture
def clock() -> FrozenClock:
    """A clock that no wait for the server moves."""
    return FrozenClock()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    server = ModelServer()
    with while_serving(server):
        for name, value in {
            "REVIEW_AGENT": "openai",
            "REVIEW_MODEL": "small-1",
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": KEY,
            "NO_PROXY": "127.0.0.1",
        }.items():
            monkeypatch.setenv(name, value)
        yield server
        server.released.set()


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return environ_of(tmp_path, PIPELINE_MAX_RETRIES="2")


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.md").write_text(f"# A\n\n{CLAIM}\n")
    return folder


@pytest.fixture
def reviewed(engine: InProcessEngine, clock: FrozenClock, docs: Path) -> Callable[[], Manifest]:
    """Reviews the documents, with all retries, until the run is at rest."""

    def review() -> Manifest:
        run = engine.start("review", {"folder": str(docs)})
        engine.run_until_idle()
        while engine.show(run.run_id).alarm_at is not None:
            clock.advance(timedelta(minutes=2))
            engine.run_until_idle()
        return engine.show(run.run_id)

    return review


def details(run: Manifest) -> dict[str, Any]:
    assert run.error is not None
    assert run.error.details is not None
    facts = json.loads(run.error.details)
    assert isinstance(facts, dict)
    return facts


def text_of(engine: InProcessEngine, run: Manifest) -> str:
    """Return all that is kept of a run."""
    events = "".join(event.model_dump_json() for event in engine.trace(run.run_id))
    return engine.show(run.run_id).model_dump_json() + events


def test_a_model_reviews_and_the_report_names_it(
    server: ModelServer, reviewed: Callable[[], Manifest]
) -> None:
    run = reviewed()

    published = json.loads(run.steps["publish"].output or "")
    report = Path(published["report"]).read_text()
    assert (run.status, published["verdict"]) == ("COMPLETED", "pass")
    assert f"| Agent | small-1 at 127.0.0.1:{server.server_address[1]} |" in report
    assert f"1. {CLAIM} [a.md:3](" in report


def test_an_endpoint_without_a_trusted_certificate_gets_no_question(
    server: ModelServer, reviewed: Callable[[], Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(of_server)
    server.socket = of_server.wrap_socket(server.socket, server_side=True)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url.replace("http:", "https:"))

    run = reviewed()

    assert run.error is not None
    assert (run.error.code, server.questions) == ("unreachable", [])
    assert "CERTIFICATE_VERIFY_FAILED" in run.error.message


def test_the_model_is_told_the_task_the_material_and_the_shape_of_the_answer(
    server: ModelServer, reviewed: Callable[[], Manifest]
) -> None:
    reviewed()

    question = server.questions[0]
    assert server.keys == [f"Bearer {KEY}"] * 8
    assert question["model"] == "small-1"
    assert json.loads(question["messages"][1]["content"]) == {
        "document": "a.md",
        "title": "A",
        "sentences": [{"number": 0, "section": "A", "text": CLAIM}],
    }
    assert '"required":["number","kind","weight"]' in question["messages"][0]["content"]


@pytest.mark.parametrize(
    ("reply", "code", "facts"),
    [
        (
            saying('{"picks": [oops'),
            "invalid_answer",
            {
                "issues": [
                    {
                        "type": "json_invalid",
                        "loc": [],
                        "msg": "Invalid JSON: expected value at line 1 column 12",
                    }
                ],
                "excerpt": '{"picks": [oops',
                "finishReason": "stop",
            },
        ),
        (
            saying('{"picks": [{"number": 1, "kind": "rule", "weight": 7}], "points": []}'),
            "invalid_answer",
            {
                "issues": [
                    {
                        "type": "less_than_equal",
                        "loc": ["picks", 0, "weight"],
                        "msg": "Input should be less than or equal to 1",
                    },
                    {
                        "type": "extra_forbidden",
                        "loc": ["points"],
                        "msg": "Extra inputs are not permitted",
                    },
                ],
                "excerpt": '{"picks": [{"number": 1, "kind": "rule", "weight": 7}], "points": []}',
                "finishReason": "stop",
            },
        ),
        (saying('{"picks": [', finish="length"), "invalid_answer", {"finishReason": "length"}),
        (saying(None), "invalid_answer", {"excerpt": ""}),
        (answering("<html>gateway</html>"), "invalid_answer", {"excerpt": "<html>gateway</html>"}),
        (answering('{"choices": []}'), "invalid_answer", {"excerpt": '{"choices": []}'}),
        (saying(f'["{KEY}"]'), "invalid_answer", {"excerpt": '["[OPENAI_API_KEY]"]'}),
        (saying(None, refusal="I will not."), "refused", {"said": "I will not."}),
        (
            refusing(429, f"Slow down, {KEY}", retry_after="7"),
            "rate_limited",
            {
                "status": 429,
                "said": "Slow down, [OPENAI_API_KEY].",
                "requestId": None,
            },
        ),
        (
            refusing(500, "Oh no!", x_request_id="req-1"),
            "provider_error",
            {
                "status": 500,
                "said": "Oh no!",
                "requestId": "req-1",
            },
        ),
        (answering("<html>", 503), "provider_error", {"status": 503, "said": "<html>."}),
    ],
)
def test_what_may_pass_is_tried_again_and_kept_whole_when_it_does_not(
    server: ModelServer,
    engine: InProcessEngine,
    reviewed: Callable[[], Manifest],
    caplog: pytest.LogCaptureFixture,
    reply: Reply,
    code: str,
    facts: dict[str, Any],
) -> None:
    server.always = reply
    caplog.set_level(logging.DEBUG)

    run = reviewed()

    deferred = 6 if code == "rate_limited" else 0  # those use up no retry, for a while
    assert run.dead_letter_reason == "RETRIES_EXHAUSTED"
    assert (run.position.attempts.failed, run.position.attempts.deferred) == (3, deferred)
    assert run.error is not None
    assert (run.error.type, run.error.code) == ("AgentClientError", code)
    assert facts.items() <= details(run).items()
    assert len(server.questions) == run.error.attempt == 3 + deferred
    assert KEY not in text_of(engine, run) + caplog.text


@pytest.mark.parametrize("reply", [hang, trickle])
def test_an_endpoint_that_does_not_answer_in_time_is_given_up(
    server: ModelServer,
    reviewed: Callable[[], Manifest],
    monkeypatch: pytest.MonkeyPatch,
    reply: Reply,
) -> None:
    monkeypatch.setenv("REVIEW_MODEL_TIMEOUT_MS", "200")
    server.always = reply
    begun = time.monotonic()

    run = reviewed()

    assert run.dead_letter_reason == "RETRIES_EXHAUSTED"
    assert run.error is not None
    assert run.error.code == "timeout"
    assert details(run) == {"model": "small-1", "seconds": 0.2}
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("reply", [hang_up, None])
def test_an_endpoint_that_cannot_be_reached_is_tried_again(
    server: ModelServer,
    reviewed: Callable[[], Manifest],
    monkeypatch: pytest.MonkeyPatch,
    reply: Reply | None,
) -> None:
    """None: nothing listens there."""
    if reply is None:
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    else:
        server.always = reply

    run = reviewed()

    assert run.dead_letter_reason == "RETRIES_EXHAUSTED"
    assert run.error is not None
    assert run.error.code == "unreachable"


@pytest.mark.parametrize(
    ("status", "line", "code", "advice"),
    [
        (401, f"Not valid: {KEY}", "unauthorized", "Check OPENAI_API_KEY"),
        (403, "Not in your country", "unauthorized", "Check OPENAI_API_KEY"),
        (404, "No such model", "unknown_model", "Check REVIEW_MODEL and OPENAI_BASE_URL."),
        (400, "Too many tokens", "bad_request", "or review less at a time."),
    ],
)
def test_a_permanent_failure_ends_the_run_at_once(
    server: ModelServer,
    engine: InProcessEngine,
    reviewed: Callable[[], Manifest],
    status: int,
    line: str,
    code: str,
    advice: str,
) -> None:
    server.always = refusing(status, line)

    run = reviewed()

    assert run.dead_letter_reason == "PERMANENT_FAILURE"
    assert run.error is not None
    assert (run.error.code, len(server.questions)) == (code, 1)
    assert line.replace(KEY, "[OPENAI_API_KEY]") in run.error.message
    assert advice in run.error.message
    assert KEY not in text_of(engine, run)


def test_what_a_reviewer_refused_is_not_said_again_whatever_the_model_says(
    server: ModelServer, docs: Path, reviewed: Callable[[], Manifest]
) -> None:
    """Nor are summaries without an objection asked for again."""
    other = "It is given up after 5 attempts at most."
    (docs / "b.md").write_text(f"# B\n\n{other}\n")
    server.always = objecting

    run = reviewed()

    published = json.loads(run.steps["publish"].output or "")
    digest = json.loads(run.steps["synthesis"].output or "")
    given = [json.loads(each["messages"][1]["content"]) for each in server.questions]
    assert (run.status, published["verdict"]) == ("COMPLETED", "pass_with_findings")
    assert run.steps["synthesis"].trial == 2
    assert [point["text"] for point in digest["points"]] == [other]
    assert [each["avoid"] for each in given if "avoid" in each] == [
        *([], [], []),
        *([CLAIM], [CLAIM]),
    ]
    assert [each["aspect"] for each in given if "aspect" in each] == [*ASPECTS, *ASPECTS]


def objecting(call: Call) -> None:
    """Object to whatever says what the test is about, and go on saying it."""
    wrong = (
        [each["number"] for each in call.given.get("points", ()) if each["text"] == CLAIM]
        if call.task == "objections" and call.given["aspect"] == "support"
        else []
    )
    if wrong:
        found = {"objections": [{"point": each, "reason": "It is not so."} for each in wrong]}
        saying(json.dumps(found))(call)
    else:
        good(call)


def test_after_one_429_the_engine_asks_again_and_completes(
    server: ModelServer, engine: InProcessEngine, reviewed: Callable[[], Manifest]
) -> None:
    server.replies = [refusing(429, "Slow down", retry_after="0")]

    run = reviewed()

    assert run.status == "COMPLETED"
    errors = [each for each in engine.trace(run.run_id) if each.type == "step_error"]
    assert [(each.step, each.attempt) for each in errors] == [("extraction", 1)]
    assert len(server.questions) == 9


def test_what_was_answered_before_a_failure_is_not_asked_again(
    server: ModelServer, docs: Path, reviewed: Callable[[], Manifest]
) -> None:
    """Also after several failures: what is kept of one attempt is kept in the next."""
    for name in ("b", "c", "d"):
        (docs / f"{name}.md").write_text(f"# {name}\n\nIt is given up after 5 attempts.\n")
    busy = refusing(429, "Slow down")
    server.replies = [good, good, busy, good, busy, good, good, busy, good, good, busy]

    run = reviewed()

    assert run.dead_letter_reason is None
    prompts = [question["messages"][1]["content"] for question in server.questions]
    times = Counter(json.loads(each).get("document", "all") for each in prompts)
    assert times == {"a.md": 2, "b.md": 3, "c.md": 3, "d.md": 4, "all": 1}


def test_each_look_of_the_supervision_is_asked_for_once_however_often_it_fails(
    server: ModelServer, engine: InProcessEngine, reviewed: Callable[[], Manifest]
) -> None:
    busy, unknown = (
        refusing(429, "Slow down"),
        saying('{"objections": [{"point": 9, "reason": ""}]}'),
    )
    server.replies = [good, good, good, good, good, busy, good, unknown]

    run = reviewed()

    asked = Counter(
        json.loads(each["messages"][1]["content"]).get("aspect") for each in server.questions
    )
    errors = [each for each in engine.trace(run.run_id) if each.type == "step_error"]
    assert run.status == "COMPLETED"
    assert [asked[aspect] for aspect in ASPECTS] == [1, 1, 2, 2, 1]
    codes = [(each.model_extra or {}).get("errorCode") for each in errors]
    assert codes == ["rate_limited", "bad_objections"]
    report = Path(json.loads(run.steps["publish"].output or "")["report"]).read_text()
    assert "5 calls to the agent in 3 attempts; 3 of them made before the last" in report


def test_an_answer_that_the_step_refuses_is_asked_for_again(
    server: ModelServer, reviewed: Callable[[], Manifest]
) -> None:
    server.replies = [saying('{"picks": [{"number": 7, "kind": "rule", "weight": 1}]}')]

    run = reviewed()

    assert run.status == "COMPLETED"
    assert len(server.questions) == 9


def test_an_answer_in_a_code_fence_is_read(
    server: ModelServer, reviewed: Callable[[], Manifest]
) -> None:
    picks = '{"picks": [{"number": 0, "kind": "rule", "weight": 1}]}'
    server.replies = [saying(f"```json\n{picks}\n```\n")]

    assert reviewed().status == "COMPLETED"


def test_citations_that_are_invented_are_refused(
    server: ModelServer, reviewed: Callable[[], Manifest]
) -> None:
    def invent(call: Call) -> None:
        if call.task == "picks":
            good(call)
        else:
            point = {"text": "All is well.", "claims": ["a.md:99"]}
            saying(json.dumps({"points": [point]}))(call)

    server.always = invent

    run = reviewed()

    assert run.dead_letter_reason == "RETRIES_EXHAUSTED"
    assert run.error is not None
    assert (run.error.step, run.error.code) == ("synthesis", "bad_citations")
    assert run.error.validation_issues == ({"point": "All is well.", "claims": '["a.md:99"]'},)


def test_a_model_that_says_nothing_of_most_documents_is_blocked(
    server: ModelServer, docs: Path, reviewed: Callable[[], Manifest]
) -> None:
    def lazy(call: Call) -> None:
        if call.task == "points":
            saying('{"points": []}')(call)
        elif call.task == "digest":
            first = call.given["claims"][0]
            point = {"text": first["text"], "claims": [first["id"]]}
            saying(json.dumps({"points": [point]}))(call)
        else:
            good(call)

    for name in ("b", "c"):
        (docs / f"{name}.md").write_text(f"# {name}\n\nIt is given up after 5 attempts.\n")
    server.always = lazy

    run = reviewed()

    assert run.status == "BLOCKED"
    assert run.block is not None
    assert run.block.check_id == "citation_coverage"
    assert "cites 1 of 3 documents" in run.block.finding
    assert "REVIEW_MODEL" in run.block.remediation


def test_a_model_that_says_nothing_at_all_is_blocked(
    server: ModelServer, reviewed: Callable[[], Manifest]
) -> None:
    def mute(call: Call) -> None:
        if call.task == "picks":
            good(call)
        else:
            saying('{"points": []}')(call)

    server.always = mute

    run = reviewed()

    assert run.block is not None
    assert run.block.check_id == "format_compliance"
    assert run.block.finding == "(1) The digest has no key points; the documents make 1 claims."


def test_a_shutdown_ends_a_request_that_hangs_at_once_and_burns_no_retry(
    server: ModelServer, environ: dict[str, str], docs: Path
) -> None:
    server.always = hang
    with InProcessEngine(workers=1, environ=environ) as engine:
        run_id = engine.start("review", {"folder": str(docs)}).run_id
        assert server.entered.wait(60)
        begun = time.monotonic()
        engine.close()
        took = time.monotonic() - begun

    with InProcessEngine(workers=0, environ=environ) as later:
        run = later.show(run_id)
        (end,) = [each for each in later.trace(run_id) if each.type == "step_terminated"]
    assert (run.status, end.reason) == ("PENDING", "instance_shutdown")
    assert run.position.attempts.failed == 0
    assert took < 5


def test_a_cancelled_run_waits_for_no_answer(
    server: ModelServer, environ: dict[str, str], docs: Path
) -> None:
    server.always = hang
    with InProcessEngine(workers=1, environ=environ | {"PIPELINE_HEARTBEAT_S": "0.1"}) as engine:
        run_id = engine.start("review", {"folder": str(docs)}).run_id
        assert server.entered.wait(60)
        operate(engine.engine, run_id, OperationRequest(Operation.CANCEL, actor="ann"))
        end = time.monotonic() + 10
        while engine.held_runs() and time.monotonic() < end:
            server.released.wait(0.01)

        assert engine.held_runs() == []


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("REVIEW_AGENT", "gpt", "REVIEW_AGENT is 'gpt'; allowed: local, openai, pydantic-ai."),
        ("REVIEW_MODEL", "", "REVIEW_MODEL is not set; allowed: the name of a model."),
        (
            "OPENAI_API_KEY",
            "",
            (
                "OPENAI_API_KEY is not set; allowed: a key in printable ASCII; any word where the "
                "endpoint asks for none."
            ),
        ),
        (
            "OPENAI_API_KEY",
            f"{KEY}\n",
            (
                "OPENAI_API_KEY is not a key; allowed: a key in printable ASCII; any word where "
                "the endpoint asks for none."
            ),
        ),
        *(
            (
                "OPENAI_BASE_URL",
                url,
                (
                    f"OPENAI_BASE_URL is not {what}; allowed: http://HOST/PATH or https://…, "
                    "without user or query; the key stands in OPENAI_API_KEY."
                ),
            )
            for url, what in (
                ("api.example.org/v1", "such an address"),
                (f"https://me:{KEY}@api.example.org/v1", "such an address"),
                ("http://host:port/v1", "an address"),
            )
        ),
        (
            "REVIEW_MODEL_TIMEOUT_MS",
            "2m",
            (
                "REVIEW_MODEL_TIMEOUT_MS is '2m'; allowed: milliseconds, a whole number up to "
                "1800000."
            ),
        ),
    ],
)
def test_a_setting_that_cannot_be_used_ends_the_run_before_anything_is_sent(
    server: ModelServer,
    reviewed: Callable[[], Manifest],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    message: str,
) -> None:
    monkeypatch.setenv(name, value)

    run = reviewed()

    assert run.dead_letter_reason == "PERMANENT_FAILURE"
    assert run.error is not None
    assert (run.error.code, run.error.message) == ("bad_setting", message)
    assert server.questions == []


@pytest.mark.usefixtures("server")
def test_without_the_extra_the_run_says_how_to_install_it(
    reviewed: Callable[[], Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "pipelines.review.model_agent", raising=False)
    monkeypatch.setitem(sys.modules, "openai", None)

    run = reviewed()

    assert run.dead_letter_reason == "PERMANENT_FAILURE"
    assert run.error is not None
    assert run.error.code == "extra_missing"
    assert "-e '.[llm]'" in run.error.message
