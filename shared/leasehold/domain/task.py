"""A task: the hint that an attempt of a step is due."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Lease

#: How long after the end of a lease its wake task comes.
WAKE_DELAY: Final = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Task:
    """One message to `execute_step`.

    Args:
        name: unique for what it announces, so that announcing it twice gives one task.
        queue: the queue it goes to.
        run_id: the run.
        generation: the dispatch it belongs to.
        not_before: when it may be delivered.
        deadline: how long the queue listens for the answer.
    """

    name: str
    queue: str
    run_id: str
    generation: int
    not_before: datetime
    deadline: timedelta


def dispatch_task(manifest: Manifest) -> Task:
    """Return the task that announces the dispatch of the manifest."""
    dispatch = manifest.position.dispatch
    name = _hashed(manifest.run_id, dispatch.nonce, str(dispatch.generation))
    return _task(manifest, name, dispatch.not_before)


def wake_task(manifest: Manifest, lease: Lease) -> Task:
    """Return the task that looks again once `lease` must be over; one a lease and end."""
    name = _hashed(manifest.run_id, lease.lease_id, lease.expires_at.isoformat())
    return _task(manifest, name, lease.expires_at + WAKE_DELAY)


def _task(manifest: Manifest, name: str, not_before: datetime) -> Task:
    return Task(
        name=name,
        queue=manifest.position.dispatch.queue,
        run_id=manifest.run_id,
        generation=manifest.position.dispatch.generation,
        not_before=not_before,
        deadline=timedelta(seconds=manifest.position.dispatch.deadline_s),
    )


def _hashed(*parts: str) -> str:
    """Cloud Tasks slows down on sequential names; a hash spreads them."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]
