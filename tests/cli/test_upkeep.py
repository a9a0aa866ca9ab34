"""`audit` and `sweep`: what is wrong with a store, and what is due in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.domain.document import Write
from leasehold.domain.manifest import run_ref
from tests.cli.shell import Shell, only_line
from tests.functions.test_sweep_dead_letters import NOTHING

ORDER = ("start", "order", "--input", '{"amount": 3}', "--json")


@pytest.fixture
def run_id(shell: Shell) -> str:
    """A run that waits for a worker."""
    return str(json.loads(shell.run(*ORDER).stdout)["runId"])


@pytest.fixture
def documents(shell: Shell, run_id: str) -> Iterator[SqliteDocuments]:
    store = SqliteDocuments(shell.folder / ".leasehold/leasehold.db", SystemClock())
    yield store
    store.close()


def write(documents: SqliteDocuments, run_id: str, **fields: Any) -> None:
    """Write fields of a run as no transition would; one that is None is taken away."""

    def written(found: Any, _: Any) -> Write[None]:
        whole = {**found, **fields}
        return Write(None, {name: value for name, value in whole.items() if value is not None})

    documents.transact(run_ref(run_id), written)


def test_a_store_that_is_in_order_or_not_there_is_said_to_be(shell: Shell) -> None:
    absent = shell.run("audit", "--repair")
    files = shell.files()
    shell.run(*ORDER)

    assert (absent.returncode, absent.stdout, files) == (0, "", ["shop.py"])
    assert only_line(absent.stderr) == "every run is in order"
    assert shell.json("audit") == {"found": [], "left": 0}


def test_a_run_that_nobody_would_look_at_again_is_found_and_repaired(
    shell: Shell, run_id: str, documents: SqliteDocuments
) -> None:
    write(documents, run_id, alarmAt=None)

    found = shell.run("audit")
    answer = shell.run("audit", "--json")
    repaired = shell.run("audit", "--repair")
    after = shell.run("audit")

    assert found.returncode == 1
    finding = "no_alarm: It is PENDING, and owes its task, and has no alarm."
    assert found.stdout.splitlines() == [
        "RUN\tBREACH\tREPAIR",
        f"{run_id}\t{finding}\tIt gets its alarm.",
    ]
    assert "1 left; --repair repairs them" in only_line(found.stderr)
    assert answer.returncode == 1
    (one,) = json.loads(answer.stdout)["found"]
    assert (one["runId"], one["breaches"][0]["code"], one["outcome"]) == (run_id, "no_alarm", None)
    assert repaired.returncode == 0
    assert "repaired: It gets its alarm." in repaired.stdout
    assert "1 repaired, 0 left" in only_line(repaired.stderr)
    assert after.returncode == 0


def test_what_no_version_can_read_is_left_and_said_to_be(
    shell: Shell, run_id: str, documents: SqliteDocuments
) -> None:
    write(documents, run_id, paused="perhaps")

    done = shell.run("audit", "--repair")

    assert done.returncode == 1
    assert f"{run_id}\tunreadable: " in done.stdout
    assert "not repaired" in done.stdout


def test_a_sweep_of_a_store_that_is_not_there_makes_none(shell: Shell) -> None:
    assert shell.json("sweep") == NOTHING
    assert shell.files() == ["shop.py"]


def overdue(documents: SqliteDocuments, run_id: str, **fields: Any) -> None:
    """Let an hour have passed since the run was last written."""
    long_ago = SystemClock().now() - timedelta(hours=1)
    found = documents.get(run_ref(run_id))
    assert found is not None
    dispatch = {**found.document["dispatch"], "notBefore": long_ago}
    write(documents, run_id, alarmAt=long_ago, dispatch=dispatch, **fields)


def test_a_sweep_attends_to_what_is_due(
    shell: Shell, run_id: str, documents: SqliteDocuments
) -> None:
    """The worker of the run died an hour ago."""
    long_ago = SystemClock().now() - timedelta(hours=1)
    lease = {
        "leaseId": "lease-1",
        "holder": "elsewhere",
        "acquiredAt": long_ago - timedelta(seconds=30),
        "expiresAt": long_ago,
        "maxExpiresAt": long_ago,
    }
    overdue(documents, run_id, status="IN_PROGRESS", lease=lease, heartbeatAt=long_ago)

    done = shell.run("sweep")
    again = shell.json("sweep")

    assert done.returncode == 0
    assert "recovered: 1\n" in done.stdout
    assert only_line(done.stderr).startswith("They wait for a worker. Unless")
    assert again == NOTHING
    assert shell.json("show", run_id)["dispatch"]["generation"] == 2


def test_a_sweep_that_has_no_queue_leaves_what_waits_to_whoever_has_it(
    shell: Shell, run_id: str, documents: SqliteDocuments
) -> None:
    """By cron it would write a generation and an event each minute, for each run that waits."""
    overdue(documents, run_id)
    before = documents.get(run_ref(run_id))

    done, again = shell.run("sweep"), shell.json("sweep")

    after = documents.get(run_ref(run_id))
    assert before is not None
    assert after is not None
    assert (done.returncode, after.version) == (0, before.version)
    assert only_line(done.stderr).startswith("They wait for a worker. Unless")
    assert again == NOTHING | {"stillQueued": 1, "documentsRead": 1}
    assert shell.story(run_id) == ["run_started"]
