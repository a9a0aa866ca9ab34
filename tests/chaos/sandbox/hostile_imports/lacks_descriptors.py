"""A module whose import gets no descriptor."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

from leasehold import StepContext

_BEFORE = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, _BEFORE[1]))
try:
    Path(__file__).read_text(encoding="utf-8")
finally:
    resource.setrlimit(resource.RLIMIT_NOFILE, _BEFORE)


def handle(ctx: StepContext, given: Any) -> Any:
    return "it was called"
