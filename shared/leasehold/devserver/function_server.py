"""A function under the real framework's own server, which ends when the dev server does.

Run as `python -m leasehold.devserver.function_server PARENT --target … --source …`: PARENT is the
process that must be there; the rest is for functions-framework.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Serve the function until told to stop."""
    parent = int(sys.argv.pop(1))
    die_with_parent()
    if os.getppid() != parent:
        sys.exit("the dev server is gone")
    os.register_at_fork(after_in_child=die_with_parent)  # gunicorn's workers with their master
    runpy.run_module("functions_framework", run_name="__main__", alter_sys=True)


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that made it dies, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
