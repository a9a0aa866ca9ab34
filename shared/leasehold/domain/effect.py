"""Effects: what must happen outside the store once a commit stands. The manifest is the outbox.

A kind of effect is a value, such as `Task`, and a row of `OWED`: the function that reads from a
manifest what it still owes of that kind. Whoever carries an effect out has the manifest say so by
another commit; until then the alarm of the run stands, and the sweep publishes it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from leasehold.domain.manifest import Manifest
from leasehold.domain.task import Task, dispatch_task

#: All that a run can owe.
Effect: TypeAlias = Task


def owed_effects(manifest: Manifest) -> tuple[Effect, ...]:
    """Return what the run still owes, as far as its manifest knows."""
    return tuple(effect for owed in OWED for effect in owed(manifest))


def owed_tasks(manifest: Manifest) -> tuple[Task, ...]:
    """Return the task of a dispatch that waits for a worker and is not known to be enqueued."""
    return () if manifest.dispatch.enqueued else waiting_tasks(manifest)


def waiting_tasks(manifest: Manifest) -> tuple[Task, ...]:
    """Return the task of a dispatch that waits for a worker; none for one that is claimed."""
    if not manifest.waits_for_worker or manifest.dispatch.remote:
        return ()
    return (dispatch_task(manifest),)


#: What is owed of each kind.
OWED: Final[tuple[Callable[[Manifest], tuple[Effect, ...]], ...]] = (owed_tasks,)
