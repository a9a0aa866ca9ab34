"""A module whose import has its process killed, as the system does that lacks memory."""

from __future__ import annotations

import os
import signal
from typing import Any

from leasehold import StepContext
from tests.chaos.sandbox.hostile_imports.place import in_sandbox

if in_sandbox():
    os.kill(os.getpid(), signal.SIGKILL)


def handle(ctx: StepContext, given: Any) -> Any:
    return {"who": "parent"}
