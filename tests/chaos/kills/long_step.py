"""A step of ten iterations, each a checkpoint: small, or too large for the document."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.registry.pipelines import Catalog
from tests.chaos.kills.points import BETWEEN_ITERATIONS, Place

ITERATIONS: Final = 10
#: What a checkpoint holds beside its results, in bytes: from 32 KiB on it is a file.
SMALL_BYTES: Final = 100
LARGE_BYTES: Final = 40_000


def iterate(ctx: StepContext, given: dict[str, Any]) -> Any:
    """Square ten numbers, one an iteration; each is noted as it is begun."""
    place = Place(Path(given["folder"]))
    results: list[str] = [] if ctx.resume is None else ctx.resume.partial_results["results"]
    for iteration in range(len(results) + 1, ITERATIONS + 1):
        place.reach(BETWEEN_ITERATIONS, iteration)
        place.execute(iteration)
        results.append(str(iteration**2))
        if iteration % given["every"] == 0:
            ctx.checkpoint(iteration, {"results": results, "beside": "x" * given["bytes"]})
    return results


CATALOG: Final = Catalog(
    steps=Registry(
        "dispatch",
        [
            StepDispatchEntry(
                step_type="iterate",
                handler="tests.chaos.kills.long_step:iterate",
                agent_timeout=timedelta(minutes=5),
                dispatch_deadline=timedelta(minutes=10),
            )
        ],
    ),
    pipelines=Registry("pipelines", [PipelineEntry(name="iterate", steps=("iterate",))]),
)
