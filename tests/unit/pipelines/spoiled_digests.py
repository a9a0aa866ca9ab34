"""The review pipeline with a synthesis that spoils its digest as a test says, and more gates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from leasehold import GateContext, GateEntry, PipelineEntry, Registry, StepContext
from pipelines import catalog
from pipelines.review.models import Digest, Extraction
from pipelines.review.synthesis import synthesize as good

#: What becomes of the digest of each attempt, in order; after that it stays as it is.
SPOILS: list[Callable[[Digest], Digest]] = []


def synthesize(ctx: StepContext, given: Extraction) -> Digest:
    """Digest, and spoil."""
    digest = good(ctx, given)
    return SPOILS.pop(0)(digest) if SPOILS else digest


def fall_over(ctx: GateContext, output: Digest) -> None:
    """Fail by itself, as a gate with a bug does."""
    raise ZeroDivisionError("the gate has a bug")


GATES = Registry("gates", [*catalog.GATES, GateEntry(name="buggy", check=f"{__name__}:fall_over")])
SYNTHESIS = replace(catalog.STEPS["synthesis"], handler=f"{__name__}:synthesize")
STEPS = Registry(
    "dispatch",
    [
        *(SYNTHESIS if entry.key == "synthesis" else entry for entry in catalog.STEPS),
        replace(SYNTHESIS, step_type="judged", env_overrides=("", ""), gates=("buggy",)),
    ],
)
PIPELINES = Registry(
    "pipelines",
    [*catalog.PIPELINES, PipelineEntry(name="buggy", steps=("extraction", "judged"))],
)
