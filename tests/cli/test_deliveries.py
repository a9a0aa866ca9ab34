"""`leasehold deliveries` and `deliver`, and what `show`, `why` and `trace` say of announcements."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.cli.test_hostile_text import EVIL, OBEYED
from tests.worlds.shell import Shell, only_line, without_controls

CATALOG = """
from leasehold import LogChannel, Registry
from shop import PIPELINES, STEPS

CHANNELS = Registry("channels", [LogChannel(name="log"), LogChannel(name="audit")])
"""
HEAD = "RUN\tCHANNEL\tEVENT\tSTATE\tTRIES\tUNKNOWN\tCREATED\tDETAIL"
ORDER = ("start", "order", "--input", '{"amount": 3}')


@pytest.fixture
def shell(shell: Shell) -> Shell:
    (shell.folder / "announcing.py").write_text(CATALOG)
    shell.settings["LEASEHOLD_CATALOG"] = "announcing"
    return shell


@pytest.fixture
def run_id(shell: Shell) -> str:
    """A run that was cancelled, whose announcement is due to both channels."""
    run_id: str = shell.json(*ORDER)["runId"]
    shell.run("cancel", run_id)
    return run_id


def edit(shell: Shell, run_id: str, channel: str, **fields: Any) -> None:
    """Write fields of a delivery by hand."""
    with closing(sqlite3.connect(shell.folder / ".leasehold" / "leasehold.db")) as store, store:
        (id_, body), *_ = store.execute(
            "SELECT id, body FROM deliveries WHERE id LIKE ?", (f"{run_id}:%:{channel}",)
        )
        edited = json.dumps(json.loads(body) | fields)
        state = json.loads(edited)["state"]
        store.execute(
            "UPDATE deliveries SET body = ?, state = ? WHERE id = ?", (edited, state, id_)
        )


TOLD = {"state": "announced", "messageId": "m-1", "announcedAt": "2026-01-01T00:00:00Z"}
LOST = {"state": "given_up", "givenUpWhy": "404 gone", "givenUpAt": "2026-01-01T00:00:00Z"}


def test_deliveries_are_listed_of_a_run_and_of_all(shell: Shell, run_id: str) -> None:
    edit(shell, run_id, "log", **TOLD)

    all_ = shell.run("deliveries")
    of_run = shell.run("deliveries", run_id, "--channel", "log")
    due = shell.json("deliveries", "--state", "due")

    head, *rows = all_.stdout.splitlines()
    assert head == HEAD
    assert len(rows) == 2
    (row,) = of_run.stdout.splitlines()[1:]
    assert row.split("\t")[:6] == [run_id, "log", "run_cancelled", "announced", "0", "0"]
    assert row.endswith("\tas m-1")
    assert [one["channel"] for one in due["deliveries"]] == ["audit"]
    assert due["nextPageToken"] is None


def test_pages_follow_each_other(shell: Shell, run_id: str) -> None:
    first = shell.run("deliveries", "--limit", "1")
    token = only_line(first.stderr).rpartition(" ")[2]
    second = shell.json("deliveries", "--limit", "1", "--page-token", token)

    assert first.stdout.splitlines()[1].split("\t")[1] != second["deliveries"][0]["channel"]
    assert second["nextPageToken"] is None
    refused = shell.run("deliveries", run_id, "--page-token", token)
    assert (refused.returncode, "leave out one" in only_line(refused.stderr)) == (2, True)


def test_where_nothing_is_announced_a_line_says_so_and_no_store_is_made(shell: Shell) -> None:
    nowhere = shell.run("deliveries")
    files = shell.files()
    run_id = shell.json(*ORDER)["runId"]
    nothing = shell.run("deliveries", run_id)

    assert only_line(nowhere.stderr).startswith("no deliveries: there is no store yet")
    assert ".leasehold" not in files
    assert only_line(nothing.stderr) == f"no deliveries of run {run_id}"
    assert (nothing.returncode, nothing.stdout) == (0, "")


def test_show_says_who_was_told_and_why_who_was_not(shell: Shell, run_id: str) -> None:
    edit(shell, run_id, "log", **TOLD)
    edit(shell, run_id, "audit", **LOST)

    show, why = shell.run("show", run_id), shell.run("why", run_id)

    assert "announced: to log; audit given up (404 gone)" in show.stdout.splitlines()
    assert why.stdout.splitlines()[1] == (
        "Channel audit did not receive run_cancelled: 404 gone. :deliver sends it once more."
    )
    assert f"deliver {run_id} --channel audit" in why.stderr
    assert [one["channel"] for one in shell.json("why", run_id)["deliveries"]] == ["audit"]


def test_who_cancels_without_a_catalog_leaves_it_to_the_sweep_who_is_told(shell: Shell) -> None:
    """The person on call has the store, and not always the code: the run is cancelled still."""
    shell.settings["PIPELINE_DISPATCH_GRACE_S"] = "0.001"  # after that the sweep comes by
    run_id = shell.json(*ORDER)["runId"]

    done = shell.run("cancel", run_id, LEASEHOLD_CATALOG="nowhere.at_all")
    before = shell.json("deliveries", run_id)["deliveries"]
    swept = shell.run("sweep")

    assert (done.returncode, swept.returncode) == (0, 0)
    assert before == []
    after = shell.json("deliveries", run_id)["deliveries"]
    assert {one["channel"]: one["state"] for one in after}["log"] == "announced"
    assert {one["channel"] for one in after} == {"log", "audit"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("r-none", "--channel", "log"), "'r-none'"),
        (("RUN",), "Missing option '--channel'"),
        (("RUN", "--channel", "slak"), "known: log, audit."),
        (("RUN", "--channel", ""), "channel is ''"),
        (("RUN", "--channel", "log", "--reason", "a\nb"), "reason is"),
    ],
)
def test_what_cannot_be_delivered_is_refused_in_one_line(
    shell: Shell, run_id: str, words: tuple[str, ...], says: str
) -> None:
    done = shell.run("deliver", *(run_id if word == "RUN" else word for word in words))

    assert (done.returncode, done.stdout) == (2, "")
    assert says in only_line(done.stderr)


@pytest.fixture
def hostile(shell: Shell, run_id: str) -> Iterator[str]:
    """A run one of whose deliveries a stranger has edited."""
    words = dict.fromkeys(("summary", "step", "event", "priority", "lastError", "messageId"), EVIL)
    edit(shell, run_id, "log", **words, **LOST | {"givenUpWhy": EVIL})
    edit(shell, run_id, "audit", **words)
    return run_id


@pytest.mark.parametrize("command", ["deliveries", "show", "why"])
def test_what_a_stranger_wrote_into_a_delivery_is_shown_and_not_obeyed(
    shell: Shell, hostile: str, command: str
) -> None:
    piped = shell.run(command, hostile)
    screen = shell.on_terminal(command, hostile, COLUMNS="400")
    as_json = shell.run(command, hostile, "--json")

    assert piped.returncode == as_json.returncode == 0
    assert [it for it in OBEYED if it in piped.stdout + piped.stderr + as_json.stdout] == []
    assert [it for it in OBEYED if it in without_controls(screen)] == []
    assert "\\x1b]0;owned" in piped.stdout


def test_what_runs_in_the_command_tells_the_log_there(shell: Shell) -> None:
    """An announcement that cannot be seen would be useless."""
    done = shell.run(*ORDER, "--in-process")
    run_id = done.stdout.split()[1]

    told = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert done.returncode == 0
    assert [(one["event"], one["runId"]) for one in told] == [("RUN_COMPLETED", run_id)] * 2
    assert {one["channel"] for one in told} == {"log", "audit"}
    states = [one["state"] for one in shell.json("deliveries", run_id)["deliveries"]]
    assert states == ["announced", "announced"]


def test_the_trace_says_whom_it_was_sent_to_and_who_asked_for_it(shell: Shell) -> None:
    run_id = shell.run(*ORDER, "--in-process").stdout.split()[1]
    shell.run("deliver", run_id, "--channel", "log", "--reason", "once more")

    events = [line.split("\t") for line in shell.run("trace", run_id).stdout.splitlines()]
    whom = {line[2]: line[-1] for line in events if line[2].startswith("announcement_")}

    sent = {"run_completed to log", "run_completed to audit"}
    assert whom["announcement_sent"] in sent
    assert whom["announcement_requested"].startswith("by ")
    assert whom["announcement_requested"].endswith(": run_completed to log: once more")


def test_one_that_is_asked_for_on_a_store_says_who_sends_it(shell: Shell) -> None:
    run_id = shell.run(*ORDER, "--in-process").stdout.split()[1]

    done = shell.run("deliver", run_id, "--channel", "log")

    assert (done.returncode, done.stdout) == (
        0,
        f"run {run_id} channel log due: waits for its message\n",
    )
    hint, look = done.stderr.splitlines()
    assert hint.startswith("It is due. Unless a server of this store runs, and sends it, do so")
    assert hint.endswith(" dev")
    assert look.endswith(f"deliveries {run_id}")
    assert shell.json("deliver", run_id, "--channel", "log")["round"] == 2
