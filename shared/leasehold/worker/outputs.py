"""Outputs that were made elsewhere: they must be what a handler here could have returned."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from leasehold.domain.manifest import ErrorRecord
from leasehold.errors import HandlerNotFoundError
from leasehold.ports.step_runner import StepHandler, StepOutput
from leasehold.registry.dispatch import REMOTE
from leasehold.worker.failures import record_of_misfit
from leasehold.worker.handlers import handler_of, model_of


def problem_with_output(
    step: StepOutput, output: str, following: StepHandler | None = None
) -> ErrorRecord | None:
    """Return why this JSON text is no output of the step, or cannot be given to the one after it.

    Args:
        step: the step it is the output of.
        output: JSON text.
        following: the next step, where a handler of this bundle runs it.

    Returns:
        None where it fits. A next handler that does not resolve refuses nothing: the output is
        good, and that handler's own attempt will say what is wrong.

    Raises:
        HandlerNotFoundError: the model of the step's output does not resolve.
    """
    what = f"The output of step {step.step_type}"
    if (model := _output_of(step)) and (misfit := _misfit(model, output, what)):
        return misfit
    if following is None:
        return None
    try:
        given = handler_of(following).given
    except HandlerNotFoundError:
        return None
    return _misfit(given, output, f"{what}, which step {following.step_type} is given,")


def _output_of(step: StepOutput) -> TypeAdapter[Any] | None:
    if step.handler != REMOTE:
        return handler_of(step).output
    return model_of(step, step.output) if step.output else None


def _misfit(model: TypeAdapter[Any], text: str, what: str) -> ErrorRecord | None:
    try:
        model.validate_json(text)
    except ValidationError as error:
        return record_of_misfit(error, code="invalid_output", what=what)
    return None
