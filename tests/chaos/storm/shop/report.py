"""The last step: one call."""

from __future__ import annotations

from leasehold import StepContext

from .calls import pay
from .models import Refined


def report(ctx: StepContext, given: Refined) -> str:
    """Pay for the title."""
    title = ctx.once("title", pay, ctx.run_id, "title", given.order.call_seconds)
    return f"{title}: {len(given.answers)} answers"
