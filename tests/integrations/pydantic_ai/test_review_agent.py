"""The review pipeline with a model of any provider that Pydantic AI knows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models import test
from pydantic_ai.models.function import AgentInfo, FunctionModel

from leasehold import AgentClientError, PermanentError
from leasehold.domain.manifest import Manifest
from leasehold.testing import FrozenClock, InProcessEngine
from pipelines.review.library_agent import failure_of
from tests.worlds.builders import environ_of
from tests.worlds.model_server import (
    ModelServer,
    Reply,
    good_answer,
    refusing,
    saying,
)
from tests.worlds.serving import while_serving

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
            "REVIEW_AGENT": "pydantic-ai",
            "REVIEW_MODEL": "openai-chat:small-1",
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "none",
            "NO_PROXY": "127.0.0.1",
        }.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def reviewed(tmp_path: Path, clock: FrozenClock) -> Iterator[Callable[[], Manifest]]:
    """Reviews one document, with all retries."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text(f"# A\n\n{CLAIM}\n")
    environ = environ_of(tmp_path, PIPELINE_MAX_RETRIES="2")
    with InProcessEngine(clock=clock, workers=0, environ=environ) as engine:

        def review() -> Manifest:
            run = engine.start("review", {"folder": str(docs)})
            engine.run_until_idle()
            while engine.show(run.run_id).alarm_at is not None:
                clock.advance(timedelta(minutes=2))
                engine.run_until_idle()
            return engine.show(run.run_id)

        yield review


@pytest.mark.nightly
def test_a_model_of_a_provider_reviews_and_the_report_names_it(
    server: ModelServer, reviewed: Callable[[], Manifest]
) -> None:
    run = reviewed()

    assert_reviewed(run, by="openai-chat:small-1")
    assert len(server.questions) == 8


def test_a_model_reviews_and_the_report_names_it(
    reviewed: Callable[[], Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library knows this model by its name, and has to import no client for it."""
    questions: list[str] = []

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        questions.append(str(messages[-1].parts[-1].content))
        return ModelResponse([TextPart(json.dumps(good_answer(json.loads(questions[-1]))))])

    monkeypatch.setattr(test, "TestModel", lambda: FunctionModel(answer))
    monkeypatch.setenv("REVIEW_AGENT", "pydantic-ai")
    monkeypatch.setenv("REVIEW_MODEL", "test")

    run = reviewed()

    assert_reviewed(run, by="test")
    assert len(questions) == 8


def assert_reviewed(run: Manifest, by: str) -> None:
    """Look at the report, which cites the one claim."""
    assert run.status == "COMPLETED"
    report = Path(json.loads(run.steps["publish"].output or "")["report"]).read_text()
    assert f"| Agent | {by} |" in report
    assert f"1. {CLAIM} [a.md:3](" in report


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (UnexpectedModelBehavior("no JSON"), AgentClientError, "invalid_answer"),
        (ModelAPIError("small-1", "reset"), AgentClientError, "unreachable"),
        (ModelHTTPError(429, "small-1"), AgentClientError, "rate_limited"),
        (ModelHTTPError(503, "small-1"), AgentClientError, "provider_error"),
        (ModelHTTPError(408, "small-1"), AgentClientError, "provider_error"),
        (ModelHTTPError(401, "small-1"), PermanentError, "unauthorized"),
        (ModelHTTPError(400, "small-1"), PermanentError, "bad_request"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_error_of_the_library_has_a_meaning_for_the_step(
    error: Exception, kind: type[Exception], code: str
) -> None:
    """Of each provider: the client of one takes a second to import, and is asked nightly."""
    failure = failure_of(error)

    assert (type(failure), failure.code) == (kind, code)


def test_an_answer_that_is_not_as_asked_is_tried_again(
    reviewed: Callable[[], Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library has a model that answers any question with the same text."""
    monkeypatch.setenv("REVIEW_AGENT", "pydantic-ai")
    monkeypatch.setenv("REVIEW_MODEL", "test")

    run = reviewed()

    assert run.error is not None
    assert run.error.code == "invalid_answer"
    assert run.dead_letter_reason == "RETRIES_EXHAUSTED"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("reply", "code", "is_retried"),
    [
        (saying('{"picks": [oops'), "invalid_answer", True),
        (refusing(429, "too fast"), "rate_limited", True),
        (refusing(503, "away"), "provider_error", True),
        (refusing(401, "who are you?"), "unauthorized", False),
        (refusing(400, "what is that?"), "bad_request", False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_goes_wrong_is_judged(
    server: ModelServer,
    reviewed: Callable[[], Manifest],
    reply: Reply,
    code: str,
    is_retried: bool,
) -> None:
    server.always = reply

    run = reviewed()

    assert run.error is not None
    assert run.error.code == code
    assert (run.dead_letter_reason == "RETRIES_EXHAUSTED") is is_retried


def test_a_model_that_there_is_not_ends_the_run(
    server: ModelServer, reviewed: Callable[[], Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVIEW_MODEL", "nobody:small-1")

    run = reviewed()

    assert run.error is not None
    assert (run.error.code, json.dumps(server.questions)) == ("bad_setting", "[]")
    assert "Check REVIEW_MODEL." in run.error.message
