"""A module whose import gets no memory."""

from __future__ import annotations

from typing import Any

from leasehold import StepContext

HELD = bytearray(1 << 62)


def handle(ctx: StepContext, given: Any) -> Any:
    return "it was called"
