"""`/runs/{id}/signals/{name}`: values that are sent to a run from outside."""

from __future__ import annotations

from typing import Annotated, Any, Self

from leasehold.api import request_model as rules
from leasehold.api.request_model import RequestModel, ResponseModel
from leasehold.domain.change import Change
from leasehold.domain.status import Outcome
from leasehold.domain.summary import Summary, summary_of
from leasehold.services.signal_run import SignalRequest


class SignalBody(RequestModel):
    """`POST /runs/{id}/signals/{name}`. The same `id` counts once; without it, one is made up."""

    value: Annotated[Any, rules.json_value()]
    id: Annotated[str, rules.printable()] | None = None

    def to_request(self, name: str, actor: str) -> SignalRequest:
        """Return the request as the service takes it."""
        return SignalRequest(name, self.value, actor, self.id)


class SignalResponse(ResponseModel):
    """What became of a signal: `signalled`, `signal_kept` or `signal_known`; and of its run.

    `signal_kept`: nothing waits for it yet; `signal_known`: its id came before, and counted then.
    """

    run_id: str
    name: str
    id: str
    outcome: str
    run: Summary

    @classmethod
    def of(cls, change: Change, name: str, signal_id: str) -> Self:
        """Return the change as it is answered; a step may have had its next attempt at once."""
        goes_on = change.changed and change.outcome is not Outcome.SIGNAL_KEPT
        outcome = Outcome.SIGNALLED if goes_on else change.outcome
        run = change.manifest
        return cls(
            run_id=run.run_id,
            name=name,
            id=signal_id,
            outcome=outcome.value,
            run=summary_of(run),
        )
