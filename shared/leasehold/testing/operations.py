"""What people do to runs, as methods of the engine of a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol, TypeVar, Unpack, overload

import pydantic_core

from leasehold.api.batch import BatchBody
from leasehold.api.operations import (
    ApproveBody,
    OperationBody,
    RecreateBody,
    RetryBody,
)
from leasehold.api.runs import RunsQuery
from leasehold.client.arguments import Decision, Filters, filter_fields
from leasehold.client.typed_result import read_as
from leasehold.domain.json_text import plain
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.services.audit import AuditResult, audit
from leasehold.services.batch import BatchResult, batch
from leasehold.services.engine import Engine
from leasehold.services.operate import AS_BEFORE, operate
from leasehold.services.read_results import read_output
from leasehold.services.read_runs import matching_runs
from leasehold.services.sweep import sweep
from leasehold.services.sweep_result import SweepResult
from leasehold.testing.arguments import checked_run_id

T = TypeVar("T")

#: Who asks, in the trace of a run.
ACTOR: Final = "test"


class _InProcess(Protocol):
    """What operations need of an engine in a process."""

    @property
    def engine(self) -> Engine: ...

    def adopt(self, run_id: str) -> None: ...


class Operations:
    """What people do with runs, done at once; each returns the run as it is then.

    Raises, in each method:
        InvalidRequestError: an argument is not what it may be; nothing was changed.
        UnknownRunError: no run has that id.
        NotAllowedError: the state of the run forbids it.
        StateChangedError: it is not at the generation or the step that was given.
    """

    def pause(self: _InProcess, run_id: str, **decision: Unpack[Decision]) -> Manifest:
        """Let a running attempt end, and dispatch nothing more until the run is resumed."""
        return _operate(self, run_id, Operation.PAUSE, OperationBody(**decision))

    def resume(self: _InProcess, run_id: str, **decision: Unpack[Decision]) -> Manifest:
        """Dispatch the next attempt of a paused run now."""
        return _operate(self, run_id, Operation.RESUME, OperationBody(**decision))

    def cancel(self: _InProcess, run_id: str, **decision: Unpack[Decision]) -> Manifest:
        """End a run for good."""
        return _operate(self, run_id, Operation.CANCEL, OperationBody(**decision))

    def retry(
        self: _InProcess,
        run_id: str,
        *,
        note: str | None = None,
        anew: bool = False,
        **decision: Unpack[Decision],
    ) -> Manifest:
        """Run the step again that failed or is blocked, without its backoff; see `Client.retry`."""
        body = RetryBody(note=note, anew=anew, **decision)
        return _operate(self, run_id, Operation.RETRY, body)

    def approve(
        self: _InProcess, run_id: str, *, output: Any = AS_BEFORE, **decision: Unpack[Decision]
    ) -> Manifest:
        """Hand off the output that a gate refused, or an edited one; see `Client.approve`."""
        given: dict[str, Any] = {} if output is AS_BEFORE else {"output": plain(output)}
        return _operate(self, run_id, Operation.APPROVE, ApproveBody(**given, **decision))

    def recreate(
        self: _InProcess,
        run_id: str,
        *,
        from_step: str | None = None,
        input: Any = AS_BEFORE,  # noqa: A002 - the word of the API
        labels: Mapping[str, str] | None = None,
        keep_partial: bool = False,
        anew: bool = False,
        **decision: Unpack[Decision],
    ) -> Manifest:
        """Make a new run of one that is over, and return the new one; see `Client.recreate`."""
        given: dict[str, Any] = {} if input is AS_BEFORE else {"input": plain(input)}
        given |= {"keep_partial": keep_partial, "anew": anew}
        body = RecreateBody(from_step=from_step, labels=labels, **given, **decision)
        return _operate(self, run_id, Operation.RECREATE, body)

    def batch(
        self: _InProcess,
        operation: Operation | str,
        wanted: Filters,
        *,
        limit: int,
        dry_run: bool = False,
        reason: str = "",
        step: str | None = None,
        from_step: str | None = None,
        keep_partial: bool = False,
        anew: bool = False,
        note: str | None = None,
    ) -> BatchResult:
        """Do an operation on the runs that fit, newest first; see `Client.batch`."""
        given: dict[str, Any] = {
            "action": operation,
            "filter": filter_fields(wanted),
            "limit": limit,
            "dry_run": dry_run,
            "reason": reason,
            "step": step,
            "from_step": from_step,
            "keep_partial": keep_partial,
            "anew": anew,
        }
        if note is not None:
            given["note"] = note
        body = BatchBody.model_validate(given)
        request, fits = body.to_request(ACTOR), body.filter.to_filter()
        return batch(self.engine, request, fits, limit=limit, dry_run=dry_run)

    def sweep(self: _InProcess) -> SweepResult:
        """Attend to each run of the store whose alarm is due, as Cloud Scheduler has it done."""
        return sweep(self.engine)

    def audit(self: _InProcess, *, repair: bool = False) -> list[AuditResult]:
        """Return the runs that nobody and nothing would move: there are none, or it is a bug."""
        return [*audit(self.engine, repair=repair)]

    def runs(self: _InProcess, **wanted: Unpack[Filters]) -> Iterator[Manifest]:
        """Return the runs that fit, newest first."""
        return matching_runs(
            self.engine, RunsQuery.model_validate(filter_fields(wanted)).to_filter()
        )

    @overload
    def output(self: _InProcess, run_id: str, step: str | None = None) -> Any: ...

    @overload
    def output(self: _InProcess, run_id: str, step: str | None = None, *, model: type[T]) -> T: ...

    def output(self: _InProcess, run_id: str, step: str | None = None, *, model: Any = None) -> Any:
        """Return the output of a step, wherever it is kept, as plain JSON values or as a model.

        Args:
            run_id: the run.
            step: one of its steps, whose output may wait for a decision; None: the output of the
                run, once it is completed.
            model: what to read it as.

        Raises:
            UnknownStepError, StepNotCompletedError: the run has no such step, the step no output.
            RunUnfinishedError, RunNotCompletedError: the run has no output.
            ResultMismatchError: the output does not fit the model.
        """
        value = pydantic_core.from_json(read_output(self.engine, checked_run_id(run_id), step))
        return value if model is None else read_as(model, value, run_id)


def _operate(
    engine: _InProcess, run_id: str, operation: Operation, body: OperationBody
) -> Manifest:
    change = operate(engine.engine, checked_run_id(run_id), body.to_request(operation, ACTOR))
    if change.created is not None:
        engine.adopt(change.created.run_id)
    return change.created or change.manifest
