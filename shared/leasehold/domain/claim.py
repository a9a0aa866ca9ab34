"""Which steps a remote worker may claim; no task announces them."""

from __future__ import annotations

from leasehold.domain.manifest import Manifest


def claimable_step(manifest: Manifest) -> str | None:
    """Return the step that waits for a remote worker, due or not; None where none does."""
    at = manifest.position
    is_to_claim = at.dispatch.remote and at.lease is None and manifest.waits_for_worker
    return at.step if is_to_claim else None
