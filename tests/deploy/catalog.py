"""A catalog to provision for: two queues, a remote step without one, and topics of channels."""

from __future__ import annotations

from datetime import timedelta

from leasehold.registry.channels import TopicChannel
from leasehold.registry.dispatch import REMOTE, StepDispatchEntry
from leasehold.registry.pipelines import PipelineEntry
from leasehold.registry.registry import Registry


def _step(name: str, handler: str = "tests.deploy.catalog:work") -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=handler,
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
    )


def work(_ctx: object, _given: object) -> str:
    return "done"


STEPS = Registry("dispatch", [_step("pick_up"), _step("pack"), _step("carry", REMOTE)])
PIPELINES = Registry("pipelines", [PipelineEntry(name="order", steps=("pick_up", "pack", "carry"))])
CHANNELS = Registry(
    "channels", [TopicChannel(name="orders", topic="projects/other-prod/topics/orders")]
)
