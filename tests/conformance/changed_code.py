"""What a deploy may change of the sample's steps: a model, a name, a function that is gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from leasehold import GateEntry, PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.registry.pipelines import Catalog
from tests.worlds.catalogs.sample import PIPELINES, STEPS


class Letter(BaseModel):
    """The input of a changed step."""

    text: str


def write(ctx: StepContext, given: Letter) -> Letter:
    """Return what it is given."""
    return given


def catalog_with(step: str, *gates: GateEntry, **changes: Any) -> Catalog:
    """Return the sample's catalog, with gates and other values for the fields of one step."""
    changes["gates"] = tuple(gate.name for gate in gates)
    steps = [replace(one, **changes) if one.step_type == step else one for one in STEPS]
    return Catalog(
        steps=Registry("dispatch", steps), pipelines=PIPELINES, gates=Registry("gates", gates)
    )


def catalog_without(step: str) -> Catalog:
    """Return the sample's catalog without one step, and without the pipelines that have it."""
    steps: list[StepDispatchEntry] = [one for one in STEPS if one.step_type != step]
    pipelines: list[PipelineEntry] = [one for one in PIPELINES if step not in one.steps]
    return Catalog(steps=Registry("dispatch", steps), pipelines=Registry("pipelines", pipelines))


TAKES_LETTERS = f"{__name__}:write"
IS_GONE = f"{__name__}:no_such_function"
