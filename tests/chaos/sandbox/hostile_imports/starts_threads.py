"""A module whose import starts threads, which a fork would not copy; in the sandbox alone."""

from __future__ import annotations

import threading
import time
from typing import Any

from leasehold import StepContext
from tests.chaos.sandbox.hostile_imports.place import in_sandbox

THREADS = [threading.Thread(target=time.sleep, args=(600,), daemon=True) for _ in range(4)]
if in_sandbox():
    for thread in THREADS:
        thread.start()


def handle(ctx: StepContext, given: Any) -> Any:
    return {"alive": sum(thread.is_alive() for thread in THREADS)}
