"""The chain of a pipeline: what each step gives has to be what the next one can take."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from leasehold.errors import ChainError
from leasehold.ports.handler_checks import HandlerChecks
from leasehold.registry.pipelines import Catalog, PipelineEntry


def check_chains(catalog: Catalog, checks: HandlerChecks) -> None:
    """Raise ChainError for a pipeline that could never reach its end; imports all handlers."""
    for pipeline in catalog.pipelines:
        check_chain(catalog, checks, pipeline)


def check_chain(catalog: Catalog, checks: HandlerChecks, pipeline: PipelineEntry) -> None:
    """Raise ChainError where a step of the pipeline can never take what it is given."""
    for error in broken_links(catalog, checks, pipeline):
        raise error


def broken_links(
    catalog: Catalog, checks: HandlerChecks, pipeline: PipelineEntry
) -> Iterator[ChainError]:
    """Yield an error for each two steps of the pipeline that surely do not go together."""
    for step, following in itertools.pairwise(pipeline.steps):
        link = checks.broken_link(catalog.steps[step], catalog.steps[following])
        if link is not None:
            yield ChainError(
                pipeline=pipeline.name, step=step, following=following, **link._asdict()
            )
