"""What is wrong with a handler, or with a value that it takes or returns; nothing is called."""

from __future__ import annotations

from typing import Any, Final

import pydantic_core
from pydantic import TypeAdapter, ValidationError

from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.errors import HandlerNotFoundError
from leasehold.ports.handler_checks import BrokenLink, Misfit, MisfitVerdict, StepOutput
from leasehold.ports.handler_runner import EnteredStep, StepHandler
from leasehold.registry.dispatch import REMOTE
from leasehold.worker.chain import misfit, no_verdict
from leasehold.worker.failures import record_of_report
from leasehold.worker.handler_call import entry_actions_of
from leasehold.worker.handlers import handler_of, model_of
from leasehold.worker.misfits import first_problem, issues_of, record_of_misfit

OUTPUT_ERROR: Final = "output_error"


class ImportedHandlerChecks:
    """The handler checks port, by the handlers themselves, which it imports."""

    def check(self, step: StepHandler) -> None:
        """Resolve the handler, or raise HandlerNotFoundError."""
        handler_of(step)

    def check_entry_actions(self, step: EnteredStep) -> None:
        """Resolve the entry actions, or raise EntryActionNotFoundError."""
        entry_actions_of(step)

    def broken_link(self, step: StepOutput, following: StepHandler) -> BrokenLink | None:
        """Return why no output of the step fits the next one; None: some may fit."""
        if following.handler == REMOTE:
            return None
        try:
            output, taken, name = _output_of(step), handler_of(following), _output_name_of(step)
        except HandlerNotFoundError:
            return None
        problem = None if output is None else misfit(output, taken.given)
        return None if problem is None else BrokenLink(name, taken.given_name, problem)

    def misfit_verdict(self, reviewer: StepOutput) -> MisfitVerdict | None:
        """Return why no output of the reviewer is a verdict; None: some may be."""
        try:
            output, name = _output_of(reviewer), _output_name_of(reviewer)
        except HandlerNotFoundError:
            return None
        problem = None if output is None else no_verdict(output)
        return None if problem is None else MisfitVerdict(name, problem)

    def problem_with(self, step: StepHandler, given: str) -> Misfit | None:
        """Return why this JSON text does not fit the handler's model; or None."""
        handler = handler_of(step)
        try:
            handler.given.validate_json(given)
        except ValidationError as error:
            return Misfit(
                handler.given_name, first_problem(error), issues_of(error), error.error_count()
            )
        return None

    def problem_with_output(
        self, step: StepOutput, output: str, following: StepHandler | None = None
    ) -> ErrorRecord | None:
        """Return why this JSON text is no output of the step, or not for the next one; or None."""
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

    def error_of_output(self, step_type: str, output: str) -> ErrorRecord:
        """Return the error of an output of status ERROR, with as much of it as there is room."""
        message = (
            f"The output of step {step_type} has status ERROR; its beginning is in the details."
        )
        details = {"output": pydantic_core.from_json(output)}
        return record_of_report("StepResult", OUTPUT_ERROR, message, details)


def _output_of(step: StepOutput) -> TypeAdapter[Any] | None:
    if step.handler != REMOTE:
        return handler_of(step).output
    return model_of(step, step.output) if step.output else None


def _output_name_of(step: StepOutput) -> str:
    return step.output if step.handler == REMOTE else handler_of(step).output_name


def _misfit(model: TypeAdapter[Any], text: str, what: str) -> ErrorRecord | None:
    try:
        model.validate_json(text)
    except ValidationError as error:
        return record_of_misfit(error, code="invalid_output", what=what)
    return None
