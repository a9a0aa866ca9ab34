"""`/runs/{id}:pause` and so on: what people do to one run, and `/runs:batch`: to many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field

from leasehold.api import request_model as rules
from leasehold.api.request_model import RequestModel, ResponseModel
from leasehold.api.runs import BudgetPart, FilterPart
from leasehold.domain.change import Change
from leasehold.domain.checkpoint import KeptCounts
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.domain.summary import Summary, summary_of
from leasehold.errors import InvalidRequestError
from leasehold.services.batch import BatchResult
from leasehold.services.operate import AS_BEFORE, OperationRequest
from leasehold.services.request_bounds import MAX_PAGE_ITEMS, MAX_REASON_CHARS

Answer = TypeVar("Answer", bound=Summary)


class OperationBody(RequestModel):
    """`POST /runs/{id}:pause` `:cancel`.

    `generation` and `step` are those of the run that was looked at; another one is a 409.
    """

    reason: Annotated[str, rules.printable(MAX_REASON_CHARS, least=0)] = ""
    generation: Annotated[int, rules.whole(1)] | None = None
    step: Annotated[str, rules.printable()] | None = None

    def to_request(self, operation: Operation, actor: str) -> OperationRequest:
        """Return the request as the service takes it."""
        return OperationRequest(
            operation, actor, self.reason, generation=self.generation, step=self.step
        )


class ResumeBody(OperationBody):
    """`POST /runs/{id}:resume`. `budget` takes the place of what the run may spend."""

    budget: BudgetPart | None = None

    def to_request(self, operation: Operation, actor: str) -> OperationRequest:
        """Return the request as the service takes it."""
        request = super().to_request(operation, actor)
        return replace(request, budget=None if self.budget is None else self.budget.to_limit())


class RetryBody(OperationBody):
    """`POST /runs/{id}:retry`. `note`: words for the handler; `anew`: what was kept is dropped."""

    note: Annotated[str, rules.note()] | None = None
    anew: Annotated[bool, rules.flag()] = False

    def to_request(self, operation: Operation, actor: str) -> OperationRequest:
        """Return the request as the service takes it."""
        request = super().to_request(operation, actor)
        return replace(request, note=self.note, anew=self.anew)


class ApproveBody(OperationBody):
    """`POST /runs/{id}:approve`. `output` takes the place of the output that was kept."""

    output: Annotated[Any, rules.any_value()] = None

    def to_request(self, operation: Operation, actor: str) -> OperationRequest:
        """Return the request as the service takes it."""
        output = self.output if "output" in self.model_fields_set else AS_BEFORE
        return replace(super().to_request(operation, actor), output=output)


class RecreateBody(OperationBody):
    """`POST /runs/{id}:recreate`; answered with the summary of the new run."""

    from_step: Annotated[str, rules.printable()] | None = None
    input: Annotated[Any, rules.any_value()] = None
    labels: Annotated[Mapping[str, str], rules.labels()] | None = None
    keep_partial: Annotated[bool, rules.flag()] = False
    anew: Annotated[bool, rules.flag()] = False
    failed_items: Annotated[bool, rules.flag()] = False

    def to_request(self, operation: Operation, actor: str) -> OperationRequest:
        """Return the request as the service takes it; what is left out is as in the old run."""
        return replace(
            super().to_request(operation, actor),
            from_step=self.from_step,
            input=self.input if "input" in self.model_fields_set else AS_BEFORE,
            labels=self.labels,
            keep_partial=self.keep_partial,
            anew=self.anew,
            failed_items=self.failed_items,
        )


class RequestedStack(ResponseModel):
    """The attempt whose stack was asked for, by whom and when, and how soon its worker hears of it.

    The answer is an event `stack_taken` of the run's trace. It is there once the `lease` of the run
    has no `stackRequest` any more; where the attempt ends before, there is none.
    """

    run_id: str
    step: str
    attempt: int
    holder: str
    requested_by: str
    requested_at: datetime
    heartbeat_s: float

    @classmethod
    def of(cls, run: Manifest) -> Self:
        """Return what is asked of a run."""
        lease, every = run.position.lease, run.position.dispatch.heartbeat_s
        request = None if lease is None else lease.stack_request
        assert lease is not None and request is not None and every is not None  # noqa: S101, PT018 - else it is refused
        return cls(
            run_id=run.run_id,
            step=run.position.step,
            attempt=run.position.attempt,
            holder=lease.holder,
            requested_by=request.actor,
            requested_at=request.at,
            heartbeat_s=every,
        )


class ContinuedRun(Summary):
    """A run that a person had go on, and what it keeps of the work that was done."""

    kept: KeptCounts | None = None


def answer_to(change: Change, gives: type[Answer]) -> Answer:
    """Return what an operation is answered with: the run; of recreate, the new one."""
    facts = dict(summary_of(change.created or change.manifest))
    return gives(**facts, kept=change.kept) if issubclass(gives, ContinuedRun) else gives(**facts)


# `/runs:batch`: one operation on all runs that a filter finds, and what came of it.


class BatchBody(RequestModel):
    """`POST /runs:batch`. `limit` is how many runs are changed at most."""

    action: Annotated[Operation, rules.one_of(Operation)]
    filter: FilterPart = Field(default_factory=FilterPart)
    limit: Annotated[int, rules.whole(1, MAX_PAGE_ITEMS)]
    dry_run: Annotated[bool, rules.flag()] = False
    reason: Annotated[str, rules.printable(MAX_REASON_CHARS, least=0)] = ""
    step: Annotated[str, rules.printable()] | None = None
    from_step: Annotated[str, rules.printable()] | None = None
    keep_partial: Annotated[bool, rules.flag()] = False
    anew: Annotated[bool, rules.flag()] = False
    note: Annotated[str, rules.note()] | None = None

    def to_request(self, actor: str) -> OperationRequest:
        """Return the request as the service takes it.

        Raises:
            InvalidRequestError: a field is not for this action.
        """
        for field, value, actions in (
            ("fromStep", self.from_step, (Operation.RECREATE,)),
            ("keepPartial", self.keep_partial or None, (Operation.RECREATE,)),
            ("anew", self.anew or None, (Operation.RECREATE, Operation.RETRY)),
            ("note", self.note, (Operation.RETRY,)),
        ):
            if value is not None and self.action not in actions:
                allowed = f"none, but for the action {' or '.join(actions)}"
                raise InvalidRequestError(field=field, value=value, allowed=allowed)
        return OperationRequest(
            self.action,
            actor,
            self.reason,
            from_step=self.from_step,
            keep_partial=self.keep_partial,
            anew=self.anew,
            note=self.note,
            step=self.step,
        )


class RefusedRun(ResponseModel):
    """A run that the operation is not allowed on: the code says why."""

    run_id: str
    code: str


class BatchResponse(ResponseModel):
    """How many runs were looked at, how many of them were changed, and which were refused."""

    matched: int
    changed: int
    refused: list[RefusedRun]
    #: Of retry and recreate: what all the runs keep, together.
    kept: KeptCounts | None = Field(default=None, exclude_if=lambda kept: kept is None)

    @classmethod
    def of(cls, result: BatchResult) -> Self:
        """Return the result as it is answered."""
        refused = [RefusedRun(run_id=run_id, code=code) for run_id, code in result.refused]
        return cls(
            matched=result.matched, changed=result.changed, refused=refused, kept=result.kept
        )

    def to_result(self) -> BatchResult:
        """Return the result as the service gives it."""
        refused = [(run.run_id, run.code) for run in self.refused]
        return BatchResult(self.matched, self.changed, refused, self.kept)
