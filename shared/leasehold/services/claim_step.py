"""A worker elsewhere asks for a step, and gets it under a lease, or is told that there is none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from leasehold.domain import lifecycle
from leasehold.domain.lease import Fence
from leasehold.domain.lifecycle.attempt import EARLY
from leasehold.domain.manifest import Manifest, manifest_of
from leasehold.domain.status import Outcome
from leasehold.errors import (
    ArtifactNotFoundError,
    InvalidRequestError,
    LeaseHeldError,
    NothingToClaimError,
    UnreadableRunError,
)
from leasehold.ports.documents import Query
from leasehold.ports.values import load
from leasehold.registry.dispatch import REMOTE
from leasehold.services.engine import Engine
from leasehold.services.execute_step import recorded
from leasehold.services.manage_lease import Shown, change_run, fail_step

#: How many waiting runs are looked at in one query, and how many queries a claim makes at most:
#: whoever lost all of those to other workers asks again.
PAGE: Final = 10
PAGES: Final = 3


@dataclass(frozen=True, slots=True)
class Claimed:
    """A step that is a worker's now.

    Args:
        manifest: the run, with its lease.
        given: what the step is given, as JSON text.
        partial_results: of the manifest's checkpoint, as JSON text; None: begin at the beginning.
    """

    manifest: Manifest
    given: str
    partial_results: str | None


def claim_step(engine: Engine, step_type: str, holder: str) -> Claimed:
    """Give the worker the step of this type that waits longest.

    Raises:
        UnknownKeyError, InvalidRequestError: no step type for workers elsewhere has that name.
        NothingToClaimError: none waits, or other workers were faster.
        StoreUnavailableError: a lease may have been given and not told; it ends by itself.
    """
    if engine.catalog.steps[step_type].handler != REMOTE:
        remote = [step.step_type for step in engine.catalog.steps if step.handler == REMOTE]
        names = ", ".join(remote) or "none"
        allowed = f"a step for workers elsewhere ({names}); execute_step runs the others"
        raise InvalidRequestError(field="stepType", value=step_type, allowed=allowed)
    for run_id in _waiting(engine, step_type):
        try:
            return acquire_run(engine, run_id, holder)
        except (LeaseHeldError, NothingToClaimError):  # another worker was faster
            continue
    raise NothingToClaimError(problem=f"no step {step_type!r} waits for a worker now")


def acquire_run(engine: Engine, run_id: str, holder: str) -> Claimed:
    """Give the worker the current step of one run, whoever it waits for.

    Raises:
        UnknownRunError: there is no such run.
        LeaseHeldError, NothingToClaimError: another worker has it, or it waits for none.
        StoreUnavailableError: as `claim_step`.
    """
    claim = partial(
        lifecycle.claim, rules=engine.rules, lease_id=engine.clock.new_id(), holder=holder
    )
    change = change_run(engine, run_id, claim, in_transaction=True)
    run = change.manifest
    if change.outcome is Outcome.RETRY_SCHEDULED:  # the attempt before hung
        due = run.dispatch.not_before.isoformat()
        raise _nothing(run, f"run {run_id} is tried again at {due}")
    if change.outcome is not Outcome.ACQUIRED:  # to take over was one interruption too many
        raise _nothing(run, f"run {run_id} was given up: {run.dead_letter_detail}")
    return Claimed(run, _given(engine, run), _partial_results(engine, run))


def _waiting(engine: Engine, step_type: str) -> Iterator[str]:
    """Tell the runs that wait for a worker at this step and are due, oldest first."""
    after = None
    for _ in range(PAGES):
        query = Query(
            "runs",
            order_by="alarmAt",
            equal={"claimable": step_type},
            limit=PAGE,
            after=after,
        )
        page = engine.documents.query(query)
        for found in page:
            try:
                due_at = manifest_of(found.ref.id, found.document).dispatch.not_before
            except UnreadableRunError as error:  # it must not hide those behind it
                engine.log(str(error))
                continue
            if due_at <= found.read_at + EARLY:
                yield found.ref.id
        if len(page) < PAGE:
            return
        after = (page[-1].document["alarmAt"], page[-1].ref.id)


def _given(engine: Engine, run: Manifest) -> str:
    """Return what the step is given; a run whose value is lost is given up."""
    try:
        return load(engine.artifacts, run.given)
    except ArtifactNotFoundError as error:
        assert run.lease is not None  # noqa: S101 - it was just given
        shown = Shown(run.run_id, Fence(run.lease.lease_id, run.fencing_token))
        ended = fail_step(engine, shown, recorded(error), permanent=True)
        raise _nothing(ended.manifest, f"run {run.run_id} was given up: {error.message}") from None


def _partial_results(engine: Engine, run: Manifest) -> str | None:
    if run.checkpoint is None:
        return None
    try:
        return load(engine.artifacts, run.checkpoint.partial_results)
    except ArtifactNotFoundError as error:
        engine.log(f"run {run.run_id} begins its step at the beginning: {error}")
        return None


def _nothing(run: Manifest, problem: str) -> NothingToClaimError:
    return NothingToClaimError(problem=problem, run_id=run.run_id, state=run.state)
