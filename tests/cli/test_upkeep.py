"""`audit` and `sweep`: what is wrong with a store, and what is due in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.domain.manifest import run_ref
from leasehold.domain.stored import Write
from tests.api.functions.test_sweep_dead_letters import NOTHING
from tests.worlds.catalogs import shop
from tests.worlds.shell import Shell, only_line

pytestmark = pytest.mark.catalog(
    shop, PIPELINE_CHARGE_TIMEOUT_MS="20000", PIPELINE_SHIP_TIMEOUT_MS="soon"
)

IN_ORDER = {"found": [], "left": 0, "waitingForCode": 0, "artifactsProblem": None}
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
    assert shell.json("audit") == IN_ORDER


def test_an_order_that_no_process_works_in_is_called_wrong(shell: Shell, run_id: str) -> None:
    done = shell.run("audit")

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [
        "every run is in order",
        "but no server works on this store; type `leasehold serve`",
    ]
    shell.run("cancel", run_id)
    assert only_line(shell.run("audit").stderr) == "every run is in order"


def test_a_run_without_an_alarm_is_found_and_repaired(
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
    assert "1 left; --repair repairs it" in only_line(found.stderr)
    assert answer.returncode == 1
    (one,) = json.loads(answer.stdout)["found"]
    assert (one["runId"], one["breaches"][0]["code"], one["outcome"]) == (run_id, "no_alarm", None)
    assert repaired.returncode == 0
    assert "repaired: It gets its alarm." in repaired.stdout
    assert "1 repaired, 0 left" in repaired.stderr.splitlines()[0]
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


def overdue(documents: SqliteDocuments, run_id: str, status: str = "PENDING", **at: Any) -> None:
    """Let an hour have passed since the run was last written, with this in its position."""
    long_ago = SystemClock().now() - timedelta(hours=1)
    found = documents.get(run_ref(run_id))
    assert found is not None
    position = found.document["position"]
    dispatch = {**position["dispatch"], "notBefore": long_ago}
    position = {**position, **at, "dispatch": dispatch}
    write(documents, run_id, status=status, alarmAt=long_ago, position=position)


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
    logged, said = done.stderr.splitlines()
    assert json.loads(logged)["event"] == "STEP_TERMINATED"
    assert said.startswith("They wait for a worker. Unless")
    assert again == NOTHING
    assert shell.json("show", run_id)["dispatch"]["generation"] == 2


def test_a_sweep_without_a_queue_leaves_waiting_runs_to_others(
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


# -- of a server -----------------------------------------------------------------------------------


def test_a_server_says_why_as_the_store_does(shell: Shell, run_id: str, server: str) -> None:
    shell.run("pause", run_id)

    here, there = shell.run("why", run_id), shell.run("why", run_id, "--url", server)
    unknown = shell.run("why", "r-none", "--url", server)

    assert shell.json("why", run_id, "--url", server) == shell.json("why", run_id)
    assert (there.returncode, there.stdout) == (0, here.stdout)
    assert [line.partition("leasehold ")[2] for line in there.stderr.splitlines()] == [
        f"resume {run_id} --url {server}",
        f"cancel {run_id} --generation 1 --url {server}",
    ]
    assert unknown.returncode == 2
    assert "Run 'r-none' is not in the store" in only_line(unknown.stderr)


def test_a_server_is_audited_and_repaired_by_its_own_store(
    shell: Shell, run_id: str, documents: SqliteDocuments, server: str
) -> None:
    """To look is a GET, to repair a POST: following a link never changes a run."""
    in_order = shell.run("audit", "--url", server)
    write(documents, run_id, alarmAt=None)

    here, there = shell.run("audit"), shell.run("audit", "--url", server)
    looked = shell.json("why", run_id)["waitsFor"]
    repaired = shell.run("audit", "--repair", "--url", server)

    assert (in_order.returncode, only_line(in_order.stderr)) == (0, "every run is in order")
    assert (there.returncode, there.stdout, there.stderr) == (1, here.stdout, here.stderr)
    assert looked.startswith("a repair")
    assert repaired.returncode == 0
    assert "repaired: It gets its alarm." in repaired.stdout
    assert shell.json("audit", "--url", server) == IN_ORDER


def test_a_server_says_what_no_repair_repairs_as_the_store_does(
    shell: Shell, run_id: str, server: str
) -> None:
    """A server would answer that all is well."""
    shell.run("cancel", run_id)
    (shell.folder / ".leasehold/artifacts").rename(shell.folder / "elsewhere")
    (shell.folder / ".leasehold/artifacts").mkdir()  # as where the volume is not mounted

    here, there = shell.run("audit"), shell.run("audit", "--url", server)

    said = here.stderr.splitlines()
    assert (here.returncode, there.returncode) == (0, 0)
    assert there.stderr.splitlines()[-2:] == said  # before them, the log of the server
    assert said[1].startswith("but runs may wait for files: ")
    assert shell.json("audit", "--url", server) == shell.json("audit")


def test_a_server_sweeps_once(
    shell: Shell, run_id: str, documents: SqliteDocuments, server: str
) -> None:
    long_ago = SystemClock().now() - timedelta(hours=1)
    lease = {"leaseId": "lease-1", "holder": "elsewhere", "acquiredAt": long_ago}
    lease |= {"expiresAt": long_ago, "maxExpiresAt": long_ago}
    overdue(documents, run_id, status="IN_PROGRESS", lease=lease, heartbeatAt=long_ago)

    done = shell.run("sweep", "--url", server)

    assert done.returncode == 0
    ended, swept = map(json.loads, done.stderr.splitlines())  # the log of the server
    assert (ended["event"], ended["reason"]) == ("STEP_TERMINATED", "lease_expired")
    assert swept["event"] == "SWEEP_FINISHED"
    assert "recovered: 1\n" in done.stdout
    assert shell.json("sweep", "--url", server) == NOTHING


def test_the_registry_of_a_server_is_what_holds_there(shell: Shell, server: str) -> None:
    here, there = shell.run("registry"), shell.run("registry", "--url", server)

    assert "\t30 s (entry)\t" in here.stdout.splitlines()[2]
    assert "\t20 s (PIPELINE_CHARGE_TIMEOUT_MS)\t" in there.stdout.splitlines()[2]
    assert there.stderr.splitlines()[-1].startswith("warning: PIPELINE_SHIP_TIMEOUT_MS refused")
    pipelines = shell.json("registry")["pipelines"]
    assert shell.json("registry", "--url", server)["pipelines"] == pipelines


@pytest.mark.parametrize("command", [("why", "r-1"), ("audit",), ("sweep",), ("registry",)])
def test_a_server_that_does_not_answer_is_told_in_one_line(
    shell: Shell, command: tuple[str, ...]
) -> None:
    refused = shell.run(*command, "--url", "http://127.0.0.1:1")

    assert (refused.returncode, refused.stdout) == (2, "")
    assert "does not answer" in only_line(refused.stderr)
    assert shell.files() == ["shop.py"]


def test_why_offers_no_operation_that_would_be_refused(
    shell: Shell, run_id: str, documents: SqliteDocuments
) -> None:
    """A deploy that has forgotten the pipeline can make no new run of it; `why` says so."""
    write(documents, run_id, pipeline="forgotten", alarmAt=None, cancelled=True)

    refused = shell.run("recreate", run_id)
    explained = shell.json("why", run_id)

    assert refused.returncode == 1
    assert "Nothing was changed" in only_line(refused.stderr)
    assert explained["operations"] == []
    assert "`recreate` is refused: " in explained["words"]
