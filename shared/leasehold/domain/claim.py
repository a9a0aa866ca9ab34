"""Which steps a worker elsewhere may claim; no task announces them."""

from __future__ import annotations

from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus


def claimable_step(manifest: Manifest) -> str | None:
    """Return the step that waits for a worker elsewhere, due or not; None where none does."""
    waits = manifest.status in (RunStatus.PENDING, RunStatus.ERROR) and manifest.lease is None
    at_rest = manifest.is_terminal or manifest.paused
    if not manifest.dispatch.remote or at_rest or not waits:
        return None
    return manifest.current_step
