"""Leasehold: durable multi-step AI pipelines on serverless functions, or on one machine."""

from leasehold.domain.result import StepResult
from leasehold.errors import (
    AgentClientError,
    GatePolicyFailure,
    LeaseholdError,
    PermanentError,
    SoftTimeoutError,
)
from leasehold.registry.dispatch import EnvOverrides, StepDispatchEntry
from leasehold.registry.gates import GateEntry
from leasehold.registry.pipelines import PipelineEntry
from leasehold.registry.registry import Registry
from leasehold.worker.context import IncrementalState, StepContext
from leasehold.worker.gates import GateContext
from leasehold.worker.shutdown import ShutdownCoordinator

__all__ = [
    "AgentClientError",
    "EnvOverrides",
    "GateContext",
    "GateEntry",
    "GatePolicyFailure",
    "IncrementalState",
    "LeaseholdError",
    "PermanentError",
    "PipelineEntry",
    "Registry",
    "ShutdownCoordinator",
    "SoftTimeoutError",
    "StepContext",
    "StepDispatchEntry",
    "StepResult",
]
