"""`/runs:batch`: one operation on all runs that a filter finds, and what came of it."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field

from leasehold.api import request_model as rules
from leasehold.api.request_model import RequestModel
from leasehold.api.response_model import ResponseModel
from leasehold.api.runs import FilterPart
from leasehold.domain.kept_work import KeptCounts
from leasehold.domain.lifecycle import Operation
from leasehold.errors import InvalidRequestError
from leasehold.services.batch import BatchResult
from leasehold.services.limits import MAX_PAGE, MAX_REASON
from leasehold.services.operate import OperationRequest


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
