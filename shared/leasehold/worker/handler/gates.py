"""Gates: how one is called, and what it comes to. Which have to be passed: `execute_step.py`."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final

import pydantic_core
from pydantic import ValidationError

from leasehold.attempt.calls import output_text_of
from leasehold.attempt.files import RunArtifacts
from leasehold.bounded_calls import BoundedCalls
from leasehold.domain.delivery import MAX_OUTPUT_SUMMARY_CHARS
from leasehold.domain.kept_checkpoint import Load
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Block, ErrorRecord
from leasehold.domain.printable import one_line
from leasehold.domain.result import Failed, Finished, Refused, Result, Stopped, Unable
from leasehold.domain.status import BlockCode, Termination
from leasehold.domain.stored import replace
from leasehold.errors import GatePolicyFailure
from leasehold.logs.attempt import AttemptName, LinesOf
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.handler_runner import StepHandler
from leasehold.worker.failures.error_chain import outage_in
from leasehold.worker.failures.failures import record_of, record_of_misfit, safe_text
from leasehold.worker.failures.kept_text import MAX_TEXT_CHARS, cut, try_text
from leasehold.worker.failures.retry_hints import is_mistake, is_permanent
from leasehold.worker.handler.handlers import handler_of
from leasehold.worker.stopping.system_signals import SERVER_EXIT, Interrupts, is_interrupt

GATE_POLICY_FAILURE: Final = "GATE_POLICY_FAILURE"

#: So long a summary may take: the end of a run waits for it.
SUMMARY_TIMEOUT_S: Final = 5.0

_LOG: Final = logging.getLogger("leasehold.summary")
_MAX_CHECK_ID_CHARS: Final = 100
_MAX_FINDING_CHARS: Final = 2000


class GateContext:
    """The requests of a gate to the engine.

    Attributes:
        run_id: the run.
        step: the name of the step whose output is judged.
        step_type: its type; the same, unless the pipeline names it.
        trial: the number of the trial that the output is of, from 1.
        given: what the step was given, as plain JSON values.
        artifacts: files of this run.
    """

    def __init__(self, manifest: Manifest, artifacts: Artifacts, load: Load) -> None:
        self.run_id = manifest.run_id
        self.step = manifest.position.step
        self.step_type = manifest.step_type
        self.trial = manifest.position.trial
        self.artifacts = RunArtifacts(artifacts, manifest)
        self._manifest = manifest
        self._load = load

    @property
    def given(self) -> Any:
        """The input of the step, as plain JSON values."""
        return pydantic_core.from_json(self._load(self._manifest.given))

    def output_of(self, step_type: str) -> Any:
        """Return the output of an earlier step of this run, as plain JSON values.

        Args:
            step_type: the name of that step in the pipeline.

        Raises:
            InvalidRequestError: no earlier step of that name has an output.
        """
        return pydantic_core.from_json(output_text_of(self._manifest, self._load, step_type))


class InlineGateRunner:
    """The gate runner port, in the thread that asks.

    Args:
        artifacts: the files of runs.
        load: reads a value of a run.
        interrupts: where a Ctrl-C is kept that cuts a gate short.
    """

    def __init__(self, artifacts: Artifacts, load: Load, interrupts: Interrupts) -> None:
        self._artifacts = artifacts
        self._load = load
        self._interrupts = interrupts
        self._summaries = BoundedCalls("summary")

    def summarize(self, function: StepHandler, manifest: Manifest, finished: Finished) -> str:
        """Return what a function says of an output; empty: it fails, or takes too long for it."""
        made, problem = None, "others of this process hang"
        if not self._summaries.are_taken():
            call = partial(self._summary, function, manifest, finished)
            made = self._summaries.make(call, wait_s=SUMMARY_TIMEOUT_S)
            problem = f"it did not return within {SUMMARY_TIMEOUT_S:g} s"
        if made is not None and made.done():
            error = made.exception()
            if error is None:
                return made.result()
            problem = words_of_error(error)
        words = "run %s is announced without its summary, by %s: %s"
        _LOG.warning(words, manifest.run_id, function.handler, problem)
        return ""

    def _summary(self, function: StepHandler, manifest: Manifest, finished: Finished) -> str:
        summary = handler_of(function)
        output = summary.given.validate_json(finished.output)
        context: Any = GateContext(manifest, self._artifacts, self._load)
        with LinesOf(_name_of(manifest)):
            text = summary(context, output)
        if not isinstance(text, str):
            raise TypeError(f"it returned {type(text).__name__}, and should return a text")
        return safe_text(text, MAX_OUTPUT_SUMMARY_CHARS)

    def run(self, gate: StepHandler, manifest: Manifest, finished: Finished) -> Result:
        """Return the result as it is, or what the gate makes of it.

        A gate that raises fails the attempt: it is unknown whether the output is good.

        Raises:
            StoreUnavailableError: the gate met an outage; ask again.
        """
        with LinesOf(_name_of(manifest)):
            return self._run(gate, manifest, finished)

    def _run(self, gate: StepHandler, manifest: Manifest, finished: Finished) -> Result:
        code = BlockCode.HANDLER_UNAVAILABLE
        try:
            check = handler_of(gate)
            code = BlockCode.INPUT_MISMATCH
            output = check.given.validate_json(finished.output)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is kept with the run
            if outage := outage_in(error):
                raise outage from None
            return Unable(code, _record_of(gate, error), finished)
        try:
            context: Any = GateContext(manifest, self._artifacts, self._load)
            SERVER_EXIT.let_through(check, context, output)
        except GatePolicyFailure as refusal:
            block = _block(refusal)
            return Refused(
                finished.output, finished.status, block, finished.summary, finished.skip_to
            )
        except BaseException as error:  # noqa: BLE001 - a gate must not take the worker with it
            if stopped := self._stopped_by(error):
                return stopped
            if outage := outage_in(error):
                raise outage from None
            record = replace(_record_of(gate, error), code="gate_raised")
            permanent = is_permanent(error, manifest.position.dispatch.retry)
            if not permanent and is_mistake(error):
                return Unable(BlockCode.HANDLER_MISTAKE, record, finished)
            return Failed(record, permanent)
        return finished

    def _stopped_by(self, error: BaseException) -> Stopped | None:
        if is_interrupt(error):
            return self._interrupts.stopped_by(error)
        return Stopped(Termination.INSTANCE_SHUTDOWN) if SERVER_EXIT.is_waiting else None


def _name_of(manifest: Manifest) -> AttemptName:
    return AttemptName(manifest.run_id, manifest.position.step, manifest.position.attempt)


def words_of_error(error: BaseException) -> str:
    """Return class and words of an error, in one line."""
    words = one_line(
        safe_text(try_text(lambda: str(error)), _MAX_FINDING_CHARS), _MAX_FINDING_CHARS
    )
    return f"{type(error).__name__}: {words}".rstrip(" :.")


def _block(refusal: GatePolicyFailure) -> Block:
    return Block(
        code=GATE_POLICY_FAILURE,
        check_id=safe_text(refusal.check_id, _MAX_CHECK_ID_CHARS),
        finding=safe_text(refusal.finding, _MAX_FINDING_CHARS),
        remediation=safe_text(refusal.remediation, _MAX_FINDING_CHARS),
    )


def _record_of(gate: StepHandler, error: BaseException) -> ErrorRecord:
    if isinstance(error, ValidationError):
        what = f"What {gate.step_type} is given"
        return record_of_misfit(error, code="invalid_output", what=what)
    record = record_of(error, gate.handler)
    return replace(record, message=cut(f"{gate.step_type}: {record.message}", MAX_TEXT_CHARS))
