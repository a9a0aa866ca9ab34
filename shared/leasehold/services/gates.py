"""Gates: an output is handed off only if every gate of its step lets it pass."""

from __future__ import annotations

from functools import partial
from typing import Final

from leasehold.attempt.attempt import Attempt
from leasehold.attempt.settlement import made_output
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.result import Failed, Finished, Result, Stopped, Unable
from leasehold.domain.status import BlockCode, Termination
from leasehold.errors import HandlerNotFoundError, InvalidVerdictError, TooLargeError
from leasehold.registry.dispatch import REMOTE, StepDispatchEntry
from leasehold.services.engine import Engine

_LEFT_TO_OTHERS: Final = (
    "The output is kept; it came to a process that does not know the step, and one that does "
    "judges it."
)


def checked_output(engine: Engine, run: Manifest, finished: Finished) -> Result:
    """Return the output of a remote worker as it is, or what its model makes of it.

    A handler's own output was checked when it returned it.
    """
    step = engine.catalog.steps[run.position.step]
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
    again.

    Raises:
        StoreUnavailableError: a gate met an outage, or the output could not be stored.
    """
    if not isinstance(result, Finished):
        return result
    run = attempt.manifest
    if result.status == "ERROR":
        return Failed(engine.handlers.checks.error_of_output(run.position.step, result.output))
    step = engine.catalog.steps.get(run.position.step)
    if step is not None and not step.gates:
        return result
    return _asked(engine, attempt, result, step)


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
        judged: Result = attempt.insist(ask)
        if judged is not result:
            return judged
    return result
