"""What people do to runs, as methods of the engine of a test: those of the client."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from leasehold.api import calls
from leasehold.api.call_row import Answer, AnyRow, CallRequest, CallRow, Given
from leasehold.api.runs import RunsQuery
from leasehold.client.arguments import Filters, Run, filter_fields, read_as
from leasehold.client.client import Client
from leasehold.client.connection import EngineConnection
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.domain.summary import Summary
from leasehold.services.audit import AuditResult, audit
from leasehold.services.engine import Engine
from leasehold.services.operate import operate
from leasehold.services.read_runs import matching_runs
from leasehold.services.sweep import SweepResult, sweep
from leasehold.testing.arguments import checked_run_id

P = ParamSpec("P")
T = TypeVar("T")

#: Who asks, in the trace of a run.
ACTOR: Final = "test"

_OPERATIONS: Final[Mapping[AnyRow, Operation]] = {
    row: operation for operation, row in calls.OPERATIONS.items()
}


class _InProcess(Protocol):
    """The part of an engine that operations need."""

    @property
    def engine(self) -> Engine: ...

    def adopt(self, run_id: str) -> None: ...


class _KitConnection(EngineConnection):
    """The engine of a test: what was operated on is answered whole, and a new run goes on here."""

    def __init__(self, kit: _InProcess) -> None:
        super().__init__(kit.engine)
        self._kit = kit

    def call(self, row: CallRow[Given, Answer], request: CallRequest[Given]) -> Answer:
        """Return what the row answers; of an operation, the manifest."""
        operation = _OPERATIONS.get(row)
        if operation is None:
            return super().call(row, request)
        body: Any = request.given
        change = operate(
            self._kit.engine, request.run_id, body.to_request(operation, request.actor)
        )
        if change.created is not None:
            self._kit.adopt(change.created.run_id)
        return cast("Answer", change.created or change.manifest)


def _client(kit: _InProcess) -> Client:
    return Client(_KitConnection(kit), actor=ACTOR)


def _operation(
    method: Callable[Concatenate[Client, Run, P], Summary],
) -> Callable[Concatenate[_InProcess, str, P], Manifest]:
    """Return an operation of `Client` as one of a test, which is answered with the manifest."""
    signature = inspect.signature(method)
    kit_itself, run, *others = signature.parameters.values()

    @wraps(method)
    def operation(kit: _InProcess, run_id: str, /, *args: P.args, **kwargs: P.kwargs) -> Manifest:
        return cast("Manifest", method(_client(kit), checked_run_id(run_id), *args, **kwargs))

    given = [
        kit_itself.replace(kind=run.POSITIONAL_ONLY),
        run.replace(kind=run.POSITIONAL_ONLY, annotation="str"),
        *others,
    ]
    operation.__signature__ = signature.replace(  # type: ignore[attr-defined] # for `help`
        parameters=given, return_annotation="Manifest"
    )
    return operation


def _twin(
    method: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate[_InProcess, P], T]:
    """Return a method of `Client` as one of a test."""

    @wraps(method)
    def twin(kit: _InProcess, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(_client(kit), *args, **kwargs)

    return twin


class Operations:
    """What people do with runs, done at once; each returns the run as it is then.

    Raises, in each method:
        InvalidRequestError: an argument is not what it may be; nothing was changed.
        UnknownRunError: no run has that id.
        NotAllowedError: the state of the run forbids it.
        StateChangedError: it is not at the generation or the step that was given.
    """

    pause = _operation(Client.pause)
    resume = _operation(Client.resume)
    cancel = _operation(Client.cancel)
    retry = _operation(Client.retry)
    approve = _operation(Client.approve)
    recreate = _operation(Client.recreate)
    signal = _twin(Client.signal)
    batch = _twin(Client.batch)
    schedule = _twin(Client.schedule)

    def sweep(self: _InProcess) -> SweepResult:
        """Attend to each run of the store whose alarm is due, as Cloud Scheduler has it done.

        Returns:
            How many were `recovered`, `redispatched`, `dead_lettered` and so on.
        """
        return sweep(self.engine)

    def audit(self: _InProcess, *, repair: bool = False) -> list[AuditResult]:
        """Return the runs that nothing would ever move: there are none, or it is a bug.

        Args:
            repair: repair what is found.

        Returns:
            The `run_id` and the `breaches` of each.
        """
        return [*audit(self.engine, repair=repair)]

    def runs(self: _InProcess, **wanted: Unpack[Filters]) -> Iterator[Manifest]:
        """Return the runs that fit, newest first.

        Args:
            wanted: which runs; see `Filters`.
        """
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
        value = _client(self).output(checked_run_id(run_id), step)
        return value if model is None else read_as(model, value, run_id)
