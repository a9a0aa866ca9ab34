"""Errands: calls that nobody needs the end of now, such as to delete what nobody needs any more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Final

from leasehold.worker.threads import start_thread

#: So long a call is waited for: most are over by then, and tests find done what they expect.
PATIENCE_S: Final = 5.0
#: With so many that are still under way, no other is begun.
MOST_LATE: Final = 4


class Errands:
    """Makes calls in threads of their own, so that one that hangs holds up no worker.

    Args:
        patience_s: for how many seconds each is waited for.
        most_late: how many may go on after that.
    """

    def __init__(self, patience_s: float = PATIENCE_S, most_late: int = MOST_LATE) -> None:
        self._patience_s = patience_s
        self._most_late = most_late
        self._late: list[threading.Thread] = []
        self._noting = threading.Lock()

    def run(self, call: Callable[[], object]) -> bool:
        """Make a call; return whether it is over.

        One that takes long goes on without the caller. Where too many do, or the system has no
        thread, it is not made.

        Raises:
            What the call raises, if it is over in time.
        """
        with self._noting:
            self._late = [thread for thread in self._late if thread.is_alive()]
            if len(self._late) >= self._most_late:
                return False
        done: Future[None] = Future()
        thread = start_thread(partial(copy_context().run, _make, call, done), "errand")
        if thread is None:
            return False
        thread.join(self._patience_s)
        if done.done():
            done.result()
            return True
        with self._noting:
            self._late.append(thread)
        return False


def _make(call: Callable[[], object], done: Future[None]) -> None:
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits
        done.set_exception(error)
    else:
        done.set_result(None)
