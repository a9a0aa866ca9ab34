"""One attempt of one step: arrive, run, pass the gates, settle, and publish what that owes.

An output is handed off only if every gate of its step lets it pass.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from leasehold.attempt.attempt import Attempt
from leasehold.attempt.settlement import ending_of, made_output
from leasehold.attempt.values import load
from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition
from leasehold.domain.effect import left_behind
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import ErrorRecord, StepRecord
from leasehold.domain.result import Deferred, Failed, Finished, Result, Stopped, Unable
from leasehold.domain.status import DISPATCHES, BlockCode, Outcome, Termination
from leasehold.errors import (
    ArtifactNotFoundError,
    HandlerNotFoundError,
    InvalidVerdictError,
    ItemsRefusedError,
    LeaseLostError,
    SkipRefusedError,
    StoreUnavailableError,
    TooLargeError,
    UnknownRunError,
    UnreadableRunError,
)
from leasehold.frozen import dataclass
from leasehold.ports.documents import Committed
from leasehold.registry.dispatch import REMOTE, StepDispatchEntry
from leasehold.services import slots
from leasehold.services.children import ask as ask_for_children
from leasehold.services.children import at_place, checked_batch, given_of_lane
from leasehold.services.engine import Engine, publish, publish_owed
from leasehold.services.output_checks import skip_problem
from leasehold.services.pauses import let_go_if_resumed

_MOVED: Final = "In this deploy the step is remote; the lease was released for a remote worker."
_LEFT_TO_OTHERS: Final = (
    "The output is kept; it came to a process that does not know the step, and one that does "
    "judges it."
)


@dataclass(frozen=True, slots=True)
class Hint:
    """What a task says: an attempt of this run is due. It may be wrong, late or a duplicate."""

    run_id: str
    generation: int


def execute_step(engine: Engine, hint: Hint) -> Outcome:
    """Run the attempt that the hint names, if it is due and no other worker has it.

    A worker that may continue runs the steps after it as well, each under its own lease.

    Raises:
        StoreUnavailableError: the outcome could not be committed, or what it owes not published;
            the same hint may be given again.
    """
    try:
        arrived = arrive(engine, hint)
    except UnknownRunError:
        return Outcome.REJECTED
    return run_steps(engine, arrived).outcome


def arrive(engine: Engine, hint: Hint) -> Committed[Change]:
    """Ask for the lease, or learn why there is none to have."""
    ask = partial(
        lifecycle.arrive,
        rules=engine.dispatch_rules(),
        generation=hint.generation,
        lease_id=engine.clock.new_id(),
        holder=engine.process.holder,
    )
    arrived = engine.commit(hint.run_id, ask, in_transaction=True)
    if arrived.answer.outcome is Outcome.PARKED and arrived.answer.changed:
        return Committed(let_go_if_resumed(engine, arrived.answer), None)
    if arrived.answer.outcome is not Outcome.RESTING:
        return arrived
    return ask_for_children(engine, arrived.answer.manifest) or arrived


def run_steps(engine: Engine, committed: Committed[Change]) -> Change:
    """Publish what was committed, and run steps as long as that gave this worker a lease.

    Returns:
        The last change; its manifest is the run as this worker left it.

    Raises:
        StoreUnavailableError: as `execute_step`.
    """
    change = publish_owed(engine, committed.answer, committed.snapshot)
    try:
        while has_lease(change):
            committed = run_attempt(engine, committed)
            change = publish_owed(engine, committed.answer, committed.snapshot)
    except LeaseLostError:  # another attempt has the run now; this one changed nothing
        return change._replace(outcome=Outcome.LEASE_LOST, changed=False)
    return change


def has_lease(change: Change) -> bool:
    """Return whether the change gave this worker a lease: by its hint, or with a hand-off.

    A settlement that is only answered again shows the run as it is now: that lease is another's.
    """
    if not change.changed:
        return False
    if change.outcome in DISPATCHES:
        return change.manifest.position.lease is not None
    return change.outcome is Outcome.ACQUIRED


def run_attempt(engine: Engine, acquired: Committed[Change]) -> Committed[Change]:
    """Run the step under its lease, settle what came of it, and take the next lease along."""
    attempt = engine.leases.hold(engine, acquired)
    try:
        if attempt.manifest.owed and acquired.answer.outcome is Outcome.HANDED_OFF:
            publish(engine, left_behind(attempt.manifest))  # who handed off has this lease, too
        ending = _ending(engine, attempt)
        if engine.process.may_continue():
            lease_id = engine.clock.new_id()  # of rules whose overrides `ending_of` has just read
            ending = lifecycle.then_arrive(
                ending,
                rules=engine.rules,
                lease_id=lease_id,
                holder=engine.process.holder,
                in_request=engine.process.in_request,
            )
        if attempt.slots:
            slots.call_ahead(engine, attempt)
        return attempt.settle(ending)
    finally:
        engine.leases.let_go(attempt)
        if attempt.slots is not None:
            slots.pass_on(engine, attempt)


def _ending(engine: Engine, attempt: Attempt) -> Transition:
    """Run the handler, have its output pass the gates, and return how the attempt ends.

    A store that is away is waited for: for a while before the handler begins, and while the lease
    can be held once its work is done. Where it stays away the attempt is deferred.
    """
    try:
        result = _run_handler(engine, attempt)
        if attempt.slots is not None:
            result = slots.through_limits(attempt, result)
        return ending_of(attempt, through_gates(engine, attempt, result))
    except StoreUnavailableError as error:
        deferred = Deferred(Termination.STORE_UNAVAILABLE, error.message)
        return ending_of(attempt, deferred)


def _run_handler(engine: Engine, attempt: Attempt) -> Result:
    """Call the handler of the current step with what it is given; one that has ended is not.

    Raises:
        StoreUnavailableError: what it is given could not be loaded; it was not called.
    """
    manifest = attempt.manifest
    kept = manifest.steps[manifest.position.step]
    is_judged = manifest.has_unjudged_output
    value = (kept.kept_output if is_judged else None) or manifest.given
    load_value = partial(load, engine.artifacts, value)
    place = None if manifest.places is None else manifest.place_with_children
    lane = manifest.lane
    try:
        if place is not None:
            return attempt.fetch(partial(at_place, engine, attempt, place, load_value))
        if lane is not None and not is_judged:
            text = attempt.fetch(partial(given_of_lane, engine, manifest, lane))
        else:
            text = load_value() if value.ref is None else attempt.fetch(load_value)
    except (ArtifactNotFoundError, ItemsRefusedError, UnreadableRunError) as error:
        return Unable(BlockCode.INPUT_MISSING, ErrorRecord.of(error))
    step = engine.catalog.steps[attempt.step_type]
    if is_judged:  # it was paid for, and only its gates could not be asked
        return checked_output(engine, manifest, _kept_result(text, kept))
    if step.handler == REMOTE:  # no handler is missing: another worker has it, and may claim it
        return Stopped(Termination.INSTANCE_SHUTDOWN, _MOVED)
    if step.limits and (ending := slots.take_slots(engine, attempt, step, text)):
        return ending
    runner = engine.handlers.runners[engine.handlers.isolation_of(step)]
    result = attempt.call("handler", step.handler, runner.run, attempt, step, text)
    return result if lane is None else checked_batch(lane, manifest.position.step, result)


def _kept_result(text: str, kept: StepRecord) -> Finished:
    return Finished(text, kept.output_status or "SUCCESS", kept.summary or "", kept.skip_to)


def checked_output(engine: Engine, run: Manifest, finished: Finished) -> Result:
    """Return the output of a remote worker as it is, or what its model makes of it.

    A handler's own output was checked when it returned it.
    """
    step = engine.catalog.steps[run.step_type]
    if step.handler != REMOTE:
        return finished
    try:
        misfit = engine.handlers.checks.problem_with_output(step, finished.output)
    except HandlerNotFoundError as error:
        return Unable(BlockCode.HANDLER_UNAVAILABLE, ErrorRecord.of(error), finished)
    return finished if misfit is None else Unable(BlockCode.INPUT_MISMATCH, misfit, finished)


def through_gates(engine: Engine, attempt: Attempt, result: Result) -> Result:
    """Return the result of an attempt as it is, or what the first gate makes of it.

    Only an output has to pass gates. One that says of itself that it is an ERROR fails the
    attempt before any gate; one of a step that is not known here, as a remote worker sends it
    during a deploy, waits for those who know its gates. However the attempt ends from then on, the
    run keeps the output: it was paid for, and only a gate that refuses it has the handler called
    again. One that passes is summarised, if it is the run's last and its pipeline says how.

    Raises:
        StoreUnavailableError: a gate met an outage, or the output could not be stored.
    """
    if not isinstance(result, Finished):
        return result
    run = attempt.manifest
    if result.status == "ERROR":
        return Failed(engine.handlers.checks.error_of_output(run.position.step, result.output))
    if result.skip_to is not None and (allowed := skip_problem(engine, run, result.skip_to)):
        refused = SkipRefusedError(step=run.position.step, skip_to=result.skip_to, allowed=allowed)
        error = ErrorRecord.of(refused)
        if not run.is_listed:  # no deploy declares a skip of one item, or of one step among several
            return Failed(error, permanent=True)
        return Unable(BlockCode.SKIP_REFUSED, error, result)
    step = engine.catalog.steps.get(attempt.step_type)
    judged: Result = result
    if (step is None or step.gates) and run.place_with_children is None:
        judged = _asked(engine, attempt, result, step)
    return judged if run.position.step != run.plan[-1] else _summarized(engine, run, judged)


def _summarized(engine: Engine, run: Manifest, result: Result) -> Result:
    """Return the output of a run with what its pipeline says of it."""
    entry = engine.catalog.pipelines.get(run.pipeline)
    if not isinstance(result, Finished) or result.summary or run.next_step is not None:
        return result
    if entry is None or not entry.summary or not run.is_listed:  # its parent has the summary
        return result
    function = entry.summary_function
    return result._replace(summary=engine.handlers.gates.summarize(function, run, result))


def _asked(
    engine: Engine, attempt: Attempt, result: Finished, step: StepDispatchEntry | None
) -> Result:
    """Note the output, and return what the gates of the step make of it; None: not known here."""
    run = attempt.manifest
    try:
        attempt.note_output(made_output(attempt, result))
    except (InvalidVerdictError, TooLargeError):  # it fails so once more, when it is settled
        return result
    if step is None:
        return Stopped(Termination.INSTANCE_SHUTDOWN, _LEFT_TO_OTHERS)
    for gate in engine.catalog.gates_of(step.step_type):
        ask = partial(
            attempt.call, "gate", gate.handler, engine.handlers.gates.run, gate, run, result
        )
        begun = engine.clock.monotonic()
        judged: Result = attempt.insist(ask)
        took = engine.clock.monotonic() - begun
        verdict = "passed" if judged is result else type(judged).__name__.lower()
        engine.telemetry.gate_asked(run, gate.step_type, verdict, took)
        if judged is not result:
            return judged
    return result
