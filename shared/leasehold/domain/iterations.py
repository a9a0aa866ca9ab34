"""Iterations: how far a step ever was, and what counts as progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from leasehold.domain.manifest import Manifest

#: Every store keeps a whole number of 64 bits.
MAX_ITERATIONS: Final = 2**63 - 1
#: So many phases of a step count as progress; further ones are kept, and do not.
MAX_PHASES: Final = 32
#: So many checkpoints of a step may turn out to be unusable; what it keeps then is no progress.
MAX_REJECTED: Final = 3


def furthest_of(manifest: Manifest) -> dict[str, int]:
    """Return the most iterations of each phase that the current step ever kept."""
    kept = manifest.position.checkpoint
    known = () if kept is None else kept.furthest
    return {reached.phase: reached.iteration_count for reached in known}


def is_further(furthest: Mapping[str, int], phase: str, iteration_count: int) -> bool:
    """Return whether a step with so many iterations of a phase is further than it ever was.

    Phases beyond a number never are: names that are made up each time would be progress forever.
    """
    is_counted = phase in furthest or len(furthest) < MAX_PHASES
    return is_counted and furthest.get(phase, -1) < iteration_count


def counts_as_progress(manifest: Manifest, phase: str, iteration_count: int) -> bool:
    """Return whether a checkpoint of the current step is progress: the step was never as far.

    How far it was goes with a checkpoint that is rejected, so that the step can begin again. Where
    that happens again and again, it would begin again forever.
    """
    rejected = manifest.steps[manifest.position.step].rejected or 0
    is_new = is_further(furthest_of(manifest), phase, iteration_count)
    return is_new and rejected <= MAX_REJECTED
