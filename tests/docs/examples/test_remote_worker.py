"""The example's worker as people run it: real processes, real signals, a real server."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from leasehold.domain.artifact_name import files_folder
from leasehold.domain.manifest import Manifest
from leasehold.testing import InProcessEngine
from tests.docs.examples.conftest import Begin, ended
from tests.worlds.loopback_http import LoopbackHttp
from tests.worlds.waiting import until

SUMMARY = ["A worker renews its lease.", "Nobody shares a lease."]
EVERY = ("--every", "0.2")


def summaries(run: Manifest) -> Any:
    return json.loads(run.steps["summarise"].output or "null")["summaries"]


def story(engine: InProcessEngine, run: Manifest, *types: str) -> list[str]:
    return [event.type for event in engine.trace(run.run_id) if event.type in types]


def test_a_worker_elsewhere_does_its_step_and_the_bundle_the_others(
    engine: InProcessEngine, run: Manifest, begin: Begin, tmp_path: Path
) -> None:
    worker = begin("--once")

    assert worker.ended() == 0, worker.printed
    done = ended(engine, run)
    assert done.status == "COMPLETED"
    assert summaries(done) == [
        {"name": f"{number}.md", "sentences": SUMMARY} for number in range(1, 6)
    ]
    report = next((tmp_path / "artifacts").rglob("digest.md")).read_text()
    assert report.count(" ".join(SUMMARY)) == 5
    files = engine.engine.artifacts.sizes(files_folder(run))
    assert [name.rpartition("/")[2] for name in files] == ["digest.md", "summaries.json"]
    assert "complete: handed_off" in worker.printed


def test_a_lease_is_renewed_for_as_long_as_the_work_takes(
    engine: InProcessEngine, run: Manifest, begin: Begin
) -> None:
    """Each document takes longer than a lease runs."""
    worker = begin("--once", "--slow", "1.2")

    worker.wait_until_it_says("checkpoint 2 of 5")

    assert worker.printed.count("renewed until") >= 3
    assert story(engine, run, "step_terminated") == []
    progress = engine.show(run.run_id).steps["summarise"].progress
    assert progress is not None
    assert progress.message.endswith(".md")


def test_after_kill_9_another_worker_goes_on_from_the_checkpoint(
    engine: InProcessEngine, run: Manifest, begin: Begin
) -> None:
    first = begin("--slow", "0.3")
    first.wait_until_it_says("checkpoint 2 of 5")

    first.process.kill()
    first.ended()
    kept = first.printed.count("checkpoint")
    second = begin(*EVERY)
    done = ended(engine, run)

    assert f"resuming after {kept} of 5 documents" in second.printed
    assert second.printed.count("checkpoint") == 5 - kept
    assert [one["name"] for one in summaries(done)] == [f"{n}.md" for n in range(1, 6)]
    assert (done.status, done.fencing_token) == ("COMPLETED", 4)  # gather, two attempts, report
    assert done.steps["summarise"].attempts.expired == 1
    assert story(engine, run, "step_terminated", "checkpoint_resumed") == [
        "step_terminated",
        "checkpoint_resumed",
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_stop_gives_its_lease_back(
    engine: InProcessEngine, run: Manifest, begin: Begin, number: signal.Signals
) -> None:
    worker = begin("--slow", "0.3")
    worker.wait_until_it_says("checkpoint 1 of 5")

    worker.process.send_signal(number)

    assert worker.ended() == 0
    assert worker.printed.endswith("release: released\n")
    left = engine.show(run.run_id)
    assert (left.status, left.claimable) == ("PENDING", "summarise")
    assert left.steps["summarise"].attempts.interrupted == 1


def test_a_worker_that_was_away_learns_that_its_lease_is_lost_and_changes_nothing(
    engine: InProcessEngine, run: Manifest, begin: Begin
) -> None:
    """A machine that is suspended wakes up in the middle of work that is another's by now."""
    first = begin("--once", "--slow", "0.3")
    first.wait_until_it_says("checkpoint 2 of 5")
    first.process.send_signal(signal.SIGSTOP)
    begin(*EVERY)
    ended(engine, run)
    until(lambda: not engine.show(run.run_id).owed)  # what it may have left is deleted
    done = engine.show(run.run_id)

    first.process.send_signal(signal.SIGCONT)

    assert first.ended() == 0
    # It is told so, or it was stopped in a call whose connection is gone, and looks at its clock.
    lost = ("lease lost: lease_lost: Lease ", "lease lost: its time is over")
    assert any(words in first.printed for words in lost)
    assert "checkpoint 5 of 5" not in first.printed
    assert engine.show(run.run_id) == done


