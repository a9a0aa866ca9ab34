"""A module whose import takes more memory than a step may have, but in the sandbox alone."""

from __future__ import annotations

import time
from typing import Any

from leasehold import StepContext
from tests.chaos.sandbox.hostile_imports.place import in_sandbox

if in_sandbox():
    held = b"x" * (1 << 28)
    time.sleep(60)


def handle(ctx: StepContext, given: Any) -> Any:
    return {"who": "parent"}
