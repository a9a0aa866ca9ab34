"""What a deployed function writes to its log: entries that Cloud Logging takes apart."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from leasehold.testing import InProcessEngine
from tests.api.in_process.logging_steps import GATES, PIPELINES, STEPS
from tests.worlds.functions import function_of

TRACE = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def own_level() -> Iterator[None]:
    kept = logging.root.level
    yield
    logging.root.setLevel(kept)


@pytest.mark.usefixtures("own_level")
def test_the_lines_of_a_handler_are_entries_with_their_attempt_and_trace(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEASEHOLD_CATALOG", "tests.api.in_process.logging_steps")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "shop")
    with InProcessEngine(STEPS, PIPELINES, GATES, environ=environ, workers=0) as engine:
        run_id = engine.start("logs", {}).run_id
    with monkeypatch.context() as patch:
        patch.setattr(logging.root, "handlers", [])  # those of pytest
        for function in function_of("execute_step"):
            headers = {"traceparent": f"00-{TRACE}-0123456789abcdef-01"}
            function.post(json={"runId": run_id, "generation": 1}, headers=headers)

    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]

    attempt = {"runId": run_id, "step": "says", "attempt": 1}
    of_attempt = [entry for entry in entries if entry.items() >= attempt.items()]
    assert [(entry["severity"], entry["message"]) for entry in of_attempt] == [
        ("INFO", "by the context"),
        ("INFO", "by its own logger, with words"),
    ]
    assert {entry["logging.googleapis.com/trace"] for entry in of_attempt} == {
        f"projects/shop/traces/{TRACE}"
    }
