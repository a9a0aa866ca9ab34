"""A module that prints while it is imported, and leaves a child behind."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from leasehold import StepContext
from tests.chaos.sandbox.hostile_imports.place import in_sandbox, note

if in_sandbox():
    sys.stdout.write("imported\n" * 10_000)
    if os.fork() == 0:
        note()
        time.sleep(600)


def handle(ctx: StepContext, given: Any) -> Any:
    return {"who": "parent"}
