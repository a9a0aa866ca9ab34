"""Gates: an output that fits is handed off only if every gate of its step lets it pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pydantic_core
from pydantic import ValidationError

from leasehold.domain.manifest import Block, ErrorRecord, Manifest
from leasehold.domain.result import Failed, Finished, Refused, Result
from leasehold.errors import GatePolicyFailure, PermanentError
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.step_runner import StepHandler
from leasehold.ports.values import load
from leasehold.worker.context import RunArtifacts, output_of
from leasehold.worker.failures import record_of, record_of_misfit, record_of_report, told
from leasehold.worker.handlers import handler_of
from leasehold.worker.interrupts import is_ctrl_c
from leasehold.worker.outage import outage_in

GATE_POLICY_FAILURE: Final = "GATE_POLICY_FAILURE"
OUTPUT_ERROR: Final = "output_error"

_MAX_ID: Final = 100
_MAX_WORDS: Final = 2000


class GateContext:
    """What a gate may ask of the engine.

    Attributes:
        run_id: the run.
        step_type: the step whose output is judged.
        given: what the step was given, as plain JSON values.
        artifacts: files of this run.
    """

    def __init__(self, manifest: Manifest, artifacts: Artifacts) -> None:
        self.run_id = manifest.run_id
        self.step_type = manifest.current_step
        self.artifacts = RunArtifacts(artifacts, self.run_id)
        self._manifest = manifest
        self._store = artifacts

    @property
    def given(self) -> Any:
        """What the step was given, as plain JSON values."""
        return pydantic_core.from_json(load(self._store, self._manifest.given))

    def output_of(self, step_type: str) -> Any:
        """Return the output of an earlier step of this run, as plain JSON values.

        Raises:
            InvalidRequestError: no earlier step of that name has an output.
        """
        return output_of(self._manifest, self._store, step_type)


def through_gates(
    gates: Iterable[StepHandler], manifest: Manifest, artifacts: Artifacts, finished: Finished
) -> Result:
    """Return the result as it is, or what the first gate that refuses it makes of it.

    An output that says of itself that it is an ERROR fails the attempt before any gate. A gate
    that fails by itself fails the attempt: nobody knows whether the output is good.

    Raises:
        StoreUnavailableError: a gate met an outage; ask again.
    """
    if finished.status == "ERROR":
        return Failed(_of_error_output(manifest.current_step, finished.output))
    for gate in gates:
        try:
            check = handler_of(gate)
            output = check.given.validate_json(finished.output)
        except ValidationError as error:
            return Failed(record_of_misfit(error, code="invalid_output", what="The output"))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is kept with the run
            return Failed(_of_gate(gate, record_of(error)), permanent=True)
        try:
            context: Any = GateContext(manifest, artifacts)
            check(context, output)
        except GatePolicyFailure as refusal:
            return Refused(finished.output, finished.status, _block(refusal))
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            if outage := outage_in(error):
                raise outage from None
            permanent = isinstance(error, PermanentError)
            return Failed(_of_gate(gate, record_of(error)), permanent=permanent)
    return finished


def _block(refusal: GatePolicyFailure) -> Block:
    return Block(
        code=GATE_POLICY_FAILURE,
        check_id=told(refusal.check_id, _MAX_ID),
        finding=told(refusal.finding, _MAX_WORDS),
        remediation=told(refusal.remediation, _MAX_WORDS),
    )


def _of_error_output(step: str, output: str) -> ErrorRecord:
    """Return the error of an output of status ERROR, with as much of it as there is room for."""
    message = f"The output of step {step} has status ERROR; its beginning is in the details."
    said = {"output": pydantic_core.from_json(output)}
    return record_of_report("StepResult", OUTPUT_ERROR, message, said)


def _of_gate(gate: StepHandler, record: ErrorRecord) -> ErrorRecord:
    return record.with_(code="gate_raised", message=f"{gate.step_type}: {record.message}")
