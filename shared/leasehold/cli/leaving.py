"""How a command ends that stopped handlers: what they left behind keeps nobody waiting for long.

In the end, Python waits for the threads of pools, the processes of `multiprocessing`, and whatever
else was registered for it, however long that takes. Handlers had their time before, and their
leases are given back.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from types import FrameType
from typing import Final, NoReturn

#: What is registered for the end may take as long: libraries send the last of their logs there.
LEAVE_S: Final = 1.0


def leave(exit_code: int) -> NoReturn:
    """End this process within `LEAVE_S`, or at once at a further Ctrl-C or SIGTERM.

    Processes that `multiprocessing` knows are terminated: another attempt does their work.
    """

    def now(_number: int = 0, _frame: FrameType | None = None) -> NoReturn:
        os._exit(exit_code)

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it
            stream.flush()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, now)
    signal.setitimer(signal.ITIMER_REAL, LEAVE_S)
    library = sys.modules.get("multiprocessing")  # loaded, where there are any
    for process in library.active_children() if library else ():
        with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
            process.terminate()
    atexit._run_exitfuncs()  # noqa: SLF001 - `sys.exit` would wait for threads first
    now()
