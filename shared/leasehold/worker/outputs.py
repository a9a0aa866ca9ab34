"""The answer of a handler: an output as its model has it, or the failure it is."""

from __future__ import annotations

from typing import Any, Final

from pydantic import ValidationError

from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.result import OUTPUT_STATUSES, Failed, Finished, Result, StepResult
from leasehold.worker.failures import record_of, safe_text
from leasehold.worker.handlers import Handler
from leasehold.worker.kept_text import MAX_TEXT, cut
from leasehold.worker.misfits import record_of_misfit
from leasehold.worker.typed_json import json_text_of

_MAX_SHOWN: Final = 100


def judged(handler: Handler, answer: Any) -> Result:
    """Return the answer of a handler as its model has it, or as the failure it is."""
    status: str = "SUCCESS"
    if isinstance(answer, StepResult):
        answer, status = answer.output, answer.status
    if status not in OUTPUT_STATUSES:
        shown, allowed = safe_text(status, _MAX_SHOWN), ", ".join(OUTPUT_STATUSES)
        message = f"StepResult.status is {shown!r}; allowed: {allowed}."
        return Failed(ErrorRecord(type="StepResult", code="invalid_output", message=message))
    try:
        return Finished(json_text_of(handler.output, answer), status)
    except ValidationError as error:
        return Failed(record_of_misfit(error, code="invalid_output", what="The output"))
    except (ValueError, RecursionError) as error:  # PydanticSerializationError among them
        record = record_of(error)
        message = cut(f"The output cannot be kept as JSON: {record.message}", MAX_TEXT)
        record = record.with_(type="TypeError", code="invalid_output", message=message)
        return Failed(record, permanent=True)  # another attempt would return the same
    except Exception as error:  # noqa: BLE001 - a validator of the user's may raise anything
        return Failed(record_of(error).with_(code="invalid_output"))