def test_a_worker_without_work_says_so(begin: Begin) -> None:
    worker = begin("--once")

    assert worker.ended() == 0
    assert worker.printed.endswith(" nothing to claim\n")


def test_a_server_that_is_not_there_is_named(begin: Begin) -> None:
    worker = begin("--url", "http://127.0.0.1:1", "--once")

    assert worker.ended() == 1
    assert "error: http://127.0.0.1:1 does not answer" in worker.printed


@pytest.fixture
def answers(url: str) -> Iterator[Answers]:
    """A proxy between a worker and the server, which answers some calls itself."""
    answers = Answers(url)
    yield answers
    answers.http.close()


class Answers:
    """Passes each call on, unless it has its own answer for it.

    Attributes:
        own: by the word of a call, the answers that the next such calls get.
    """

    def __init__(self, url: str) -> None:
        self.own: dict[str, list[tuple[int, str]]] = {}
        self.http = LoopbackHttp(self._answer)
        self._url = url

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        data = request.rfile.read(int(request.headers["Content-Length"]))
        own = self.own.get(request.path.partition(":")[2])
        if own:
            status, code = own.pop(0)
            body = json.dumps({"error": {"code": code, "message": "as said", "details": {}}})
            self._send(request, status, body.encode())
            return
        server = HTTPConnection(urlsplit(self._url).netloc, timeout=10)
        server.request("POST", request.path, data, {"Content-Type": "application/json"})
        with server.getresponse() as answer:
            self._send(request, answer.status, answer.read())
        server.close()

    def _send(self, request: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


def test_a_paid_result_is_sent_until_a_server_takes_it(
    engine: InProcessEngine, run: Manifest, begin: Begin, answers: Answers
) -> None:
    """Outputs go where no renewal goes: their store may be away, and the lease is renewed."""
    answers.own["complete"] = [(503, "store_unavailable")] * 7

    worker = begin("--url", answers.http.url, "--once")

    assert worker.ended() == 0
    assert worker.printed.count("not completed yet: ") == 7
    assert ended(engine, run).status == "COMPLETED"
    assert story(engine, run, "step_started", "lease_expired").count("lease_expired") == 0


def test_a_worker_that_is_stopped_sends_no_longer(
    run: Manifest, begin: Begin, answers: Answers
) -> None:
    answers.own["complete"] = [(503, "store_unavailable")] * 1000
    worker = begin("--url", answers.http.url)
    worker.wait_until_it_says("not completed yet")

    worker.process.terminate()

    assert worker.ended() == 0


def test_a_worker_outlasts_a_server_that_does_not_know_its_step_yet(
    engine: InProcessEngine, run: Manifest, begin: Begin, answers: Answers
) -> None:
    """In a deploy some requests come to the older one, which runs the step itself."""
    answers.own["claim"] = [(400, "invalid_request")] * 2

    worker = begin("--url", answers.http.url, *EVERY)

    assert ended(engine, run).status == "COMPLETED"
    assert worker.printed.count("error: invalid_request: as said") == 2


def test_a_folder_that_is_not_there_is_reported_with_the_run(engine: InProcessEngine) -> None:
    lost = ended(engine, engine.start("digest", {"folder": "/no/such/folder"}))

    assert lost.dead_letter_reason == "PERMANENT_FAILURE"
    assert "/no/such/folder is not a folder" in str(lost.dead_letter_detail)
