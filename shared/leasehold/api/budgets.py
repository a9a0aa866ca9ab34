"""`/budgets`: what was learnt about the limits of steps, and from which attempts."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from leasehold.api.registry import SettingInForce
from leasehold.api.request_model import ResponseModel
from leasehold.domain.budget import Budget


class BudgetsResponse(ResponseModel):
    """`GET /budgets`: the budget of each step that has one, as the last derivation left it."""

    budgets: list[Budget]


class SampleReport(ResponseModel):
    """An attempt: `success`, or `clipped` by its limit, `interrupted`, `failed`."""

    ended_at: datetime
    outcome: str
    bootstrap_seconds: float
    execution_seconds: float | None
    cold: bool
    retried: bool
    tail_probe: bool
    usd: float = 0.0  # likewise


class DerivationSettings(ResponseModel):
    """How the limits of a step are derived: the settings in force, on its part of the ladder."""

    percentile: float
    confidence: float
    safety_buffer_s: float
    rounding_granularity_s: float
    window_s: float = Field(ge=0, le=3660 * 86_400)
    shortest_s: float
    longest_s: float


class LimitReport(ResponseModel):
    """`GET /budgets/{step}`: the budget as it would be derived now, and its attempts.

    `agentTimeoutS` and `dispatchDeadlineS` are in force for the next dispatch, each with its
    source; `samples` has the attempts of the window, the oldest first, and `samplesFrom` says who
    has measured them.
    """

    budget: Budget
    settings: DerivationSettings
    agent_timeout_s: SettingInForce
    dispatch_deadline_s: SettingInForce
    samples: list[SampleReport]
    samples_from: str = "ledger"  # an older server does not say
