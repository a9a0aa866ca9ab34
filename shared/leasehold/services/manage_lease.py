"""What workers that run elsewhere do with a lease they were given: hold it, and settle the step.

What one shows with each call is its run, its lease and the token that came with it; the lifecycle
decides what that is worth. How it gets a lease: `services/claim_step.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition, on_run
from leasehold.domain.document import Ref
from leasehold.domain.lease import Fence, held_lease
from leasehold.domain.manifest import (
    ErrorRecord,
    KeptValue,
    Manifest,
    Progress,
    is_run_id,
    manifest_of,
    run_ref,
)
from leasehold.domain.result import Finished
from leasehold.domain.status import Termination
from leasehold.errors import InvalidOutputError, LeaseLostError, UnknownRunError
from leasehold.ports.documents import Snapshot
from leasehold.ports.values import OUTPUT_BYTES, check_size, digest, keep
from leasehold.registry.dispatch import REMOTE
from leasehold.services.engine import Engine, publish_owed
from leasehold.services.execute_step import settlement, through_gates

_MAX_SHOWN: Final = 128


@dataclass(frozen=True, slots=True)
class LeaseCredentials:
    """What a worker shows with each call: the run, and the lease on it that it was given."""

    run_id: str
    fence: Fence


def renew_lease(
    engine: Engine, shown: LeaseCredentials, progress: Progress | None = None
) -> Change:
    """Let the lease run on, and note how far the worker is.

    Raises:
        UnknownRunError, LeaseLostError, StoreUnavailableError: nothing was changed.
    """
    renew = partial(lifecycle.renew, rules=engine.rules, fence=shown.fence, progress=progress)
    return change_run(engine, shown.run_id, renew)


def save_checkpoint(
    engine: Engine,
    shown: LeaseCredentials,
    *,
    iteration_count: int,
    phase: str,
    partial_results: str,
) -> Change:
    """Keep what the worker has so far, JSON text, for whoever has to go on; renew the lease.

    Raises:
        TooLargeError, and as `renew_lease`: nothing was changed.
    """
    check_size("partialResults", partial_results, OUTPUT_BYTES)
    run, found = read_run(engine, shown.run_id)
    held_lease(run, found.read_at, shown.fence)  # before anything is stored
    # what it is named by is its content: one that comes late changes none that counts
    name = f"runs/{run.run_id}/values/checkpoint-{run.current_step}-{digest(partial_results)[:16]}"
    beside = run.with_(checkpoint=None).text_bytes  # it takes the place of the one before
    save = partial(
        lifecycle.checkpoint,
        rules=engine.rules,
        fence=shown.fence,
        iteration_count=iteration_count,
        phase=phase,
        partial_results=keep(engine.artifacts, partial_results, f"{name}.json", beside=beside),
    )
    return change_run(engine, shown.run_id, save)


def complete_step(engine: Engine, shown: LeaseCredentials, output: str, status: str) -> Change:
    """Record the output, JSON text, and hand off to the next step.

    Raises:
        InvalidOutputError: it does not fit the step's model, or what the next step is given.
        HandlerNotFoundError: the model does not resolve.
        TooLargeError, and as `renew_lease`: nothing was changed; an output that could not be
            stored may be told again.
    """
    complete = partial(
        lifecycle.complete, rules=engine.rules, fence=shown.fence, output_status=status
    )
    run, found = read_run(engine, shown.run_id)
    if not _holds(run, found, shown.fence):  # said before, or lost: the output counts for nothing
        return publish_owed(engine, complete(run, found.read_at, output=KeptValue()))
    _check_output(engine, run, output)
    check_size("output", output, OUTPUT_BYTES)
    result = through_gates(engine, run, Finished(output, status))
    return change_run(engine, shown.run_id, settlement(engine, run, shown.fence, result))


def fail_step(
    engine: Engine, shown: LeaseCredentials, error: ErrorRecord, *, permanent: bool
) -> Change:
    """Record why the attempt failed; it is repeated after its backoff, or the run is given up.

    Raises:
        UnknownRunError, LeaseLostError, StoreUnavailableError: as `renew_lease`.
    """
    facts: dict[str, Any] = {"rules": engine.rules, "fence": shown.fence}
    fail = partial(lifecycle.fail, **facts, error=error, permanent=permanent)
    return change_run(engine, shown.run_id, fail)


def release_step(engine: Engine, shown: LeaseCredentials) -> Change:
    """Give the lease back: another worker may go on at once, and no retry is burnt.

    Raises:
        UnknownRunError, LeaseLostError, StoreUnavailableError: as `renew_lease`.
    """
    facts: dict[str, Any] = {"rules": engine.rules, "fence": shown.fence}
    return change_run(
        engine,
        shown.run_id,
        partial(lifecycle.release, **facts, reason=Termination.INSTANCE_SHUTDOWN),
    )


def change_run(
    engine: Engine, run_id: str, transition: Transition, *, in_transaction: bool = False
) -> Change:
    """Commit the transition, and do what it owes; it raises what each call above does."""
    decide = on_run(run_id, transition)
    committed = engine.documents.transact(_ref(run_id), decide, in_transaction=in_transaction)
    return publish_owed(engine, committed.answer)


def read_run(engine: Engine, run_id: str) -> tuple[Manifest, Snapshot]:
    """Return the run, and the document that it was read from; or raise UnknownRunError."""
    found = engine.documents.get(_ref(run_id))
    if found is None:
        raise UnknownRunError(run_id=run_id)
    return manifest_of(run_id, found.document), found


def _ref(run_id: str) -> Ref:
    """Return the name of the run's document; not every store can be asked for any name."""
    if not is_run_id(run_id):
        raise UnknownRunError(run_id=run_id[:_MAX_SHOWN])
    return run_ref(run_id)


def _holds(run: Manifest, found: Snapshot, fence: Fence) -> bool:
    try:
        held_lease(run, found.read_at, fence)
    except LeaseLostError:
        return False
    return True


def _check_output(engine: Engine, run: Manifest, output: str) -> None:
    """Refuse an output that a handler could not have returned, or the next could not take."""
    steps = engine.catalog.steps
    step = steps.get(run.current_step)
    following = steps.get(run.next_step) if run.next_step else None
    if step is None:
        return
    if following is not None and following.handler == REMOTE:
        following = None
    if misfit := engine.runner.problem_with_output(step, output, following):
        raise InvalidOutputError(
            problem=f"{misfit.message}.",
            step=step.step_type,
            issues=misfit.validation_issues,
            issue_count=misfit.validation_issue_count,
        )
