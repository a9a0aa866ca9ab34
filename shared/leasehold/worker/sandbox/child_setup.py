"""What a forked process does first: it leaves its parent's session, and cannot outlive it."""

from __future__ import annotations

import gc
import os
import signal
from contextlib import suppress
from typing import Final

from leasehold.worker.sandbox.fork_loop import Newborn
from leasehold.worker.sandbox.prctl import adopt_orphans, signal_at_parents_death

#: Whom the kernel kills first when no memory is left: as if it took half of it in addition.
_OOM_SCORE: Final = b"500"


def set_up(newborn: Newborn) -> None:
    """Make this process one of its own, which prints into its pipe and ends with its parent."""
    signal_at_parents_death(signal.SIGKILL)
    if os.getppid() != newborn.parent:
        os._exit(1)  # its parent ended before the signal was ordered
    os.setsid()
    adopt_orphans()
    os.dup2(newborn.output, 1)
    os.dup2(newborn.output, 2)
    os.close(newborn.output)
    _be_killed_before_the_worker()
    gc.enable()


def _be_killed_before_the_worker() -> None:
    with suppress(OSError):  # no /proc
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, _OOM_SCORE)
        finally:
            os.close(descriptor)
