"""A terminal shows texts of strangers and does not obey them."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.worlds.serving import while_serving
from tests.worlds.shell import Shell

#: The title of a window, the 8-bit way to begin a sequence, text that runs backwards, markup.
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2066\u200f[bold red]x[/]\x7f\r\n&"
OBEYED = ("\x1b]", "\x1b[2J", "\x9b", "\u202e", "\u2066", "\u200f", "\x07", "\x7f")
AT = "2026-01-01T00:00:00Z"

RUN = {
    "runId": f"r-{EVIL}",
    "life": "12345678",
    "pipeline": EVIL,
    "plan": [EVIL],
    "labels": [EVIL],
    "idempotencyKey": EVIL,
    "inputDigest": "",
    "input": json.dumps(EVIL, ensure_ascii=False),
    "status": "BLOCKED",
    "currentStep": EVIL,
    "createdAt": AT,
    "updatedAt": AT,
    "completedAt": None,
    "shard": 0,
    "recreatedFrom": EVIL,
    "recreatedAs": [EVIL],
    "block": {"code": EVIL, "finding": EVIL, "remediation": EVIL},
    "error": {"type": EVIL, "code": EVIL, "message": EVIL, "origin": EVIL, "step": EVIL},
    "dispatch": {
        "generation": 1,
        "step": EVIL,
        "trial": 1,
        "notBefore": AT,
        "timeoutMs": 1000,
        "deadlineS": 60,
        "cleanupMs": 500,
        "maxRetries": 0,
        "queue": EVIL,
        "sources": {},
        "nonce": "n",
    },
    "steps": {EVIL: {"status": "BLOCKED", "startedAt": AT, "output": json.dumps(EVIL)}},
    # of a summary:
    "paused": False,
    "cancelled": False,
    "deadLettered": False,
    "deadLetteredAt": None,
    "deadLetterReason": None,
    "attempts": {},
    "progress": {"stepsDone": 0, "steps": 1, "fraction": 0.0, "message": EVIL},
    "errorCode": EVIL,
    "blockCode": EVIL,
    "generation": 1,
}
#: The run under a name that a command can be given.
NAMED = RUN | {"runId": "r-1", "shard": 9}
DELIVERY: dict[str, Any] = dict.fromkeys(
    ("runId", "occurrence", "channel", "pipeline", "event", "priority", "step", "summary"), EVIL
)
DELIVERY |= dict.fromkeys(("reason", "detail", "holder", "lastError", "messageId"), EVIL)
DELIVERY |= {"state": "given_up", "givenUpWhy": EVIL, "round": 1, "tries": 1, "unknown": 1}
DELIVERY |= dict.fromkeys(("createdAt", "updatedAt", "giveUpAt", "givenUpAt"), AT)
DELIVERY |= dict.fromkeys(("nextTryAt", "claimedUntil", "announcedAt"))
ANNOUNCED = {"occurrence": "1", "event": EVIL, "at": AT, "channels": [EVIL]}
EVENT = {"type": "gate_blocked", "at": AT, "step": EVIL, "reason": EVIL, "detail": EVIL}
EVENT |= {"actor": EVIL, "recreatedAs": EVIL}
TAKEN = EVENT | {"type": "stack_taken", "stacks": f"{EVIL}\n{EVIL}"}
REQUESTED: dict[str, Any] = dict.fromkeys(("runId", "step", "holder", "requestedBy"), EVIL)
REQUESTED |= {"attempt": 1, "requestedAt": AT, "heartbeatS": 10}
REFUSAL = {"error": {"code": EVIL, "message": EVIL}}
BATCH = {"matched": 1, "changed": 0, "refused": [{"runId": EVIL, "code": EVIL}]}
WHY = {"runId": EVIL, "waitsFor": EVIL, "until": None, "then": EVIL, "words": EVIL}
WHY |= {"generation": 1, "operations": ["approve"], "owed": [EVIL], "deliveries": [DELIVERY]}
BREACH = {"code": EVIL, "finding": EVIL, "repair": EVIL}
AUDIT = {"found": [{"runId": EVIL, "breaches": [BREACH], "outcome": EVIL}], "left": 0}
SETTING = {"value": 1, "source": EVIL}
STEP: dict[str, Any] = dict.fromkeys(
    ("stepType", "handler", "isolation", "isolationSource", "queue"), EVIL
)
STEP["refused"] = [EVIL]
OVERRIDE = {"stepType": EVIL, "state": "in_force", "timeoutS": 1, "deadlineS": None}
OVERRIDE |= {"until": AT, "why": EVIL, "setBy": EVIL, "setAt": AT, "problem": EVIL}
STEP["override"] = OVERRIDE
STEP["retry"] = {"firstS": 1, "factor": 2, "maxS": 9, "nonRetryable": [EVIL], "source": EVIL}
LIMITS = ("agentTimeoutMs", "dispatchDeadlineS", "cleanupMs", "memoryLimitBytes", "maxRetries")
STEP |= dict.fromkeys((*LIMITS, "heartbeatS"), SETTING)
STEP |= {"retry": {"firstS": 1, "factor": 2, "maxS": 9, "nonRetryable": [EVIL], "source": EVIL}}
REGISTRY = {"steps": [STEP], "pipelines": [{"name": EVIL, "steps": [EVIL]}]}
REGISTRY["loweredLimits"] = [{"key": EVIL, "share": 0.5, "loweredAt": AT, "growsFrom": AT}]
REGISTRY["overridesProblem"] = EVIL
COUNTS = ("recovered", "redispatched", "stillQueued", "unattended", "reannounced", "archived")
SWEEP = dict.fromkeys((*COUNTS, "deadLettered", "purged", "scheduled", "documentsRead"), 1)
CALL = {"step": EVIL, "trial": 1, "key": EVIL, "type": EVIL, "keep": False, "result": EVIL}
CALL["isLarge"] = False
SWEEP |= {"byReason": {EVIL: 1}, "more": False}
LIMIT = {"totalS": 60, "executionS": 30, "timeoutS": 30}
BUDGET = {"stepType": EVIL, "strategy": EVIL, "derivedAt": AT, "windowDays": 7, "reasons": [EVIL]}
BUDGET |= dict.fromkeys(("declared", "proposed", "applied"), LIMIT)
FIGURES = ("percentile", "confidence", "safetyBufferS", "roundingGranularityS", "windowS")
ATTEMPT = {"endedAt": "2025-12-31T00:00:00Z", "bootstrapSeconds": 1, "executionSeconds": 2}
ATTEMPT |= {"outcome": "success", "cold": False, "retried": False, "tailProbe": False}
EXPLAINED = {"budget": BUDGET, "settings": dict.fromkeys((*FIGURES, "shortestS", "longestS"), 1)}
EXPLAINED |= dict.fromkeys(("agentTimeoutS", "dispatchDeadlineS"), SETTING)
EXPLAINED |= {"samples": [ATTEMPT, ATTEMPT | {"outcome": EVIL}]}


#: No page leads to itself: that is refused before any word of it is shown.
PAGES = itertools.count()


class Hostile(BaseHTTPRequestHandler):
    """Answers each call of the runs API in its shape, with words of its own."""

    def do_GET(self) -> None:
        answers: dict[str, Any] = {
            "/runs": {"runs": [RUN], "nextPageToken": f"{EVIL}{next(PAGES)}"},
            "/runs/r-1/why": WHY,
            "/runs/r-1/calls": {"calls": [CALL]},
            "/audit": AUDIT,
            "/registry": REGISTRY,
            "/budgets/charge": EXPLAINED,
            "/overrides": {"overrides": [OVERRIDE]},
            "/runs/r-1/deliveries": {"deliveries": [DELIVERY]},
            "/deliveries": {"deliveries": [DELIVERY], "nextPageToken": f"{EVIL}{next(PAGES)}"},
            "/runs/r-told": NAMED | {"runId": "r-told", "announcement": ANNOUNCED},
            "/runs/r-told/deliveries": {"deliveries": [DELIVERY]},
        }
        path = self.path.partition("?")[0]
        if path.endswith("refused"):
            self._answer(400, REFUSAL)
        elif path.endswith("/trace"):
            self._answer(200, {"events": [EVENT, TAKEN]})
        else:
            self._answer(200, answers.get(path, NAMED))

    def do_POST(self) -> None:
        answers = {"/runs:batch": BATCH, "/audit:repair": AUDIT, "/sweep": SWEEP}
        change = {"stepType": EVIL, "override": OVERRIDE, "replaced": OVERRIDE}
        answers["/overrides/charge:set"] = answers["/overrides/charge:clear"] = change
        answers["/runs/r-1:deliver"] = DELIVERY
        answers["/runs/r-1:stack"] = REQUESTED
        self._answer(200, answers.get(self.path, RUN))

    def _answer(self, status: int, body: Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Hostile)
    with while_serving(server):
        yield f"http://127.0.0.1:{server.server_port}"


COMMANDS = [
    ("runs",),
    ("show", "r-1"),
    ("show", "r-told"),
    ("show", "r-refused"),
    ("deliveries",),
    ("deliveries", "r-1"),
    ("deliver", "r-1", "--channel", "slack"),
    ("trace", "r-1"),
    ("stack", "r-1"),
    ("why", "r-1"),
    ("calls", "r-1"),
    ("audit",),
    ("audit", "--repair"),
    ("registry",),
    ("explain-limit", "charge"),
    ("override",),
    ("override", "charge", "--timeout-s", "20", "--until", "2h", "--why", "slow"),
    ("override", "charge", "--clear"),
    ("sweep",),
    ("pause", "r-1"),
    ("recreate", "r-1"),
    ("batch", "pause", "--pipeline", "order", "--limit", "1"),
    ("start", "order"),
    ("start", "order", "--wait"),
    ("watch", "r-1"),
]


def assert_shown(text: str) -> None:
    assert [it for it in OBEYED if it in text] == []
    assert "\\x1b]0;owned" in text
    assert "\\u202e" in text
    assert "[bold red]x[/]" in text


@pytest.mark.parametrize("words", COMMANDS)
def test_a_terminal_does_not_obey_a_server(shell: Shell, url: str, words: tuple[str, ...]) -> None:
    assert_shown(shell.on_terminal(*words, "--url", url, COLUMNS="400"))


@pytest.mark.parametrize("words", [("show", "r-1"), ("start", "order", "--wait")])
def test_nor_does_a_real_one(shell: Shell, url: str, words: tuple[str, ...]) -> None:
    assert_shown(shell.on_real_terminal(*words, "--url", url, COLUMNS="400"))


@pytest.mark.parametrize("words", COMMANDS)
def test_neither_do_lines_of_a_pipe(shell: Shell, url: str, words: tuple[str, ...]) -> None:
    done = shell.run(*words, "--url", url)

    assert done.returncode in (0, 1, 2)
    assert_shown(done.stdout + done.stderr)


@pytest.mark.parametrize("words", [("runs",), ("show", "r-1"), ("trace", "r-1"), ("pause", "r-1")])
def test_json_escapes_them_and_means_the_same(
    shell: Shell, url: str, words: tuple[str, ...]
) -> None:
    done = shell.run(*words, "--url", url, "--json")

    assert all(it not in done.stdout for it in OBEYED)
    assert "\\u009b" in done.stdout
    found = json.loads(done.stdout)
    found = found.get("runs", found.get("events", [found]))[0]
    assert found.get("pipeline", found.get("detail")) == EVIL


def test_a_log_line_of_the_store_is_not_obeyed_either(shell: Shell) -> None:
    """It says of a run that cannot be read what stands there."""
    shell.run("start", "order", "--input", '{"amount": 3}')
    with sqlite3.connect(shell.folder / ".leasehold" / "leasehold.db") as store:
        store.execute("UPDATE runs SET body = ?, id = ?", (json.dumps({EVIL: 1}), EVIL))
    store.close()

    for words in (("runs",), ("audit",), ("sweep",)):
        done = shell.run(*words)
        assert [it for it in OBEYED if it in done.stdout + done.stderr] == []
        assert shell.on_terminal(*words).count("\x1b]") == 0
    assert "\\x1b]0;owned" in shell.run("audit").stdout


@pytest.mark.parametrize(
    "body",
    [
        "[" * 100_000,
        '{"runId": "\\ud800"}',
        json.dumps(RUN | {"plan": ["a", "b"]}),
        json.dumps(RUN | {"createdAt": "0001-01-01T00:00:00+14:00"}),
        json.dumps(RUN | {"labels": ["\ud800"]}),
    ],
)
def test_an_answer_that_cannot_be_shown_is_no_mistake_of_this_program(
    shell: Shell, body: str
) -> None:
    class Odd(Hostile):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

    server = HTTPServer(("127.0.0.1", 0), Odd)
    with while_serving(server):
        for words in (("show", "r-1"), ("show", "r-1", "--json"), ("why", "r-1")):
            done = shell.run(*words, "--url", f"http://127.0.0.1:{server.server_port}")
            assert done.returncode in (0, 2), done.stderr
            assert "Traceback" not in done.stderr


def test_an_answer_without_an_end_is_not_kept(shell: Shell) -> None:
    """Nor is a refusal shown that fills the terminal."""
    sent = 0

    class Endless(Hostile):
        def do_GET(self) -> None:
            nonlocal sent
            if self.path.endswith("refused"):
                self._answer(400, {"error": {"code": "x", "message": "y" * 1_000_000}})
                return
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):  # it listens no more
                while sent < 512:
                    self.wfile.write(b" " * 2**20)
                    sent += 1

    server = HTTPServer(("127.0.0.1", 0), Endless)
    url = f"http://127.0.0.1:{server.server_port}"
    with while_serving(server):
        endless, refused = (shell.run("show", it, "--url", url) for it in ("r-1", "r-refused"))

    assert endless.returncode == 2
    assert "larger than" in endless.stderr
    assert sent < 128
    assert len(refused.stderr) < 2000


def test_a_run_that_only_a_later_version_understands_does_not_end_the_check(shell: Shell) -> None:
    class Later(Hostile):
        def do_GET(self) -> None:
            runs = [NAMED | {"status": "HIBERNATING"}] if "PENDING" in self.path else []
            self._answer(200, {"runs": runs, "nextPageToken": None})

    server = HTTPServer(("127.0.0.1", 0), Later)
    with while_serving(server):
        said = shell.run("check", "--live-runs", "--url", f"http://127.0.0.1:{server.server_port}")

    assert (said.returncode, "Traceback" in said.stderr) == (0, False)
    assert "Run r-1 cannot be read by this version" in said.stderr
