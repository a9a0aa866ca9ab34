"""`/registry` and `/health`: what is in force where the API is served, and that it is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from leasehold.api.overrides import OverrideReport
from leasehold.api.request_model import ResponseModel
from leasehold.domain.manifest_parts import Place, TrialRule
from leasehold.domain.spend import SpendLimit


class SettingInForce(ResponseModel):
    """A value and where it comes from: the entry, a threshold, `override`, or a variable."""

    value: float | int | None
    source: str


class RetryInForce(ResponseModel):
    """The waits between the attempts of a step, and the errors that are not retried."""

    first_s: float
    factor: float
    max_s: float
    non_retryable: list[str]
    source: str


class StepReport(ResponseModel):
    """What is in force for a step type; `refused` has a sentence for each value that is not."""

    step_type: str
    handler: str
    isolation: str
    isolation_source: str
    reuse: int = 1  # an older server names none
    queue: str
    agent_timeout_ms: SettingInForce
    dispatch_deadline_s: SettingInForce
    max_retries: SettingInForce
    cleanup_ms: SettingInForce
    memory_limit_bytes: SettingInForce
    heartbeat_s: SettingInForce
    retry: RetryInForce
    options: Mapping[str, Any] = {}
    override: OverrideReport | None = None
    refused: list[str]


class PipelineReport(ResponseModel):
    """A pipeline and its steps, in their order, and which of them run in trials."""

    name: str
    steps: list[str]
    places: Mapping[str, Place] | None = None  # an older server names none
    trials: TrialRule | None = None
    budget: SpendLimit | None = None


class VariableReport(ResponseModel):
    """A variable of a channel, and whether it is set; its value is not shown."""

    name: str
    is_set: bool


class ChannelReport(ResponseModel):
    """A channel: its kind, its events (empty: all), and the variables that it needs."""

    name: str
    kind: str
    events: list[str]
    pipelines: list[str]
    variables: list[VariableReport]


class LoweredLimitReport(ResponseModel):
    """A key whose limit is lowered, as its provider took no more; it grows again by itself."""

    key: str
    share: float
    lowered_at: datetime
    grows_from: datetime


class RegistryResponse(ResponseModel):
    """`GET /registry`."""

    steps: list[StepReport]
    pipelines: list[PipelineReport]
    channels: list[ChannelReport] = Field(default_factory=list)  # an older server names none
    lowered_limits: list[LoweredLimitReport] = Field(default_factory=list)  # as above
    overrides_problem: str | None = None


class HealthResponse(ResponseModel):
    """`GET /health`: the process runs. `GET /ready`: it could work; what is in the way is a 503."""

    status: Literal["ok"] = "ok"
