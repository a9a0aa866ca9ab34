"""The first step: a loop of calls, with a checkpoint after each."""

from __future__ import annotations

from leasehold import StepContext

from .calls import pay
from .models import Gathered, Order


def gather(ctx: StepContext, given: Order) -> Gathered:
    """Pay for each page."""
    pages = ctx.checkpointed(range(given.pages), every=1)
    for number in pages:
        pages.results.append(pay(ctx.run_id, f"page-{number}", given.call_seconds))
    return Gathered(order=given, pages=pages.results)
