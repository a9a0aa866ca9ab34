"""The second step: calls that are recorded."""

from __future__ import annotations

from leasehold import StepContext

from .calls import pay
from .models import Gathered, Refined


def refine(ctx: StepContext, given: Gathered) -> Refined:
    """Pay for one answer a page."""
    calls = [f"answer-{number}" for number in range(len(given.pages))]
    seconds = given.order.call_seconds
    answers = [ctx.once(call, pay, ctx.run_id, call, seconds) for call in calls]
    return Refined(order=given.order, answers=answers)
