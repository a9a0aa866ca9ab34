"""A breakpoint in a handler whose process has no terminal: it says where there is one."""

from __future__ import annotations

import os
import sys
from typing import Any


def breakpoint_without_terminal(*args: Any, **kwargs: Any) -> Any:
    """Call the debugger that PYTHONBREAKPOINT names, which may need no terminal.

    Raises:
        RuntimeError: it names none, and pdb would find the end of its input.
    """
    if os.environ.get("PYTHONBREAKPOINT"):
        return sys.__breakpointhook__(*args, **kwargs)  # noqa: T100 - it was asked for
    raise RuntimeError(
        "breakpoint() needs a terminal, which the process of a handler does not have: "
        "set LEASEHOLD_ISOLATION=inline, and run it with start --in-process."
    )
