"""The chain of a pipeline: what each step gives has to be what the next one can take.

A reviewer of trials has to give a verdict, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from leasehold.domain.signal import Otherwise
from leasehold.errors import ChainError, HandlerNotFoundError, LimitFieldError, ReviewerModelError
from leasehold.ports.handler_runner import BrokenLink, HandlerChecks
from leasehold.registry.dispatch import REMOTE, StepDispatchEntry
from leasehold.registry.pipelines import Catalog, PipelineEntry
from leasehold.registry.plan import Wait


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
    step_at = pipeline.step_type_of
    skips = ((name, to) for name, targets in pipeline.skips.items() for to in targets)
    for step, following in itertools.chain(itertools.pairwise(pipeline.plan), skips):
        if pipeline.wait_at(following) is not None:  # it takes anything
            continue
        waiting, taker = pipeline.wait_at(step), catalog.steps[step_at(following)]
        link = checks.broken_link(waiting or catalog.steps[step_at(step)], taker)
        if link is None and waiting is not None:
            link = _without_signal(checks, waiting, taker)
        if link is not None:
            yield ChainError(
                pipeline=pipeline.name, step=step, following=following, **link._asdict()
            )


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
