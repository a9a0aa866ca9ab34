"""Leasehold: durable multi-step AI pipelines on serverless functions, or on one machine."""

from leasehold.domain.result import StepResult
from leasehold.errors import AgentClientError, LeaseholdError, PermanentError, SoftTimeoutError
from leasehold.registry.dispatch import EnvOverrides, StepDispatchEntry
from leasehold.registry.pipelines import PipelineEntry
from leasehold.registry.registry import Registry
from leasehold.worker.context import IncrementalState, StepContext
from leasehold.worker.shutdown import ShutdownCoordinator

__all__ = [
    "AgentClientError",
    "EnvOverrides",
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
