"""A module whose import gets no thread."""

from __future__ import annotations

import threading
from typing import Any

from leasehold import StepContext

threading.stack_size(2**48)  # larger than any address
try:
    threading.Thread(target=print).start()
finally:
    threading.stack_size(0)


def handle(ctx: StepContext, given: Any) -> Any:
    return "it was called"
