"""`leasehold explain-limit`: how long attempts took, and what another limit would have done."""

from __future__ import annotations

import io
import re
import sys
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.cli.explain_limit import _ink  # the only one to ask which characters there are
from leasehold.domain.ledger import ledger_ref
from leasehold.domain.stored import Document, Write
from tests.worlds.shell import Shell, only_line, without_controls

ORDER = ("start", "order", "--input", '{"amount": 3}', "--in-process")

SCREEN = """\
step      charge, strategy fixed
in force  handler 30 s (entry), deadline 60 s (entry)
proposed  handler 135.5 s, deadline 180 s
attempts  62 of the ledger since TIME: 60 with a result, 2
          clipped; 12 of them cold
clipped   2 attempts, which threw away 1.0 min of attempts

      up to  bootstrap          execution          whole attempt
      1.0 s  ██████████ 20
      1.2 s
      1.6 s
      2.0 s
      2.4 s  ███████████ 22
      3.1 s  ██████████ 20
      3.8 s
      4.8 s                     ██ 3
      6.0 s                     ██ 3               █ 1
      7.5 s                     ██████ 8           ███ 5
      9.3 s                     ██████ 8           ██████ 8
       12 s                     ██████ 8           ██████ 8
       15 s                     █████████ 12       ████████ 12
       15 s  ─ 0.0 % longer ───── 25.8 % longer ──── 38.7 % longer ─── what if
       18 s                     ███████████ 15     ███████████ 16
       23 s                     ██ 3               ███████ 10
       28 s                     ░ 2
       30 s  ─ 0.0 % longer ───── 3.2 % longer ───── 3.2 % longer ──── in force
       36 s                                        ░ 2
       44 s
       56 s
  1 min 9 s
 1 min 27 s
 1 min 48 s
 2 min 16 s  ─ 0.0 % longer ───── 3.2 % longer ───── 3.2 % longer ──── proposed
 2 min 16 s
█ ended by itself   ░ was ended, would have taken longer

LIMIT     AFTER       WOULD HAVE ENDED  THROWN AWAY  A HANG IS NOTICED
in force  30 s        0 of 62           0.0 min      after 30 s
proposed  2 min 16 s  0 of 62           0.0 min      1 min 46 s later
what if   15 s        22 of 62          5.5 min      15 s sooner

why
  The declared limit stays in force, as the strategy is fixed.
  Of 62 attempts, 0 of them cut off, 95 % end their bootstrap within 4.7 s, with
    99 % confidence.
  Of 62 attempts, 2 of them cut off, 95 % end their execution within 30.3 s,
    with 99 % confidence.
  The declared limit, 60 s (30 s for execution), counts as 20 samples beside 62.
  The window is small, so the limit stays above its longest success.
an attempt that was clipped below a limit might have had a result under it
"""


def write_attempts(shell: Shell) -> None:
    """60 attempts with a result after 5 to 22 s, some of them cold, and 2 that were clipped."""
    folder = shell.folder / ".leasehold"
    folder.mkdir(exist_ok=True)
    store = SqliteDocuments(folder / "leasehold.db", SystemClock())
    for number in range(62):
        took = {"bootstrapSeconds": 1.0 + number % 3, "executionSeconds": 4.0 + number % 16}
        step: Document = {**took, "coldStart": number % 6 == 0}
        if number < 2:
            clip = {"end": "failed", "reason": "agent_timeout_exceeded", "coldStart": True}
            step = {"bootstrapSeconds": 2.0, "executionSeconds": 28.0, **clip}
        store.transact(ledger_ref(f"r-{number}"), partial(_written, number, step))
    store.close()


def _written(number: int, step: Document, _: object, now: Any) -> Write[None]:
    at = now - timedelta(hours=1, minutes=number)
    record = {"earlierAttempts": [{**step, "at": at}]} if "end" in step else step
    steps = {"charge": {"completedAt": at, **record}}
    if "end" in step:
        del steps["charge"]["completedAt"]
    return Write(None, {"endedAt": at, "stepTypes": ["charge"], "steps": steps})


