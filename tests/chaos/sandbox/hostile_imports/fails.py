"""A module whose import fails, but in the sandbox alone."""

from __future__ import annotations

from typing import Any

from leasehold import StepContext
from tests.chaos.sandbox.hostile_imports.place import in_sandbox

if in_sandbox():
    raise LookupError("there is no model of that name")


def handle(ctx: StepContext, given: Any) -> Any:
    return {"who": "parent"}
