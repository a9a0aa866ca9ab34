"""The doctor reads who works on a store, and says where those are of several projects."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.domain.stored import Document, Write
from leasehold.domain.worker_note import worker_ref
from tests.worlds.shell import Shell

#: What the catalog of the folder has, and what that of another project has.
LETTERS = {"steps": ["write_letter", "send"], "pipelines": ["letters"]}
PHOTOS = {"steps": ["crop", "resize"], "pipelines": ["photos"]}
#: That of a version before, which most deploys have in common with the one that follows.
BEFORE = {"steps": ["write_letter"], "pipelines": ["letters"]}

AN_HOUR = timedelta(hours=1)


def note(
    shell: Shell, process: str, *, began: timedelta = AN_HOUR, seen: timedelta, **fields: Any
) -> None:
    """Write what a process of another machine noted, so long ago."""

    def noted(_stored: Document | None, now: datetime) -> Write[None]:
        times = {"startedAt": now - began, "seenAt": now - seen}
        return Write(None, {"process": process, "kind": "serve", **times, **fields})

    documents = SqliteDocuments(shell.folder / ".leasehold/leasehold.db", SystemClock())
    documents.transact(worker_ref(process, "1"), noted)
    documents.close()


def looked(shell: Shell) -> tuple[dict[str, str], dict[str, str]]:
    """Return the messages of findings and of warnings, by their codes."""
    done = shell.run("doctor", "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == bool(answer["findings"])
    return tuple(  # type: ignore[return-value]
        {one["code"]: one["message"] for one in answer[kind]} for kind in ("findings", "warnings")
    )


def test_a_process_of_another_project_is_found(shell: Shell) -> None:
    """Each of the two would block, or give up, what belongs to the other."""
    note(shell, "vm-1/7@1", seen=timedelta(0), **PHOTOS)

    found, warned = looked(shell)

    assert found == {
        "other_project": "vm-1/7@1 works on this store, and has no step or pipeline in common with "
        "the catalog that is set here: two projects need a LEASEHOLD_STORE each."
    }
    assert warned == {}


@pytest.mark.parametrize(
    ("seen", "fields"),
    [
        (timedelta(0), LETTERS),
        (timedelta(0), BEFORE),
        (timedelta(minutes=4), PHOTOS),
        (timedelta(0), {**PHOTOS, "endedAt": datetime(2026, 1, 1, tzinfo=UTC)}),
        (timedelta(0), {"kind": "remote", "steps": ["crop"]}),
        (timedelta(0), {"kind": "of a later version"}),
    ],
    ids=["the same", "the version before", "gone", "ended", "a remote worker", "knows nothing"],
)
def test_who_works_here_in_order_is_no_finding(
    shell: Shell, seen: timedelta, fields: dict[str, Any]
) -> None:
    note(shell, "vm-1/7@1", seen=seen, **fields)

    assert looked(shell) == ({}, {})


def test_a_process_that_a_deploy_left_behind_is_warned_of(shell: Shell) -> None:
    note(shell, "vm-1/7@1", seen=timedelta(0), **LETTERS)
    note(shell, "vm-2/7@1", seen=timedelta(0), began=timedelta(minutes=16), **BEFORE)

    found, warned = looked(shell)

    assert found == {}
    (message,) = warned.values()
    assert [*warned] == ["catalogs_differ"]
    assert "vm-1/7@1" in message
    assert "vm-2/7@1" in message
    assert "for longer than a deploy takes, and their catalogs differ" in message


@pytest.mark.parametrize(
    ("began", "knows"),
    [(timedelta(minutes=14), BEFORE), (AN_HOUR, LETTERS)],
    ids=["a deploy that is rolled out", "the same catalog"],
)
def test_old_and_new_side_by_side_are_no_warning(
    shell: Shell, began: timedelta, knows: dict[str, Any]
) -> None:
    note(shell, "vm-1/7@1", seen=timedelta(0), **LETTERS)
    note(shell, "vm-2/7@1", seen=timedelta(0), began=began, **knows)

    assert looked(shell) == ({}, {})
