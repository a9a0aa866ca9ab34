"""A module whose import ends its process, but in the sandbox alone."""

from __future__ import annotations

import os
from typing import Any

from leasehold import StepContext
from tests.chaos.sandbox.hostile_imports.place import in_sandbox

if in_sandbox():
    os._exit(0)


def handle(ctx: StepContext, given: Any) -> Any:
    return {"who": "parent"}
