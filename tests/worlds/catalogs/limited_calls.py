"""A handler that makes calls under a limit, in a module that a new process imports quickly."""

from __future__ import annotations

from typing import Any

from leasehold import AgentClientError, StepContext


def asks(ctx: StepContext, given: Any) -> Any:
    """Make a call under the limit, and one before it, each once."""
    ctx.once("before", str)
    with ctx.limit("provider:{given.model}"):
        ctx.once("call", str)
    return ctx.attempt


def is_refused(ctx: StepContext, given: Any) -> str:
    """Be refused by the provider in the block, and go on without it."""
    try:
        with ctx.limit("busy:{given.model}"):
            _refuse()
    except AgentClientError:
        return "from the cache"
    return "from the provider"


def _refuse() -> None:
    raise AgentClientError("busy", code="rate_limited", retry_after=30)
