"""One attempt of one step: arrive, run, settle, and do what the settlement owes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition, on_run
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import ErrorRecord, KeptValue, Manifest, run_ref
from leasehold.domain.result import Deferred, Failed, Finished, Refused, Result, Stopped
from leasehold.domain.status import Outcome, Termination
from leasehold.errors import (
    ArtifactNotFoundError,
    LeaseholdError,
    LeaseLostError,
    StoreUnavailableError,
    TooLargeError,
    UnknownRunError,
)
from leasehold.ports.documents import Committed
from leasehold.ports.step_runner import HeldRun
from leasehold.ports.values import OUTPUT_BYTES, check_size, digest, keep, load
from leasehold.registry.dispatch import REMOTE
from leasehold.services.engine import Engine, publish_owed


@dataclass(frozen=True, slots=True)
class Hint:
    """What a task says: an attempt of this run is due. It may be wrong, late or said twice."""

    run_id: str
    generation: int


def execute_step(engine: Engine, hint: Hint) -> Outcome:
    """Run the attempt that the hint names, if it is due and nobody else has it.

    A worker that may go on runs the steps after it as well, each under a lease of its own.

    Raises:
        StoreUnavailableError: the outcome could not be committed, or what it owes not enqueued;
            the same hint may be given again.
    """
    try:
        attempt = arrive(engine, hint)
    except UnknownRunError:
        return Outcome.REJECTED
    return run_steps(engine, attempt).outcome


def run_steps(engine: Engine, attempt: Committed[Change]) -> Change:
    """Follow up on what was committed, and run steps as long as that gave this worker a lease.

    Returns:
        The last change; its manifest is the run as this worker left it.

    Raises:
        StoreUnavailableError: as `execute_step`.
    """
    change = publish_owed(engine, attempt.answer)
    try:
        while has_lease(change):
            attempt = work(engine, attempt)
            change = publish_owed(engine, attempt.answer)
    except LeaseLostError:  # another attempt has the run now; this one changed nothing
        return replace(change, outcome=Outcome.LEASE_LOST, changed=False)
    return change


def arrive(engine: Engine, hint: Hint) -> Committed[Change]:
    """Ask for the lease, or learn why there is none to have."""
    ask = partial(
        lifecycle.arrive,
        rules=engine.rules,
        generation=hint.generation,
        lease_id=engine.clock.new_id(),
        holder=engine.holder,
    )
    decide = on_run(hint.run_id, ask)
    return engine.documents.transact(run_ref(hint.run_id), decide, in_transaction=True)


def has_lease(change: Change) -> bool:
    """Return whether the change gave this worker a lease: by its hint, or with a hand-off.

    A settlement that is only answered again shows the run as it is now: that lease is another's.
    """
    if not change.changed:
        return False
    if change.outcome in (Outcome.STARTED, Outcome.HANDED_OFF):
        return change.manifest.lease is not None
    return change.outcome is Outcome.ACQUIRED


def work(engine: Engine, acquired: Committed[Change]) -> Committed[Change]:
    """Run the handler under the lease, settle what came of it, and take the next lease along."""
    assert acquired.snapshot is not None  # noqa: S101 - a lease was just written
    with engine.runner.hold(acquired.snapshot, acquired.answer.manifest) as held:
        settle = run_attempt(engine, held)
        if engine.may_continue():
            lease_id = engine.clock.new_id()
            settle = lifecycle.then_arrive(
                settle, rules=engine.rules, lease_id=lease_id, holder=engine.holder
            )
        settled: Committed[Change] = held.settle(settle)
        return settled


def run_attempt(engine: Engine, held: HeldRun) -> Transition:
    """Run the handler, have its output pass the gates, and return how the attempt ends.

    A store that is away is waited for: for a while before the handler begins, and while the lease
    can be held once its work is done. Where it stays away the attempt is deferred.
    """
    try:
        result = run(engine, held)
        result = held.insist(partial(through_gates, engine, held.manifest, result))
        return held.insist(partial(settlement, engine, held.manifest, held.fence, result))
    except StoreUnavailableError as error:
        deferred = Deferred(Termination.STORE_UNAVAILABLE, error.message)
        return settlement(engine, held.manifest, held.fence, deferred)


def run(engine: Engine, held: HeldRun) -> Result:
    """Call the handler of the current step with what it is given.

    Raises:
        StoreUnavailableError: what it is given could not be loaded; it was not called.
    """
    manifest = held.manifest
    try:
        given = held.fetch(partial(load, engine.artifacts, manifest.given))
    except ArtifactNotFoundError as error:
        return Failed(recorded(error), permanent=True)
    step = engine.catalog.steps[manifest.current_step]
    if step.handler == REMOTE:  # no handler is missing: another worker has it, and may claim it
        return Stopped(Termination.INSTANCE_SHUTDOWN)
    return engine.runner.run(held, step, given)


def through_gates(engine: Engine, manifest: Manifest, result: Result) -> Result:
    """Return what the gates of the current step make of the result.

    Raises:
        StoreUnavailableError: a gate met an outage.
    """
    if not isinstance(result, Finished):
        return result
    gates = engine.catalog.gates_of(manifest.current_step)
    return engine.runner.through_gates(gates, manifest, result)


def settlement(engine: Engine, manifest: Manifest, fence: Fence, result: Result) -> Transition:
    """Return the transition that a result calls for.

    Raises:
        StoreUnavailableError: the output could not be kept.
    """
    facts: dict[str, Any] = {"rules": engine.rules, "fence": fence}
    match result:
        case Finished(output, status) | Refused(output, status):
            try:
                kept = _keep_output(engine, manifest, output, fence)
            except TooLargeError as error:
                return partial(lifecycle.fail, **facts, error=recorded(error), permanent=True)
            facts |= {"output": kept, "output_status": status}
            if isinstance(result, Refused):
                return partial(lifecycle.block, **facts, found=result.found)
            return partial(lifecycle.complete, **facts)
        case Failed(failure, permanent):
            return partial(lifecycle.fail, **facts, error=failure, permanent=permanent)
        case Stopped(reason):
            return partial(lifecycle.release, **facts, reason=reason)
        case Deferred(reason, detail):
            return partial(lifecycle.defer, **facts, reason=reason, detail=detail)


def _keep_output(engine: Engine, manifest: Manifest, output: str, fence: Fence) -> KeptValue:
    """Keep the output of the current step under a name that no other attempt's output has.

    Raises:
        TooLargeError: no output may be as large; nothing was kept.
    """
    step = manifest.current_step
    check_size(f"the output of step {step}", output, OUTPUT_BYTES)
    # names are shown to those who read the run, and the id of a lease is its holder's
    mark = f"{digest(fence.lease_id)[:16]}-{digest(output)[:16]}"
    name = f"runs/{manifest.run_id}/values/{step}-{mark}.json"
    return keep(engine.artifacts, output, name, beside=manifest.text_bytes)


def recorded(error: LeaseholdError) -> ErrorRecord:
    """Return an error of Leasehold as a run keeps it."""
    return ErrorRecord(type=type(error).__name__, code=error.code, message=error.message)
