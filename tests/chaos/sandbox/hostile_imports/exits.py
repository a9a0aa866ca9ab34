"""A module whose import ends Python, but in the sandbox alone."""

from __future__ import annotations

import sys
from typing import Any

from leasehold import StepContext
from tests.chaos.sandbox.hostile_imports.place import in_sandbox

if in_sandbox():
    sys.exit(4)


def handle(ctx: StepContext, given: Any) -> Any:
    return {"who": "parent"}