def as_screen(sent: str) -> str:
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", without_controls(sent))
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def test_a_terminal_of_80_columns_shows_the_phases_the_limits_and_what_each_would_do(
    shell: Shell,
) -> None:
    write_attempts(shell)

    screen = shell.on_terminal("explain-limit", "charge", "--what-if", "15s", COLUMNS="80")

    assert as_screen(screen) == SCREEN
    assert max(map(len, without_controls(screen).splitlines())) <= 80


def test_without_a_terminal_the_histogram_is_the_same_and_the_table_has_tabs(shell: Shell) -> None:
    write_attempts(shell)

    done = shell.run("explain-limit", "charge", "--what-if", "15s")

    drawn = SCREEN.partition("\n\n")[2].partition("\n\n")[0]
    assert drawn in done.stdout
    assert "what if\t15 s\t22 of 62\t5.5 min\t15 s sooner\n" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_terminal_without_unicode_gets_other_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))

    ink = _ink()

    assert (ink.complete, ink.censored, ink.rule) == ("#", ">", "-")


def test_a_step_of_runs_that_ended_is_explained_the_same_over_http(
    shell: Shell, server: str
) -> None:
    for _ in range(3):
        assert shell.run(*ORDER).returncode == 0

    here = shell.json("explain-limit", "charge", "--what-if", "1h", "--what-if", "5m")
    words = ("explain-limit", "charge", "--what-if", "5m", "--what-if", "1h", "--url", server)
    there = shell.json(*words)
    shown = shell.run(*words)

    assert [one["outcome"] for one in here["samples"]] == ["success"] * 3
    assert [(one["limit"], one["seconds"]) for one in here["limits"]] == [
        ("in_force", 30),
        ("proposed", here["budget"]["proposed"]["timeoutS"]),
        ("what_if", 300),
        ("what_if", 3600),
    ]
    assert {one["ended"] for one in here["limits"]} == {0}
    assert sum(one["complete"]["total"] for one in here["histogram"]) == 3
    assert here["settings"] == {
        "percentile": 0.95,
        "confidence": 0.99,
        "safetyBufferS": 180,
        "roundingGranularityS": 60,
        "windowS": 7 * 86_400,
        "shortestS": 15,
        "longestS": 1800,
    }
    for answer in (here, there):
        del answer["budget"]["derivedAt"], answer["budget"]["changedAt"]
    assert there == here
    assert shown.stdout.startswith("step: charge, strategy fixed\n")


def test_a_server_that_does_not_know_the_step_gets_the_same_line(shell: Shell, server: str) -> None:
    done = shell.run("explain-limit", "nope", "--url", server)

    assert (done.returncode, done.stdout) == (2, "")
    assert "'nope' is not in the dispatch registry; known: reserve" in only_line(done.stderr)


def test_where_a_variable_sets_the_limit_it_is_the_one_in_force(shell: Shell) -> None:
    write_attempts(shell)

    done = shell.run("explain-limit", "charge", PIPELINE_CHARGE_TIMEOUT_MS="20000")

    assert "in force: handler 20 s (PIPELINE_CHARGE_TIMEOUT_MS), deadline 60 s" in done.stdout
    assert "in force\t20 s\t3 of 62\t1.0 min\tafter 20 s\n" in done.stdout


def test_a_step_without_attempts_gets_one_line_that_says_what_to_do(shell: Shell) -> None:
    nowhere = shell.run("explain-limit", "charge")
    files = shell.files()
    write_attempts(shell)
    unused = shell.run("explain-limit", "ship")

    assert (nowhere.returncode, nowhere.stdout) == (0, "")
    assert "ended in the last 7 d: there is no store yet at sqlite:" in only_line(nowhere.stderr)
    assert files == ["shop.py"]
    assert (unused.returncode, unused.stdout) == (0, "")
    assert only_line(unused.stderr) == (
        "no attempt of step ship ended in the last 7 d; its handler has 30 s (entry). "
        "Let runs end that have the step, and look again."
    )
    assert shell.json("explain-limit", "ship")["histogram"] == []


