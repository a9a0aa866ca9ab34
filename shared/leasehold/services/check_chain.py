"""The chain of a pipeline: what each step gives has to be what the next one can take.

A reviewer of trials has to give a verdict, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from leasehold.errors import ChainError, ReviewerModelError
from leasehold.ports.handler_runner import HandlerChecks
from leasehold.registry.pipelines import Catalog, PipelineEntry


def check_chains(catalog: Catalog, checks: HandlerChecks) -> None:
    """Check each pipeline, as `check_chain` does; imports all handlers."""
    for pipeline in catalog.pipelines:
        check_chain(catalog, checks, pipeline)


def check_chain(catalog: Catalog, checks: HandlerChecks, pipeline: PipelineEntry) -> None:
    """Raise where the pipeline could never reach its end.

    Raises:
        ChainError: a step can never take what it is given.
        ReviewerModelError: a reviewer can never give a verdict.
    """
    for error in broken_links(catalog, checks, pipeline):
        raise error
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
        link = checks.broken_link(catalog.steps[step_at(step)], catalog.steps[step_at(following)])
        if link is not None:
            yield ChainError(
                pipeline=pipeline.name, step=step, following=following, **link._asdict()
            )


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
