"""The inline runner: the handler runs in the worker's own thread. It cannot be killed."""

from __future__ import annotations

from functools import partial
from typing import Final

from leasehold.domain.result import Result, Stopped
from leasehold.domain.status import Termination
from leasehold.logs.attempt import lines_of
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.clock import Clock
from leasehold.ports.handler_runner import StepHandler
from leasehold.worker.context import StepContext
from leasehold.worker.handler_call import call_handler, continued_in, deferred_in, failed_by
from leasehold.worker.held_attempt import HeldAttempt
from leasehold.worker.held_calls import HeldCalls, Load
from leasehold.worker.interrupts import Interrupts, is_ctrl_c, is_main_thread

#: A server that is to quit raises SystemExit in the main thread; the signal is noted within
#: this time.
_NOTED_WITHIN_S: Final = 0.2


class InlineRunner:
    """The handler runner port, in the thread that asks.

    Args:
        artifacts: the files of runs.
        load: reads a value of a run.
        clock: monotonic seconds.
        interrupts: where a Ctrl-C is kept that cuts a handler short.
    """

    def __init__(
        self, artifacts: Artifacts, load: Load, clock: Clock, interrupts: Interrupts
    ) -> None:
        self._artifacts = artifacts
        self._load = load
        self._clock = clock
        self._interrupts = interrupts

    def run(self, held: HeldAttempt, step: StepHandler, given: str) -> Result:
        """Call the handler and judge what it does; do not begin what is to stop already."""
        if end := held.end_before_it_begins():
            return end
        run = held.manifest
        with lines_of(run.run_id, run.current_step, run.attempt):
            begin, end_by = partial(self._begin, held), partial(self._end_by, held, step)
            return call_handler(step, given, begin=begin, end_by=end_by)

    def _begin(self, held: HeldAttempt) -> StepContext | Result:
        monotonic = self._clock.monotonic
        calls = HeldCalls(held, artifacts=self._artifacts, load=self._load, monotonic=monotonic)
        context = StepContext(calls)
        return held.end_before_it_begins() or context  # it may have waited for its checkpoint

    def _end_by(self, held: HeldAttempt, step: StepHandler, error: BaseException) -> Result:
        if is_ctrl_c(error):
            return self._interrupts.stopped_by(error, held.stop.reason)
        if deferred := deferred_in(error):
            return deferred
        if _is_to_stop(error, held):
            return Stopped(held.stop.reason or Termination.INSTANCE_SHUTDOWN)
        return continued_in(error) or failed_by(error, step, held.manifest.dispatch.retry)


def _is_to_stop(error: BaseException, held: HeldAttempt) -> bool:
    """Return whether the attempt was to stop: it was asked to, or its server ends where it is."""
    if isinstance(error, SystemExit) and is_main_thread():
        return held.stop.wait(_NOTED_WITHIN_S)
    return held.stop.is_requested
