"""The chain of a pipeline: what each step gives has to be what the next one can take.

A reviewer of trials has to give a verdict, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import pydantic_core

from leasehold.domain.manifest_parts import Place, step_type_at
from leasehold.domain.signal import Otherwise
from leasehold.domain.stored import replace
from leasehold.errors import ChainError, HandlerNotFoundError, LimitFieldError, ReviewerModelError
from leasehold.ports.handler_runner import (
    BrokenLink,
    HandlerChecks,
    Misfit,
    PlaceShape,
    StepOutput,
)
from leasehold.registry.dispatch import REMOTE, StepDispatchEntry
from leasehold.registry.pipelines import Catalog, PipelineEntry
from leasehold.registry.plan import Child, Each, Entry, Parallel, Wait

#: The places of a plan with more than a plain step, by their names; None: there are none.
Places: TypeAlias = Mapping[str, Place] | None


def check_chains(catalog: Catalog, checks: HandlerChecks) -> None:
    """Check each pipeline, as `check_chain` does; imports all handlers."""
    for pipeline in catalog.pipelines:
        check_chain(catalog, checks, pipeline)


def check_chain(catalog: Catalog, checks: HandlerChecks, pipeline: PipelineEntry) -> None:
    """Raise where the pipeline could never reach its end.

    Raises:
        ChainError: a step can never take what it is given.
        LimitFieldError: a limit names a field that its step is not given.
        ReviewerModelError: a reviewer can never give a verdict.
    """
    for error in broken_links(catalog, checks, pipeline):
        raise error
    for step in {*map(pipeline.step_type_of, pipeline.plan)} - {""}:
        for missing in missing_fields(catalog.steps[step], checks):
            raise missing
    if reviewer := misfit_reviewer(catalog, checks, pipeline):
        raise reviewer


def broken_links(
    catalog: Catalog, checks: HandlerChecks, pipeline: PipelineEntry
) -> Iterator[ChainError]:
    """Yield an error for each two steps of the pipeline that surely do not go together.

    They are those that follow one another, and those of which one may skip to the other.
    """
    at = {entry.name: entry for entry in pipeline.entries}
    skips = ((at[name], at[to]) for name, targets in pipeline.skips.items() for to in targets)
    for before, behind in itertools.chain(itertools.pairwise(pipeline.entries), skips):
        step, gives = _output_at(catalog, before)
        for following, takes_item in _taken_at(catalog, behind):
            taker = catalog.steps[following]
            link = checks.broken_link(step, taker, gives=gives, takes_item=takes_item)
            if link is None and isinstance(before, Wait):
                link = _without_signal(checks, before, taker)
            if link is not None:
                yield ChainError(
                    pipeline=pipeline.name,
                    step=before.name,
                    following=behind.name,
                    **link._asdict(),
                )


def _output_at(catalog: Catalog, entry: Entry) -> tuple[StepOutput, PlaceShape]:
    """Return whose output a place gives, and what it makes of that."""
    if isinstance(entry, Wait):
        return entry, "value"
    if isinstance(entry, Child):
        return _output_at(catalog, catalog.pipeline(entry.pipeline).entries[-1])
    shape: PlaceShape = "object" if isinstance(entry, Parallel) else "value"
    if isinstance(entry, Each):
        shape = "list" if entry.batch == 1 else "value"
        if entry.tolerate:
            shape = "outcomes" if entry.batch == 1 else "batch_outcomes"
    return catalog.steps[entry.step_type], shape


def _taken_at(catalog: Catalog, entry: Entry) -> Iterator[tuple[str, bool]]:
    """Yield each step that is given what a place is, and whether it is given an item of it."""
    if isinstance(entry, Child):
        yield from _taken_at(catalog, catalog.pipeline(entry.pipeline).entries[0])
        return
    for step in entry.step_types:
        yield step, isinstance(entry, Each) and entry.batch == 1


def misfit_at(
    catalog: Catalog, checks: HandlerChecks, places: Places, name: str, text: str
) -> Misfit | None:
    """Return why a place of a plan cannot take this JSON text; None: it can, as far as is known.

    Args:
        catalog: the catalog in force.
        checks: what compares values with models.
        places: the places of the plan with more than a plain step.
        name: the place.
        text: what it is given.

    Raises:
        HandlerNotFoundError: code of it is missing.
    """
    place = None if places is None else places.get(name)
    if place is not None and place.wait is not None:
        return None  # it takes anything
    if place is not None and place.child:
        pipeline = catalog.pipeline(place.child)
        return misfit_at(catalog, checks, pipeline.places, pipeline.plan[0], text)
    if place is not None and place.each is not None:
        items = _items_in(text)
        if isinstance(items, Misfit):
            return items
        if place.each.batch == 1:
            found = (
                (number, _misfit(catalog, checks, place.step_type, _text(item)))
                for number, item in enumerate(items)
            )
            first = next(((number, one) for number, one in found if one), None)
            if first is None:
                return None
            number, misfit = first
            return replace(misfit, problem=f"item {number}: {misfit.problem}")
    types = (place and place.parallel) or (step_type_at(places, name),)
    return next(filter(None, (_misfit(catalog, checks, one, text) for one in types)), None)


def _items_in(text: str) -> list[Any] | Misfit:
    try:
        items = pydantic_core.from_json(text)
    except ValueError:
        return Misfit("list", "it is not JSON: it was edited, or damaged", (), 1)
    is_list = isinstance(items, list)
    return items if is_list else Misfit("list", "it is not a list, as `Each` needs", (), 1)


def _text(item: Any) -> str:
    return pydantic_core.to_json(item).decode()


def _misfit(catalog: Catalog, checks: HandlerChecks, step_type: str, text: str) -> Misfit | None:
    step = catalog.steps[step_type]
    return None if step.handler == REMOTE else checks.problem_with(step, text)


def _without_signal(
    checks: HandlerChecks, waiting: Wait, taker: StepDispatchEntry
) -> BrokenLink | None:
    """Return why a step cannot take the null of a wait that ends without a signal, or None."""
    if waiting.otherwise != Otherwise.CONTINUE.value or taker.handler == REMOTE:
        return None
    try:
        found = checks.problem_with(taker, "null")
    except HandlerNotFoundError:
        return None
    if found is None:
        return None
    return BrokenLink("null, where no signal comes", found.model, found.problem)


def missing_fields(step: StepDispatchEntry, checks: HandlerChecks) -> Iterator[LimitFieldError]:
    """Yield an error for each limit that names a field which its step is surely not given."""
    for limit in step.limits:
        missing = checks.missing_field(step, limit.given_fields)
        if missing is not None:
            yield LimitFieldError(step=step.step_type, limit=limit.key, **missing._asdict())


def misfit_reviewer(
    catalog: Catalog, checks: HandlerChecks, pipeline: PipelineEntry
) -> ReviewerModelError | None:
    """Return why the reviewer of a pipeline's trials can never give a verdict; None: it may."""
    if pipeline.trials is None:
        return None
    step = catalog.steps[pipeline.step_type_of(pipeline.trials.reviewer)]
    found = checks.misfit_verdict(step)
    return found and ReviewerModelError(
        pipeline=pipeline.name, step=step.step_type, output=found.output, problem=found.problem
    )
