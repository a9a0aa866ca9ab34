"""A file of schema version 1, which knew no steps that remote workers claim; runs as of now."""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.domain import lifecycle
from leasehold.domain.change import on_run
from leasehold.domain.life import life_of
from leasehold.domain.manifest import manifest_of, run_ref
from leasehold.domain.status import Outcome
from leasehold.errors import StoreUnavailableError, StoreVersionError
from leasehold.ports.documents import Query
from tests.builders import rules_of, step_settings
from tests.unit.adapters.processes import open_fresh_files

SPAWN = multiprocessing.get_context("spawn")

#: The statements by which version 1 made a file.
VERSION_1 = """
PRAGMA journal_mode = WAL;
CREATE TABLE "runs" (parent TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL,
    body TEXT NOT NULL, "createdAt", "status", "pipeline", "deadLettered", "shard", "alarmAt",
    "labels", PRIMARY KEY (parent, id));
CREATE INDEX "runs_createdAt" ON "runs" (parent, "createdAt", id) WHERE "createdAt" IS NOT NULL;
CREATE INDEX "runs_status_createdAt" ON "runs" (parent, "status", "createdAt", id)
    WHERE "createdAt" IS NOT NULL;
CREATE INDEX "runs_pipeline_createdAt" ON "runs" (parent, "pipeline", "createdAt", id)
    WHERE "createdAt" IS NOT NULL;
CREATE INDEX "runs_deadLettered_createdAt" ON "runs" (parent, "deadLettered", "createdAt", id)
    WHERE "createdAt" IS NOT NULL;
CREATE INDEX "runs_shard_alarmAt" ON "runs" (parent, "shard", "alarmAt", id)
    WHERE "alarmAt" IS NOT NULL;
CREATE TABLE "trace" (parent TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL,
    body TEXT NOT NULL, PRIMARY KEY (parent, id));
PRAGMA application_id = 1279806532;
PRAGMA user_version = 1;
"""

#: A run as version 1 wrote it, whose step was parked for workers elsewhere that there were not.
PARKED: dict[str, Any] = {
    "runId": "r-1",
    "life": life_of("nonce-1"),
    "pipeline": "letters",
    "plan": ["draft"],
    "labels": ["team:a"],
    "inputDigest": "digest-1",
    "input": '{"to":"ada"}',
    "status": "PENDING",
    "paused": False,
    "cancelled": False,
    "deadLettered": False,
    "currentStep": "draft",
    "trial": 1,
    "createdAt": "2026-01-01T12:00:00Z",
    "updatedAt": "2026-01-01T12:00:00Z",
    "alarmAt": "2026-01-01T12:01:00Z",
    "shard": 9,
    "fencingToken": 0,
    "dispatch": {
        "generation": 1,
        "step": "draft",
        "trial": 1,
        "notBefore": "2026-01-01T12:00:00Z",
        "timeoutMs": 120000,
        "deadlineS": 180,
        "maxRetries": 2,
        "heartbeatS": 10.0,
        "cleanupMs": 5000,
        "queue": "draft",
        "sources": {"agentTimeout": "entry"},
        "nonce": "nonce-1",
        "remote": True,
        "enqueued": False,
    },
    "attempts": {"failed": 0, "interrupted": 0, "expired": 0, "continued": 0},
    "steps": {
        "draft": {
            "status": "PENDING",
            "attempts": {"failed": 0, "interrupted": 0, "expired": 0, "continued": 0},
        }
    },
    "recreatedAs": [],
    "traced": 1,
}

RULES = rules_of(step_settings(remote=True))
OFFERED = Query("runs", order_by="alarmAt", equal={"claimable": "draft"})


def make_version_1(path: Path) -> None:
    """Make a file of version 1 with one run."""
    old = sqlite3.connect(path, isolation_level=None)
    old.executescript(VERSION_1)
    old.execute(
        "INSERT INTO runs VALUES ('', 'r-1', 7, ?, '2026-01-01T12:00:00.000000+00:00', "
        "'PENDING', 'letters', 0, 9, '2026-01-01T12:01:00.000000+00:00', '[\"team:a\"]')",
        (json.dumps(PARKED),),
    )
    old.execute("INSERT INTO trace VALUES ('runs/r-1', '000000', 3, '{\"type\": \"run_paused\"}')")
    old.close()


def version_of(path: Path) -> int:
    file = sqlite3.connect(path)
    (version,) = file.execute("PRAGMA user_version").fetchone()
    file.close()
    return int(version)


def columns_and_indexes(path: Path) -> tuple[set[str], set[str]]:
    file = sqlite3.connect(path)
    columns = {row[1] for row in file.execute("PRAGMA table_info(runs)")}
    indexes = {row[1] for row in file.execute("PRAGMA index_list(runs)")}
    file.close()
    return columns, indexes


@pytest.fixture
def old(path: Path) -> Path:
    """A file of version 1 with the run r-1."""
    make_version_1(path)
    return path


def test_a_file_of_version_1_becomes_one_of_version_2_when_it_is_opened(old: Path) -> None:
    SqliteDocuments(old, SystemClock()).close()

    columns, indexes = columns_and_indexes(old)
    assert version_of(old) == 2
    assert "claimable" in columns
    assert "runs_claimable_alarmAt" in indexes


