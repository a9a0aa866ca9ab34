"""The task of `execute_step`: a hint that a run has an attempt to make, and its outcome."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict

from leasehold.api import request_model as rules
from leasehold.api.request_model import RequestModel
from leasehold.api.response_model import ResponseModel


class TaskBody(RequestModel):
    """`POST` of Cloud Tasks. A later version may put more into a task that this one takes."""

    model_config = ConfigDict(extra="ignore")

    run_id: Annotated[str, rules.run_id()]
    generation: Annotated[int, rules.whole(1)]


class OutcomeResponse(ResponseModel):
    """The outcome of a call, in a word; of a task that is rejected, `reason` says why."""

    outcome: str
    reason: str | None = None
