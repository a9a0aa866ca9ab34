"""A handler that makes calls under a limit, in a module that a new process imports quickly."""

from __future__ import annotations

from typing import Any

from leasehold import StepContext


def asks(ctx: StepContext, given: Any) -> Any:
    """Make a call under the limit, and one before it, each once."""
    ctx.once("before", str)
    with ctx.limit("provider:{given.model}"):
        ctx.once("call", str)
    return ctx.attempt
