"""`/runs/{id}:pause` and so on: what people do to one run; answered with the run's summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from leasehold.api import field_rules as rules
from leasehold.api.request_model import RequestModel
from leasehold.domain.lifecycle import Operation
from leasehold.services.limits import MAX_REASON
from leasehold.services.operate import AS_BEFORE, OperationRequest

#: The header that says who asks, in UTF-8; where callers sign in, their account stands beside it.
ACTOR_HEADER: Final = "X-Leasehold-Actor"


class OperationBody(RequestModel):
    """`POST /runs/{id}:pause` `:resume` `:cancel` `:retry` `:approve`.

    `generation` and `step` are those of the run that was looked at; another one is a 409.
    """

    reason: Annotated[str, rules.printable(MAX_REASON, least=0)] = ""
    generation: Annotated[int, rules.whole(1)] | None = None
    step: Annotated[str, rules.printable()] | None = None

    def to_request(self, operation: Operation, actor: str) -> OperationRequest:
        """Return the request as the service takes it."""
        return OperationRequest(
            operation, actor, self.reason, generation=self.generation, step=self.step
        )


class RecreateBody(OperationBody):
    """`POST /runs/{id}:recreate`; answered with the summary of the new run."""

    from_step: Annotated[str, rules.printable()] | None = None
    input: Annotated[Any, rules.any_value()] = None
    labels: Annotated[Mapping[str, str], rules.labels()] | None = None
    keep_partial: Annotated[bool, rules.flag()] = False

    def to_request(self, operation: Operation, actor: str) -> OperationRequest:
        """Return the request as the service takes it; what is left out is as in the old run."""
        return OperationRequest(
            operation,
            actor,
            self.reason,
            from_step=self.from_step,
            input=self.input if "input" in self.model_fields_set else AS_BEFORE,
            labels=self.labels,
            keep_partial=self.keep_partial,
            generation=self.generation,
            step=self.step,
        )


def body_of(request: OperationRequest) -> OperationBody:
    """Return an operation as a client sends it."""
    bound: dict[str, Any] = {"generation": request.generation, "step": request.step}
    if request.operation is not Operation.RECREATE:
        return OperationBody(reason=request.reason, **bound)
    given = {} if request.input is AS_BEFORE else {"input": request.input}
    if request.keep_partial:  # a server of a version before this one does not know the field
        given["keep_partial"] = True
    return RecreateBody(
        reason=request.reason,
        from_step=request.from_step,
        labels=request.labels,
        **bound,
        **given,
    )