def test_money_stands_beside_the_time_where_handlers_say_what_they_spend(shell: Shell) -> None:
    folder = shell.folder / ".leasehold"
    folder.mkdir(exist_ok=True)
    store = SqliteDocuments(folder / "leasehold.db", SystemClock())
    for number in range(10):
        step = {"executionSeconds": 20.0, "usd": 10.0}
        store.transact(ledger_ref(f"r-{number}"), partial(_written, number, step))
    clipped = {"end": "failed", "reason": "agent_timeout_exceeded", "executionSeconds": 30.0}
    store.transact(ledger_ref("r-10"), partial(_written, 10, {**clipped}))
    store.close()

    done = shell.run("explain-limit", "charge", "--what-if", "5s")
    (_, _, found) = shell.json("explain-limit", "charge", "--what-if", "5s")["limits"]

    assert "what if\t5.0 s\t10 of 11\t0.8 min, 25.00 USD\t25 s sooner" in done.stdout
    assert (found["lostUsd"], found["savedUsd"]) == (25.0, 0.0)


def test_after_a_drift_a_line_says_which_attempts_are_drawn_and_which_are_in_the_table(
    shell: Shell,
) -> None:
    """The histogram seems to contradict the table beside it, which has the attempts before."""
    folder = shell.folder / ".leasehold"
    folder.mkdir(exist_ok=True)
    store = SqliteDocuments(folder / "leasehold.db", SystemClock())
    for number in range(80):
        is_late = number < 40
        took = {
            "bootstrapSeconds": 1.0,
            "executionSeconds": (5.0 if is_late else 20.0) + number % 3,
        }
        written = partial(_written, number if is_late else number + 2 * 24 * 60, took)
        store.transact(ledger_ref(f"r-{number}"), written)
    store.close()

    done = shell.run("explain-limit", "charge", "--what-if", "10s")

    assert only_line(done.stderr) == (
        "durations changed: the histogram and its shares have the 40 attempts of the last day, as "
        "the proposal does; the table has all 80"
    )
    assert "0.0 % longer" in next(line for line in done.stdout.splitlines() if "what if" in line)
    assert "40 of 80" in done.stdout


def test_attempts_that_all_failed_say_nothing_of_how_long_the_step_takes(shell: Shell) -> None:
    write_attempts(shell)
    shell.run("start", "doomed", "--input", '{"amount": 13}', "--in-process")

    done = shell.run("explain-limit", "refuse")

    assert "attempts: 1 of the ledger since" in done.stdout
    assert "up to" not in done.stdout
    assert only_line(done.stderr).startswith("there is no histogram: failed attempts say nothing")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nope",), "'nope' is not in the dispatch registry; known: reserve, charge"),
        (("../x",), "'../x' is not in the dispatch registry"),
        ((), "Missing argument 'STEP'"),
        (("charge", "--what-if", "0s"), "'0s'; allowed: a span such as 90s, 15m or 2h, up to 7d"),
        (("charge", "--what-if", "-5m"), "'-5m'; allowed: a span"),
        (("charge", "--what-if", "8d"), "'8d'; allowed: a span"),
        (("charge", "--what-if", "nan"), "'nan'; allowed: a span"),
        (("charge", "--what-if", "999999w"), "'999999w'; allowed: a span"),
        (("charge", "--what-if", "300"), "'300'; allowed: a span"),
    ],
)
def test_bad_input_gets_one_line(shell: Shell, words: tuple[str, ...], says: str) -> None:
    write_attempts(shell)

    done = shell.run("explain-limit", *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert says in only_line(done.stderr)
