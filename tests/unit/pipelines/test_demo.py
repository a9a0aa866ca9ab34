from __future__ import annotations

import re
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples.demo import run as demo
from examples.demo.doubled_message import sent_to
from examples.demo.kill_in_review import account
from examples.demo.strikes import Hit
from leasehold.bootstrap.catalog import load_catalog
from leasehold.domain.trace import TraceEvent, TraceType
from pipelines.review.models import Supervision
from tests.unit.pipelines import demos

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_terminal_obeys_no_folder_and_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    demo.say("error: INPUT: Folder '/srv/\x1b]0;x\x07\x9b2J\u202e' does not exist\nnext: x")

    assert capsys.readouterr().err == (
        "error: INPUT: Folder '/srv/\\u001b]0;x\\u0007\\u009b2J\\u202e' does not exist\nnext: x\n"
    )


def test_the_worker_that_supervises_is_killed_and_the_next_one_goes_on(
    two_docs: Path, tmp_path: Path
) -> None:
    """The killed step waits for it, so that the kill comes at this moment on any machine."""
    done = demos.demo(two_docs, tmp_path / "data")

    assert done.returncode == 0, done.stderr
    told = [re.sub(r"pid \d+", "pid N", line.strip()) for line in done.stdout.splitlines()]
    assert told[1:4] == [
        "The kill:     review was killed with iteration 4 of 5 kept (SIGKILL, pid N)",
        "it went on with iteration 5: the trace says checkpoint_resumed",
        "4 of 5 calls to the agent were not made again",
    ]
    assert told[5:8] == [
        "Announced:    to log: run_completed",
        "its message was pushed twice, and the second push sent nothing:",
        "the trace says announcement_sent once for each channel",
    ]
    assert done.stderr.count('"event": "RUN_COMPLETED"') == 1
    (report,) = tmp_path.rglob("report.md")
    assert "| Supervision | 5 iterations, 5 calls to the agent in 2 attempts; 4 of them made " in (
        report.read_text()
    )


def test_the_catalog_of_the_demo_is_there() -> None:
    assert load_catalog(demo.CATALOG).pipelines.keys() == ("review",)


def test_who_was_told_twice_is_seen() -> None:
    sent = TraceType.ANNOUNCEMENT_SENT
    events = [
        TraceEvent.model_validate(
            {"type": sent, "at": NOW, "channel": channel, "occurrence": occurrence}
        )
        for channel, occurrence in (("log", "1"), ("slack", "1"), ("log", "1"), ("log", "2"))
    ]

    assert sent_to(events) == ["log 1", "slack 1", "log 1", "log 2"]


@pytest.mark.parametrize(("kept", "spared"), [(None, 0), (3, 3), (4, 3)])
def test_a_supervision_that_did_not_go_on_where_it_was_is_no_success(
    kept: int | None, spared: int
) -> None:
    hit = Hit(signal.SIGKILL, 7, NOW, "review", 1, 3)
    made = Supervision(trial=1, attempts=2, iterations=5, calls=5, calls_before=spared)
    facts = {"step": "review", "attempt": 2, "iterationCount": kept}
    resumed = [TraceEvent(type=TraceType.CHECKPOINT_RESUMED, at=NOW, **facts)]

    survived, _ = account(hit, made, [] if kept is None else resumed)

    assert not survived
