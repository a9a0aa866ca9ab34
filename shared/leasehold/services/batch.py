"""One operation on many runs: those that a filter finds, a limited number of them.

A batch that was killed is simply given again: the runs that it has changed do not match the filter
any more, are refused because of their state, or, for `recreate`, are skipped. A run that stands at
another block by then is refused too: it remembers that the same was done before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from leasehold.domain.change import Change
from leasehold.domain.checkpoint import KeptCounts
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.errors import InvalidRequestError, LeaseholdError, StateChangedError
from leasehold.services.engine import Engine, publish_owed
from leasehold.services.operate import OperationRequest, apply, check_request, preview
from leasehold.services.read_runs import RunFilter, matching_runs

#: A batch that meets so many runs which refuse it comes to its end: its filter is too wide.
MAX_REFUSED_RUNS: Final = 1000


@dataclass(slots=True)
class BatchResult:
    """The result of a batch.

    Args:
        matched: how many runs were looked at.
        changed: how many of them were changed; in a dry run, none.
        refused: run and code of each that the operation is not allowed on.
        kept: of retry and recreate: what the runs keep of the work that was done, all together; in
            a dry run, what they would keep.
    """

    matched: int = 0
    changed: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    kept: KeptCounts | None = None


def batch(
    engine: Engine,
    request: OperationRequest,
    wanted: RunFilter,
    *,
    limit: int,
    dry_run: bool = False,
) -> BatchResult:
    """Do the operation on the runs that fit, newest first.

    Args:
        engine: the parts.
        request: what is to be done to each.
        wanted: which runs.
        limit: how many are changed at most. Those that refuse do not count, so that a batch that
            is given again gets on.
        dry_run: change nothing, and return what would be refused.

    Raises:
        InvalidRequestError: the texts of the request cannot be used, or the filter fits every run
            there is; nothing was changed.
        StoreUnavailableError: the batch came to a halt, at the store or at a queue; what was
            changed stands. Give it again.
    """
    _check(engine, request, wanted)
    done = BatchResult()
    request = replace(request, in_batch=True)
    for run in _fitting(engine, request, wanted):
        accepted = done.matched - len(done.refused)
        if accepted == limit or len(done.refused) == MAX_REFUSED_RUNS:
            break
        done.matched += 1
        try:
            change = _do(engine, run, request, dry_run=dry_run)
        except LeaseholdError as error:
            if error.retryable:
                raise
            done.refused.append((run.run_id, error.code))
            continue
        if change.repeats is not None:  # done when this batch was given before, and moved on since
            done.refused.append((run.run_id, StateChangedError.code))
            continue
        if change.kept is not None:
            done.kept = change.kept if done.kept is None else done.kept.plus(change.kept)
        if not dry_run:
            done.changed += 1
    return done


def _do(engine: Engine, run: Manifest, request: OperationRequest, *, dry_run: bool) -> Change:
    """Do the operation on a run as it was listed, or find out what would become of it."""
    if dry_run:
        return preview(engine, run, request)
    return publish_owed(engine, apply(engine, run, request))


def _check(engine: Engine, request: OperationRequest, wanted: RunFilter) -> None:
    check_request(request)
    if wanted == RunFilter():
        allowed = (
            "at least one of status, pipeline, deadLettered, label, paused, cancelled, since, "
            "until, step, reason, idPrefix, trouble; "
            '{"pipeline": NAME} fits all runs of a pipeline'
        )
        raise InvalidRequestError(field="filter", value={}, allowed=allowed)
    step, known = request.from_step, engine.catalog.place_names
    if step is not None and step not in known:
        allowed = f"{', '.join(known)} (no such step)"
        raise InvalidRequestError(field="fromStep", value=step, allowed=allowed)


def _fitting(engine: Engine, request: OperationRequest, wanted: RunFilter) -> Iterator[Manifest]:
    """Yield the runs that fit; a run is recreated once, so a repeated batch comes to its end."""
    for run in matching_runs(engine, wanted):
        if request.operation is not Operation.RECREATE or not run.recreated_as:
            yield run
