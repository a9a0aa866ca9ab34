"""The result of a run: the output of its last step, once it is completed."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus
from leasehold.errors import (
    LeaseholdError,
    ResultMismatchError,
    RunNotCompletedError,
    RunUnfinishedError,
)

T = TypeVar("T")


def check_completed(run: Manifest) -> None:
    """Raise why a run has no result: RunUnfinishedError, or RunNotCompletedError."""
    if run.status is not RunStatus.COMPLETED or run.cancelled or run.dead_lettered:
        raise _reason(run)


def read_as(model: type[T], value: Any, run_id: str) -> T:
    """Return a JSON value as a model has it, or raise ResultMismatchError."""
    adapter = TypeAdapter(model)
    try:
        return adapter.validate_json(json.dumps(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "it"
        name = getattr(model, "__name__", str(model))
        raise ResultMismatchError(
            run_id=run_id, model=name, problem=f"{place}: {first['msg']}"
        ) from None


def _reason(run: Manifest) -> LeaseholdError:
    why = _why(run)
    facts = {
        "run_id": run.run_id,
        "state": run.state,
        "step": run.current_step,
        "why": f": {why.rstrip('.')}" if why else "",
        "reason": run.dead_letter_reason,
        "error": None if run.error is None else run.error.model_dump(mode="json", by_alias=True),
    }
    if run.is_terminal:
        return RunNotCompletedError(**facts)
    return RunUnfinishedError(**facts, remedy=_remedy(run))


def _why(run: Manifest) -> str | None:
    """Return why a run does not go on; None: it does, or nothing more is to be said."""
    if run.dead_letter_reason is not None:
        return f"{run.dead_letter_reason}: {run.dead_letter_detail or _failure(run)}"
    if run.cancelled or run.paused:
        return None
    if run.block is not None:
        return f"{run.block.code}: {run.block.finding}"
    return _failure(run)


def _failure(run: Manifest) -> str | None:
    return None if run.error is None else f"{run.error.type}: {run.error.message}"


def _remedy(run: Manifest) -> str:
    if run.paused:
        return "Resume it."
    if run.block is not None:
        return run.block.remediation
    return "Wait for it first."
