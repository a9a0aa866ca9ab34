"""Which steps a remote worker may claim; no task announces them."""

from __future__ import annotations

from leasehold.domain.manifest import Manifest


def claimable_step(manifest: Manifest) -> str | None:
    """Return the step that waits for a remote worker, due or not; None where none does."""
    waits = manifest.waits_for_worker and manifest.position.lease is None
    return manifest.position.step if waits and manifest.position.dispatch.remote else None
