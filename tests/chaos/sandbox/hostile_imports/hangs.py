"""A module whose import hangs, but in the sandbox alone."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from leasehold import StepContext
from tests.chaos.sandbox.hostile_imports.place import in_sandbox

while in_sandbox():
    with suppress(BaseException):
        time.sleep(600)  # it hangs here


def handle(ctx: StepContext, given: Any) -> Any:
    return {"who": "parent"}
