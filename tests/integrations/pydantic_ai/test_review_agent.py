"""The review pipeline with a model of any provider that Pydantic AI knows."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from leasehold.domain.manifest import Manifest
from leasehold.testing import FrozenClock, InProcessEngine
from tests.unit.pipelines.model_server import ModelServer, Reply, refusing, saying
from tests.worlds.builders import environ_of

CLAIM = "A worker must renew its lease every 10 seconds."


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        for name, value in {
            "REVIEW_AGENT": "pydantic-ai",
            "REVIEW_MODEL": "openai-chat:small-1",
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "none",
            "NO_PROXY": "127.0.0.1",
        }.items():
            monkeypatch.setenv(name, value)
        yield server
        server.shutdown()
        thread.join()


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


def test_a_model_reviews_and_the_report_names_it(
    server: ModelServer, reviewed: Callable[[], Manifest]
) -> None:
    run = reviewed()

    report = Path(json.loads(run.steps["publish"].output or "")["report"]).read_text()
    assert run.status == "COMPLETED"
    assert "| Agent | openai-chat:small-1 |" in report
    assert f"1. {CLAIM} [a.md:3](" in report
    assert len(server.questions) == 8


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
