"""The process runner: each attempt runs in its own child, which can be killed."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from leasehold.attempt.attempt import Attempt
from leasehold.domain.result import Deferred, Result
from leasehold.domain.status import Termination
from leasehold.errors import ForkServerError
from leasehold.logs.attempt import LinesOf
from leasehold.ports.handler_runner import EnteredStep
from leasehold.worker.stopping.system_signals import Interrupts, is_main_thread

if TYPE_CHECKING:  # both are imported when there is something to run
    from leasehold.worker.sandbox.forking.source_finder import SourceText
    from leasehold.worker.sandbox.sandbox import Sandbox


class ProcessRunner:
    """The handler runner port, in a process for each attempt (`worker/sandbox/`).

    Args:
        interrupts: where a Ctrl-C is kept, or an exit at a signal, that cuts an attempt short.
        handlers: all that it may be given, `module:function`.
        sources: the project's own, as they were read here: handlers are imported from these.
        import_time: how long the import of a handler may take.
    """

    def __init__(
        self,
        interrupts: Interrupts,
        handlers: Sequence[str],
        *,
        sources: Mapping[str, SourceText],
        import_time: timedelta,
    ) -> None:
        self._sources = sources
        self._import_s = import_time.total_seconds()
        self._handlers = handlers
        self._interrupts = interrupts
        self._opening = threading.Lock()
        self._sandbox: Sandbox | None = None

    def run(self, attempt: Attempt, step: EnteredStep, given: str) -> Result:
        """Have a child call the handler, and judge what it does."""
        if end := attempt.end_before_it_begins():
            return end
        from leasehold.attempt.calls import AttemptCalls  # noqa: PLC0415 - see above

        try:
            with LinesOf(attempt.name):
                return self._opened().run(attempt, step, given, AttemptCalls(attempt))
        except (ForkServerError, OSError) as error:
            problem = error.message if isinstance(error, ForkServerError) else str(error)
            unavailable = Deferred(Termination.PROCESS_UNAVAILABLE, problem)
            return attempt.end_before_it_begins() or unavailable
        except (KeyboardInterrupt, SystemExit) as error:  # of a handler of signals
            if not is_main_thread():
                raise
            return self._interrupts.stopped_by(error, attempt.stop.reason)

    def import_all(self) -> None:
        """Import all handlers now, in the background, for later attempts."""
        self._opened().import_all()

    def close(self) -> None:
        """End all processes; no attempt may run."""
        if self._sandbox is not None:
            self._sandbox.close()

    def _opened(self) -> Sandbox:
        """Return the sandbox."""
        from leasehold.worker.sandbox.sandbox import Sandbox  # noqa: PLC0415 - see above

        with self._opening:
            self._sandbox = self._sandbox or Sandbox(
                self._handlers, sources=self._sources, import_s=self._import_s
            )
            return self._sandbox
