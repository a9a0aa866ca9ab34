"""Processes that a handler forks: they end by the signals by which programs end."""

from __future__ import annotations

import os
import signal
import threading
from typing import Final

from leasehold.worker.sandbox.fork_loop import take_signal

#: The process of an attempt takes these, and does nothing: its worker says when it is to stop.
SIGNALS_OF_THE_WORKER: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def let_signals_end_forks() -> None:
    """Have each fork of this process end by these signals, unless the handler took them itself.

    `Process.terminate` and the pools of `multiprocessing` send SIGTERM, and wait for the end. The
    signals are blocked meanwhile: one that came to the fork before that would be lost.
    """
    masks = threading.local()

    def block() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS_OF_THE_WORKER)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def unblock_in_fork() -> None:
        for number in (*SIGNALS_OF_THE_WORKER, signal.SIGCHLD):
            if signal.getsignal(number) is take_signal:
                signal.signal(number, signal.SIG_DFL)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=unblock_in_fork)
