"""The inline runner: the handler runs in the worker's own thread. It cannot be killed."""

from __future__ import annotations

from functools import partial
from typing import Final

from leasehold.attempt.attempt import Attempt
from leasehold.attempt.calls import AttemptCalls
from leasehold.domain.result import Result, Stopped
from leasehold.domain.status import Termination
from leasehold.logs.attempt import LinesOf
from leasehold.ports.handler_runner import EnteredStep, StepHandler
from leasehold.worker.context import StepContext
from leasehold.worker.handler_call import call_handler, continued_in, deferred_in, failed_by
from leasehold.worker.interrupts import Interrupts, is_ctrl_c, is_main_thread

#: A server that is to quit raises SystemExit in the main thread; the signal is noted within
#: this time.
_NOTED_WITHIN_S: Final = 0.2


class InlineRunner:
    """The handler runner port, in the thread that asks.

    Args:
        interrupts: where a Ctrl-C is kept that cuts a handler short.
    """

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts

    def run(self, attempt: Attempt, step: EnteredStep, given: str) -> Result:
        """Call the handler and judge what it does; do not begin what is to stop already."""
        if end := attempt.end_before_it_begins():
            return end
        with LinesOf(attempt.name):
            begin, end_by = partial(_begin, attempt), partial(self._end_by, attempt, step)
            return call_handler(step, given, begin=begin, end_by=end_by)

    def _end_by(
        self, attempt: Attempt, step: StepHandler, error: BaseException, path: str
    ) -> Result:
        if is_ctrl_c(error):
            return self._interrupts.stopped_by(error, attempt.stop.reason)
        if deferred := deferred_in(error):
            return deferred
        if _is_to_stop(error, attempt):
            return Stopped(attempt.stop.reason or Termination.INSTANCE_SHUTDOWN)
        return continued_in(error) or failed_by(
            error, path, step, attempt.manifest.position.dispatch.retry
        )


def _begin(attempt: Attempt) -> StepContext | Result:
    context = StepContext(AttemptCalls(attempt))
    return attempt.end_before_it_begins() or context  # it may have waited for its checkpoint


def _is_to_stop(error: BaseException, attempt: Attempt) -> bool:
    """Return whether the attempt was to stop: it was asked to, or its server ends where it is."""
    if isinstance(error, SystemExit) and is_main_thread():
        return attempt.stop.wait(_NOTED_WITHIN_S)
    return attempt.stop.is_requested
