"""Whether the task that a run waits for is in its queue."""

from __future__ import annotations

from typing import TypedDict

from leasehold.domain.effect import dispatch_task
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus
from leasehold.services.engine import Engine


class TaskPresence(TypedDict):
    """What was found, as `lifecycle.on_alarm` takes it; `in_queue` is None: there is no telling."""

    generation: int
    in_queue: bool | None


def task_presence(engine: Engine, manifest: Manifest) -> TaskPresence:
    """Return whether the task of the run's dispatch is in its queue, and which dispatch it is.

    Raises:
        StoreUnavailableError: the queue did not answer.
    """
    in_queue = has_task(manifest) and engine.tasks.exists(dispatch_task(manifest))
    return {"generation": manifest.position.dispatch.generation, "in_queue": in_queue}


def has_task(manifest: Manifest) -> bool:
    """Return whether a queue should have a task of the run."""
    has_none = manifest.status in (RunStatus.IN_PROGRESS, RunStatus.BLOCKED)
    waits = not (has_none or manifest.is_terminal)
    return waits and not manifest.position.dispatch.remote
