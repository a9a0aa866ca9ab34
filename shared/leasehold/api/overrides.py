"""`/overrides`: the limits that people set for step types until a time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from leasehold.api import request_model as rules
from leasehold.api.request_model import RequestModel, ResponseModel
from leasehold.domain.deadlines import MAX_DEADLINE, MIN_DEADLINE
from leasehold.domain.timestamps import time_or_date
from leasehold.services.overrides import OverrideRequest
from leasehold.services.request_bounds import MAX_REASON_CHARS

_MIN_S, _MAX_S = (int(limit.total_seconds()) for limit in (MIN_DEADLINE, MAX_DEADLINE))


class OverrideBody(RequestModel):
    """`POST /overrides/{step}:set`; at least one limit, and it replaces what was set before."""

    timeout_s: Annotated[float, rules.seconds(MAX_DEADLINE)] | None = None
    deadline_s: Annotated[int, rules.whole(_MIN_S, _MAX_S)] | None = None
    until: Annotated[str, rules.moment()]
    why: Annotated[str, rules.printable(MAX_REASON_CHARS)]

    def to_request(self, step_type: str, actor: str) -> OverrideRequest:
        """Return the request as the service takes it."""
        return OverrideRequest(
            step_type=step_type,
            timeout_s=self.timeout_s,
            deadline_s=self.deadline_s,
            until=time_or_date(self.until),
            why=self.why,
            actor=actor,
        )


class OverrideReport(ResponseModel):
    """The override of a step type: `in_force`, `over`, or `refused`, as `problem` says why.

    One of which a part alone is refused is `refused`: the registry has what is in force.
    """

    step_type: str
    state: Literal["in_force", "over", "refused"]
    timeout_s: float | int | None
    deadline_s: float | int | None
    until: datetime | None
    why: str
    set_by: str
    set_at: datetime | None
    problem: str | None


class OverridesResponse(ResponseModel):
    """`GET /overrides`: all of them, also those that are over, until they are cleared."""

    overrides: list[OverrideReport]


class OverrideChange(ResponseModel):
    """`POST /overrides/{step}:set` and `:clear`: what is set now, and what was before.

    `override` is null after a clear; `replaced` is null where nothing was set.
    """

    step_type: str
    override: OverrideReport | None
    replaced: OverrideReport | None
