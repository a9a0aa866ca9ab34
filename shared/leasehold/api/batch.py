"""`/runs:batch`: one operation on all runs that a filter finds, and what came of it."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field

from leasehold.api import field_rules as rules
from leasehold.api.request_model import RequestModel
from leasehold.api.response_model import ResponseModel
from leasehold.api.runs import FilterPart
from leasehold.domain.lifecycle import Operation
from leasehold.errors import InvalidRequestError
from leasehold.services.batch import BatchResult
from leasehold.services.limits import MAX_PAGE, MAX_REASON
from leasehold.services.operate import OperationRequest
from leasehold.services.read_runs import RunFilter


class BatchBody(RequestModel):
    """`POST /runs:batch`. `limit` is how many runs are changed at most."""

    action: Annotated[Operation, rules.one_of(Operation)]
    filter: FilterPart = Field(default_factory=FilterPart)
    limit: Annotated[int, rules.whole(1, MAX_PAGE)]
    dry_run: Annotated[bool, rules.flag()] = False
    reason: Annotated[str, rules.printable(MAX_REASON, least=0)] = ""
    step: Annotated[str, rules.printable()] | None = None
    from_step: Annotated[str, rules.printable()] | None = None
    keep_partial: Annotated[bool, rules.flag()] = False

    @classmethod
    def of(cls, request: OperationRequest, wanted: RunFilter, *, limit: int, dry_run: bool) -> Self:
        """Return a batch as a client sends it."""
        more = {"keep_partial": True} if request.keep_partial else {}  # as `RecreateBody` has it
        return cls(
            action=request.operation,
            filter=FilterPart.of(wanted),
            limit=limit,
            dry_run=dry_run,
            reason=request.reason,
            step=request.step,
            from_step=request.from_step,
            **more,
        )

    def to_request(self, actor: str) -> OperationRequest:
        """Return the request as the service takes it.

        Raises:
            InvalidRequestError: `fromStep` and `keepPartial` are for recreate alone.
        """
        if self.action is not Operation.RECREATE:
            allowed = "none, but for the action recreate"
            if self.from_step is not None:
                raise InvalidRequestError(field="fromStep", value=self.from_step, allowed=allowed)
            if self.keep_partial:
                raise InvalidRequestError(field="keepPartial", value=True, allowed=allowed)
        return OperationRequest(
            self.action,
            actor,
            self.reason,
            from_step=self.from_step,
            keep_partial=self.keep_partial,
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

    @classmethod
    def of(cls, result: BatchResult) -> Self:
        """Return the result as it is answered."""
        refused = [RefusedRun(run_id=run_id, code=code) for run_id, code in result.refused]
        return cls(matched=result.matched, changed=result.changed, refused=refused)

    def to_result(self) -> BatchResult:
        """Return the result as the service gives it."""
        refused = [(run.run_id, run.code) for run in self.refused]
        return BatchResult(self.matched, self.changed, refused)
