"""Leasehold: durable multi-step AI pipelines on serverless functions, or on one machine."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from leasehold.client.async_client import AsyncClient
    from leasehold.client.client import Client
    from leasehold.domain.item_outcomes import FailedItem, Outcomes
    from leasehold.domain.limit import Limit
    from leasehold.domain.manifest import Manifest
    from leasehold.domain.result import StepResult
    from leasehold.domain.spend import Budget
    from leasehold.domain.summary import Summary
    from leasehold.domain.trace import TraceEvent
    from leasehold.errors import (
        AgentClientError,
        BudgetExceededError,
        ContinuedError,
        GatePolicyFailure,
        LeaseholdError,
        PermanentError,
        SignalAwaitedError,
        SoftTimeoutError,
        WaitTimedOutError,
    )
    from leasehold.registry.channels import (
        CustomChannel,
        EmailChannel,
        LogChannel,
        SlackChannel,
        TopicChannel,
        WebhookChannel,
    )
    from leasehold.registry.dispatch import EnvOverrides, RetryPolicy, StepDispatchEntry
    from leasehold.registry.gates import GateEntry
    from leasehold.registry.pipelines import Catalog, PipelineEntry, TrialPolicy
    from leasehold.registry.plan import Child, Each, Parallel, Step, Wait
    from leasehold.registry.registry import Registry
    from leasehold.registry.schedules import ScheduleEntry
    from leasehold.worker.context.checkpoints import IncrementalState
    from leasehold.worker.context.mapped import CallRetry, Mapped
    from leasehold.worker.context.step_context import StepContext
    from leasehold.worker.handler.gates import GateContext
    from leasehold.worker.stopping.system_signals import ShutdownCoordinator

__all__ = [
    "AgentClientError",
    "AsyncClient",
    "Budget",
    "BudgetExceededError",
    "CallRetry",
    "Catalog",
    "Child",
    "Client",
    "ContinuedError",
    "CustomChannel",
    "Each",
    "EmailChannel",
    "EnvOverrides",
    "FailedItem",
    "GateContext",
    "GateEntry",
    "GatePolicyFailure",
    "IncrementalState",
    "LeaseholdError",
    "Limit",
    "LogChannel",
    "Manifest",
    "Mapped",
    "Outcomes",
    "Parallel",
    "PermanentError",
    "PipelineEntry",
    "Registry",
    "RetryPolicy",
    "ScheduleEntry",
    "ShutdownCoordinator",
    "SignalAwaitedError",
    "SlackChannel",
    "SoftTimeoutError",
    "Step",
    "StepContext",
    "StepDispatchEntry",
    "StepResult",
    "Summary",
    "TopicChannel",
    "TraceEvent",
    "TrialPolicy",
    "Wait",
    "WaitTimedOutError",
    "WebhookChannel",
]

#: The module of this package that each name is defined in. It is imported when the name is first
#: used, so that `leasehold --help` answers at once.
_MODULES: Final = {
    "AgentClientError": "errors",
    "AsyncClient": "client.async_client",
    "Budget": "domain.spend",
    "BudgetExceededError": "errors",
    "CallRetry": "worker.context.mapped",
    "Catalog": "registry.pipelines",
    "Child": "registry.plan",
    "Client": "client.client",
    "ContinuedError": "errors",
    "CustomChannel": "registry.channels",
    "Each": "registry.plan",
    "EmailChannel": "registry.channels",
    "EnvOverrides": "registry.dispatch",
    "FailedItem": "domain.item_outcomes",
    "GateContext": "worker.handler.gates",
    "GateEntry": "registry.gates",
    "GatePolicyFailure": "errors",
    "IncrementalState": "worker.context.checkpoints",
    "LeaseholdError": "errors",
    "Limit": "domain.limit",
    "LogChannel": "registry.channels",
    "Manifest": "domain.manifest",
    "Mapped": "worker.context.mapped",
    "Outcomes": "domain.item_outcomes",
    "Parallel": "registry.plan",
    "PermanentError": "errors",
    "PipelineEntry": "registry.pipelines",
    "Registry": "registry.registry",
    "RetryPolicy": "registry.dispatch",
    "ScheduleEntry": "registry.schedules",
    "SignalAwaitedError": "errors",
    "ShutdownCoordinator": "worker.stopping.system_signals",
    "SlackChannel": "registry.channels",
    "SoftTimeoutError": "errors",
    "Step": "registry.plan",
    "StepContext": "worker.context.step_context",
    "StepDispatchEntry": "registry.dispatch",
    "StepResult": "domain.result",
    "Summary": "domain.summary",
    "TopicChannel": "registry.channels",
    "TraceEvent": "domain.trace",
    "TrialPolicy": "registry.pipelines",
    "Wait": "registry.plan",
    "WaitTimedOutError": "errors",
    "WebhookChannel": "registry.channels",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # the next look-up finds it
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
