"""Long lists: what they read of large runs, and what they leave in the memory of a server."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.domain.manifest import Manifest, run_ref
from leasehold.domain.stored import Document, StoredDocument, Write
from leasehold.testing.contexts import run_at_work
from tests.worlds.servers import servers

RUNS = 250
#: In KiB. Lists leave half of it behind; twice where whole runs are read, or threads keep memory.
ROOM = 12 * 1024
#: Steps that no catalog has, and what each put out.
OUTPUTS: Mapping[str, Any] = {f"step_{number}": "line\n" * 2500 for number in range(4)}


def store_runs(file: Path) -> None:
    """Store runs of 60 KB each, as they are while their last step is at work."""
    clock = SystemClock()
    documents = SqliteDocuments(file, clock)
    for number in range(RUNS):
        made = run_at_work(clock, f"r-{number:04}", "last", OUTPUTS, timedelta(minutes=10))
        run = Manifest.model_construct(None, **dict(made))

        def store(_: Document | None, __: object, run: Manifest = run) -> Write[None]:
            return Write(None, StoredDocument(run))

        documents.transact(run_ref(run.run_id), store, is_new=True)
    documents.close()


def memory_of(pid: int) -> int:
    """Return the resident memory of a process, in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def test_long_lists_at_once_leave_no_memory_behind(tmp_path: Path) -> None:
    """Each thread had kept memory for good: a gigabyte in all, after lists of 1,000 runs."""
    store_runs(tmp_path / "leasehold.db")
    with servers(tmp_path) as begin, ThreadPoolExecutor(16) as callers:
        process, api = begin()
        api.call("/runs?limit=1")
        before = memory_of(process.pid)

        pages = list(callers.map(lambda _: api.call(f"/runs?limit={RUNS}"), range(16)))

        after = memory_of(process.pid)

    assert [len(page["runs"]) for page in pages] == [RUNS] * 16
    assert {run["progress"]["stepsDone"] for run in pages[0]["runs"]} == {4}
    assert after < before + ROOM, f"{before} KiB, then {after} KiB"
