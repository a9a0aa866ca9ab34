"""Parts of a bundle, for callers that need only one of them."""

from __future__ import annotations

from pathlib import Path

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.factory import open_artifacts
from leasehold.adapters.in_process_tasks import InProcessTasks
from leasehold.adapters.null_stores import NullDocuments
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Documents
from leasehold.ports.task_queue import PulledTaskQueue


def system_clock() -> Clock:
    """Return the machine's clock."""
    return SystemClock()


def no_documents(clock: Clock) -> Documents:
    """Return a store that is empty, and forgets what is written to it."""
    return NullDocuments(clock)


def folder_artifacts(folder: Path, clock: Clock) -> Artifacts:
    """Return the artifacts that lie in a folder, as those of a `file://` address do."""
    return open_artifacts(f"file://{folder}", clock)


def in_process_queue(clock: Clock) -> PulledTaskQueue:
    """Return a queue within this process, for a caller that drives an engine by it."""
    return InProcessTasks(clock)