def test_an_upgraded_file_has_what_a_fresh_one_has(old: Path, tmp_path: Path) -> None:
    SqliteDocuments(old, SystemClock()).close()
    SqliteDocuments(tmp_path / "fresh.db", SystemClock()).close()

    assert columns_and_indexes(old) == columns_and_indexes(tmp_path / "fresh.db")


def test_the_runs_of_a_file_that_was_upgraded_are_there_as_they_were(old: Path) -> None:
    documents = SqliteDocuments(old, SystemClock())

    found = documents.get(run_ref("r-1"))
    due = documents.query(Query("runs", order_by="alarmAt", equal={"shard": 9}))
    labelled = documents.query(
        Query("runs", order_by="createdAt", contains=("labels", "team:a"), descending=True)
    )
    trace = documents.query(Query("runs/r-1/trace"))
    documents.close()

    assert found is not None
    assert (found.document, found.version) == (PARKED, 7)
    assert [each.ref.id for each in due] == ["r-1"]
    assert [each.ref.id for each in labelled] == ["r-1"]
    assert [each.document for each in trace] == [{"type": "run_paused"}]
    run = manifest_of("r-1", found.document)
    assert (run.claimable, run.interruptions, run.checkpoint) == (None, 0, None)


def test_a_run_of_version_1_can_be_offered_found_and_claimed(old: Path) -> None:
    """Its column was empty; the first change that offers the run fills it."""
    documents = SqliteDocuments(old, SystemClock())
    late = partial(lifecycle.redispatch, rules=RULES, generation=1, in_queue=False)
    claim = partial(lifecycle.claim, rules=RULES, lease_id="lease-1", holder="laptop")
    before = documents.query(OFFERED)

    documents.transact(run_ref("r-1"), on_run("r-1", late))
    offered = documents.query(OFFERED)
    claimed = documents.transact(run_ref("r-1"), on_run("r-1", claim)).answer
    afterwards = documents.query(OFFERED)
    documents.close()

    assert before == []
    assert [found.ref.id for found in offered] == ["r-1"]
    assert (claimed.outcome, claimed.manifest.fencing_token) == (Outcome.ACQUIRED, 1)
    assert afterwards == []


def test_a_file_of_this_version_gets_the_table_that_an_earlier_release_did_not_make(
    path: Path,
) -> None:
    """It needs no version of its own: the earlier release goes on with the file."""
    SqliteDocuments(path, SystemClock()).close()
    file = sqlite3.connect(path)
    file.execute("DROP TABLE overrides")
    file.close()

    documents = SqliteDocuments(path, SystemClock())
    found = documents.query(Query("overrides"))
    documents.close()

    assert (found, version_of(path)) == ([], 2)


def test_an_upgrade_that_fails_leaves_the_file_as_it_was(old: Path) -> None:
    """Columns, indexes and the version are one transaction: there is nothing in between."""
    file = sqlite3.connect(old)
    file.execute('CREATE TABLE "runs_claimable_alarmAt" (in_the_way)')
    file.close()
    before = columns_and_indexes(old)

    with pytest.raises(StoreUnavailableError, match="there is already a table named"):
        SqliteDocuments(old, SystemClock())

    assert (version_of(old), columns_and_indexes(old)) == (1, before)


def test_processes_can_upgrade_a_file_at_the_same_moment(tmp_path: Path) -> None:
    for number in range(8):
        make_version_1(tmp_path / f"{number}.db")
    barrier = SPAWN.Barrier(2)
    processes = [
        SPAWN.Process(target=open_fresh_files, args=(tmp_path, barrier, 8)) for _ in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert [process.exitcode for process in processes] == [0, 0]
    for number in range(8):
        file = sqlite3.connect(tmp_path / f"{number}.db")
        assert file.execute("PRAGMA user_version").fetchone() == (2,)
        assert file.execute("SELECT count(*) FROM runs").fetchone() == (3,)
        assert file.execute("SELECT count(*) FROM runs WHERE claimable IS NULL").fetchone() == (3,)
        file.close()


def test_a_program_of_version_1_that_has_the_file_open_works_on(old: Path) -> None:
    """During a rolling deploy both are there; a new column must not fail the statements of old."""
    running = sqlite3.connect(old, isolation_level=None)
    running.execute("SELECT id FROM runs").fetchall()

    documents = SqliteDocuments(old, SystemClock())
    running.execute(
        'INSERT INTO "runs" (parent, id, version, body, "createdAt", "status", "pipeline", '
        '"deadLettered", "shard", "alarmAt", "labels") '
        "VALUES ('', 'r-2', 1, '{}', NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    found = documents.get(run_ref("r-2"))
    documents.close()
    running.close()

    assert found is not None
    assert found.document == {}


def test_a_file_of_the_next_version_is_refused_with_both_and_not_touched(old: Path) -> None:
    """As a program of version 1 refuses one of version 2: it would understand runs by half."""
    newer = sqlite3.connect(old)
    newer.execute("PRAGMA user_version = 3")
    newer.close()
    before = old.read_bytes()

    with pytest.raises(StoreVersionError) as refused:
        SqliteDocuments(old, SystemClock())

    assert refused.value.message == (
        f"The store {old} has schema version 3; this Leasehold knows 2 and older. "
        "Upgrade Leasehold, or choose another LEASEHOLD_STORE."
    )
    assert old.read_bytes() == before
