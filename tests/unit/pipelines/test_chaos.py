"""The demo with chaos, as people run it: real processes, real signals."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples.demo.chaos import account, pace_for
from leasehold.domain import lifecycle
from tests.unit.pipelines.demos import ROOT, demo
from tests.worlds.builders import new_run, rules_of, step_settings

LOOP = ROOT / "examples/demo/hanging_publish.py"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.nightly  # the gate has the demo without more kills: see test_demo.py
def test_killed_and_stopped_workers_and_a_hung_step_cost_an_attempt_each_and_no_output(
    two_docs: Path, tmp_path: Path
) -> None:
    """What is said while it goes on is for people; the account is what the trace says."""
    done = demo(two_docs, tmp_path / "data", CHAOS="1")

    assert done.returncode == 0, done.stderr
    report = [re.sub(r"\d+(\.\d)?", "N", line) for line in done.stderr.splitlines()]
    words = "ing the worker that runs", " runs again", "hangs"
    assert [line for line in report if any(word in line for word in words)] == [
        "killing the worker that runs extraction (SIGKILL, pid N)",
        "extraction runs again, N s later",
        "asking the worker that runs synthesis to stop (SIGTERM, pid N)",
        "synthesis runs again, N s later",
        "killing the worker that runs review, iteration N of N is kept (SIGKILL, pid N)",
        "review runs again, N s later",
        "publish hangs, and ignores its stop; its limit is N s",
        "publish was ended at its limit, and runs again",
    ]
    account, kill, announced, report = done.stdout.split("\n\n")[:4]
    told = [re.sub(r"pid \d+", "pid N", line.strip()) for line in account.strip().splitlines()]
    begins = (
        (
            "The chaos:    extraction, attempt 1: SIGKILL, pid N; "
            "lease_expired: The holder's process is gone."
        ),
        (
            "synthesis, attempt 1: SIGTERM, pid N; instance_shutdown: "
            "SIGTERM: the instance was shut down; the lease was released."
        ),
        "publish, attempt 1: agent_timeout_exceeded; it hung at ",
        "each step handed off once; 8 leases for 4 steps",
    )
    assert [line[: len(begin)] for line, begin in zip(told, begins, strict=True)] == list(begins)
    loop = LOOP.read_text().partition("def wait_for_what_never_comes")
    lines = range(loop[0].count("\n") + 1, LOOP.read_text().count("\n") + 1)
    assert re.search(r"hanging_publish\.py\D+(\d+)", told[2])
    assert int(re.findall(r"hanging_publish\.py\D+(\d+)", told[2])[0]) in lines
    assert "The report: " in report
    assert [re.sub(r"pid \d+", "pid N", line.strip()) for line in kill.strip().splitlines()] == [
        "The kill:     review was killed with iteration 4 of 5 kept (SIGKILL, pid N)",
        "it went on with iteration 5: the trace says checkpoint_resumed",
        "4 of 5 calls to the agent were not made again",
    ]
    assert [line.strip() for line in announced.strip().splitlines()[:3]] == [
        "Announced:    to log: run_completed",
        "its message was pushed twice, and the second push sent nothing:",
        "the trace says announcement_sent once for each channel",
    ]
    assert done.stderr.count('"event": "RUN_COMPLETED"') == 1
    assert "read 2 documents" in done.stdout
    (published,) = tmp_path.rglob("report.md")
    assert "| Supervision | 5 iterations, 5 calls to the agent in 2 attempts; 4 of them made " in (
        published.read_text()
    )


@pytest.mark.nightly  # the account of it is a function, and tested below
def test_a_chaos_that_found_no_step_to_strike_is_no_success(two_docs: Path, tmp_path: Path) -> None:
    """Steps that take milliseconds end before they can be struck; the review is done anyway.

    On a machine that is busy they may take long enough for both strikes.
    """
    done = demo(two_docs, tmp_path / "data", CHAOS="1", REVIEW_AGENT_PACE_MS="0")

    assert (done.returncode == 1) == ("not done: " in done.stdout), done.stdout
    assert done.returncode in (0, 1)
    assert "The report: " in done.stdout


def test_the_account_names_each_strike_that_was_not_done() -> None:
    run = lifecycle.start(None, NOW, rules=rules_of(step_settings()), new=new_run()).manifest

    survived, lines = account([], run, [])

    assert not survived
    assert lines[-2].startswith("not done: SIGKILL and SIGTERM; no step ")
    assert lines[-1] == "not done: publish did not hang"


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({"CHAOS": "yes"}, "error: CHAOS is 'yes'; allowed: 1, or nothing\n"),
        (
            {"REVIEW_AGENT_PACE_MS": "fast"},
            (
                "error: REVIEW_AGENT_PACE_MS is 'fast'; "
                "allowed: milliseconds, a whole number up to 60000.\n"
            ),
        ),
    ],
)
def test_what_cannot_be_set_is_said_in_one_line(
    two_docs: Path, tmp_path: Path, environ: dict[str, str], line: str
) -> None:
    done = demo(two_docs, tmp_path / "data", **environ)

    assert (done.returncode, done.stderr) == (2, line)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("documents", "pace"), [(0, "600"), (1, "600"), (20, "150"), (900, "50")])
def test_many_documents_do_not_make_the_demo_long(documents: int, pace: str) -> None:
    assert pace_for(documents) == pace
