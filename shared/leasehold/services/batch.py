"""One operation on many runs: those that a filter finds, a limited number of them.

A batch that was killed is simply given again: what was done does not fit any more, is refused by
its state, or, for `recreate`, is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from leasehold.domain import lifecycle
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.errors import LeaseholdError
from leasehold.services.engine import Engine
from leasehold.services.operate import Asked, operate
from leasehold.services.read_runs import RunFilter, list_runs

MAX_LIMIT: Final = 1000
_PAGE: Final = 100


@dataclass(slots=True)
class Batched:
    """What a batch came to.

    Args:
        matched: how many runs were looked at.
        changed: how many of them were changed; in a dry run, none.
        refused: run and code of each that the operation is not allowed on.
    """

    matched: int = 0
    changed: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)


def batch(
    engine: Engine, asked: Asked, wanted: RunFilter, *, limit: int, dry_run: bool = False
) -> Batched:
    """Do what is asked to the runs that fit, newest first, at most `limit` of them.

    Raises:
        InvalidRequestError: the words of the request cannot be used; nothing was changed.
        StoreUnavailableError: the batch came to a halt; give it again.
    """
    done = Batched()
    asked = replace(asked, once=True)
    for run in _fitting(engine, asked, wanted):
        if done.matched == limit:
            break
        done.matched += 1
        try:
            if dry_run:
                lifecycle.check_allowed(run, asked.operation)
            else:
                operate(engine, run.run_id, asked)
                done.changed += 1
        except LeaseholdError as error:
            if error.retryable:
                raise
            done.refused.append((run.run_id, error.code))
    return done


def _fitting(engine: Engine, asked: Asked, wanted: RunFilter) -> Iterator[Manifest]:
    """Tell the runs that fit; a run is recreated once, so that a repeated batch comes to an end."""
    token: str | None = None
    while True:
        page = list_runs(engine, wanted, limit=_PAGE, page_token=token)
        for run in page.runs:
            if asked.operation is not Operation.RECREATE or not run.recreated_as:
                yield run
        token = page.next_page_token
        if token is None:
            return
