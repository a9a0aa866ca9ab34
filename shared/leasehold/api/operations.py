"""`/runs/{id}:pause` and so on: what people do to one run; answered with the run's summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from leasehold.api import request_model as rules
from leasehold.api.request_model import RequestModel
from leasehold.domain.change import Change
from leasehold.domain.kept_work import KeptCounts
from leasehold.domain.lifecycle import Operation
from leasehold.domain.summary import Summary, summary_of
from leasehold.services.limits import MAX_REASON
from leasehold.services.operate import AS_BEFORE, OperationRequest

Answer = TypeVar("Answer", bound=Summary)


class OperationBody(RequestModel):
    """`POST /runs/{id}:pause` `:resume` `:cancel`.

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

    def to_request(self, operation: Operation, actor: str) -> OperationRequest:
        """Return the request as the service takes it; what is left out is as in the old run."""
        return replace(
            super().to_request(operation, actor),
            from_step=self.from_step,
            input=self.input if "input" in self.model_fields_set else AS_BEFORE,
            labels=self.labels,
            keep_partial=self.keep_partial,
            anew=self.anew,
        )


class ContinuedRun(Summary):
    """A run that a person had go on, and what it keeps of the work that was done."""

    kept: KeptCounts | None = None


def answer_to(change: Change, gives: type[Answer]) -> Answer:
    """Return what an operation is answered with: the run; of recreate, the new one."""
    facts = dict(summary_of(change.created or change.manifest))
    return gives(**facts, kept=change.kept) if issubclass(gives, ContinuedRun) else gives(**facts)
