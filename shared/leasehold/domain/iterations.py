"""Iterations: how far a step ever was, and what counts as progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from leasehold.domain.manifest import Manifest

#: Every store keeps a whole number of 64 bits.
MAX_ITERATIONS: Final = 2**63 - 1
#: So many phases of a step count as progress; further ones are kept, and do not.
MAX_PHASES: Final = 32
#: A step that lost so many checkpoints makes no more progress that counts: it began anew after each
#: of them, further than "ever before" each time, and would be continued for ever.
MAX_REJECTED: Final = 10


def furthest_of(manifest: Manifest) -> dict[str, int]:
    """Return the most iterations of each phase that the current step ever kept."""
    kept = manifest.checkpoint
    known = () if kept is None else kept.furthest
    return {reached.phase: reached.iteration_count for reached in known}


def counts_progress(manifest: Manifest) -> bool:
    """Return whether the iterations of the current step count as progress still."""
    return (manifest.steps[manifest.current_step].rejected or 0) <= MAX_REJECTED


def is_further(furthest: Mapping[str, int], phase: str, iteration_count: int) -> bool:
    """Return whether a step with so many iterations of a phase is further than it ever was.

    Phases beyond a number never are: names that are made up each time would be progress for ever.
    """
    is_counted = phase in furthest or len(furthest) < MAX_PHASES
    return is_counted and furthest.get(phase, -1) < iteration_count
