"""Errands: calls that nobody needs the end of now, such as to delete what nobody needs any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leasehold.worker.call_threads import MOST_LATE, CallThreads

#: So long a call is waited for: most are over by then, and tests find done what they expect.
PATIENCE_S: Final = 5.0


class Errands:
    """Makes calls in threads of their own, so that one that hangs holds up no worker.

    Args:
        patience_s: for how many seconds each is waited for.
        most_late: how many may go on after that.
    """

    def __init__(self, patience_s: float = PATIENCE_S, most_late: int = MOST_LATE) -> None:
        self._patience_s = patience_s
        self._threads = CallThreads("errand", most_late)

    def run(self, call: Callable[[], object], patience_s: float | None = None) -> bool:
        """Make a call; return whether it is over.

        One that takes long goes on without the caller. Where too many do, or the system has no
        thread, it is not made.

        Args:
            call: what is called.
            patience_s: for how many seconds it is waited for; None: as all are.

        Raises:
            What the call raises, if it is over in time.
        """
        if self._threads.are_taken():
            return False
        wait_s = self._patience_s if patience_s is None else patience_s
        made = self._threads.make(call, wait_s=wait_s)
        if made is None or not made.done():
            return False
        made.result()
        return True

    def close(self) -> None:
        """End the threads that have no call to make."""
        self._threads.close()
