"""The inline runner: the handler runs in the worker's own thread. It cannot be killed."""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError

from leasehold.domain.result import Deferred, Failed, Result, Stopped
from leasehold.domain.status import Termination
from leasehold.errors import StoreUnavailableError
from leasehold.logs.attempt import lines_of
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.clock import Clock
from leasehold.ports.handler_runner import StepHandler
from leasehold.worker.context import Load, StepContext
from leasehold.worker.failures import record_of, safe_text
from leasehold.worker.handlers import Handler, handler_of
from leasehold.worker.held_attempt import HeldAttempt
from leasehold.worker.interrupts import Interrupts, is_ctrl_c, is_main_thread
from leasehold.worker.misfits import record_of_misfit
from leasehold.worker.outage import may_pass, outage_in
from leasehold.worker.outputs import judged
from leasehold.worker.retry_hints import is_permanent

#: A server that is to quit raises SystemExit in the main thread; the signal is noted within
#: this time.
_NOTED_WITHIN_S: Final = 0.2

_NO_THREAD: Final = "The system had no thread to renew the lease with."
_MAX_DETAIL: Final = 500


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
        if end := self._end_before_it_begins(held):
            return end
        run = held.manifest
        with lines_of(run.run_id, run.current_step, run.attempt):
            return self._run(held, step, given)

    def _run(self, held: HeldAttempt, step: StepHandler, given: str) -> Result:
        try:
            handler = handler_of(step)
            value = handler.given.validate_json(given)
        except ValidationError as error:
            what = f"What step {step.step_type} is given"
            return Failed(record_of_misfit(error, code="invalid_input", what=what), permanent=True)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is kept with the run
            return _end_before_the_call(error, step)
        return self._call(step, handler, held, value)

    def _call(
        self, step: StepHandler, handler: Handler, held: HeldAttempt, value: object
    ) -> Result:
        try:
            context = StepContext(
                held,
                artifacts=self._artifacts,
                load=self._load,
                monotonic=self._clock.monotonic,
            )
            if end := self._end_before_it_begins(held):
                return end
            answer = handler(context, value)
        except BaseException as error:  # noqa: BLE001 - a handler must not take the worker with it
            if is_ctrl_c(error):
                return self._interrupts.stopped_by(error, held.stop.reason)
            return _end_by(error, step, held)
        return judged(handler, answer)

    def _end_before_it_begins(self, held: HeldAttempt) -> Result | None:
        """Return how an attempt ends that must not begin, or None.

        The lease may be over although nobody asked for a stop: a process that was frozen goes on
        with all its threads at once.
        """
        reason = held.stop.reason
        if reason is Termination.THREAD_UNAVAILABLE:
            return Deferred(reason, _NO_THREAD)
        if reason is None and held.stop_at <= self._clock.monotonic():
            reason = Termination.LEASE_EXPIRED
        return None if reason is None else Stopped(reason)


def _end_before_the_call(error: Exception, step: StepHandler) -> Result:
    """Return how an attempt ends whose handler cannot be called: its code has to be repaired.

    An outage that kept its module from being imported is no mistake of the code.
    """
    if outage := outage_in(error):
        return _deferred_by(outage)
    return Failed(record_of(error, step.handler), permanent=not may_pass(error))


def _end_by(error: BaseException, step: StepHandler, held: HeldAttempt) -> Result:
    """Return how an attempt ends whose handler raised."""
    if isinstance(error, Exception) and (outage := outage_in(error)):
        return _deferred_by(outage)
    if _is_to_stop(error, held):
        return Stopped(held.stop.reason or Termination.INSTANCE_SHUTDOWN)
    permanent = is_permanent(error, held.manifest.dispatch.retry)
    return Failed(record_of(error, step.handler), permanent=permanent)


def _deferred_by(outage: StoreUnavailableError) -> Deferred:
    return Deferred(Termination.STORE_UNAVAILABLE, safe_text(outage.message, _MAX_DETAIL))


def _is_to_stop(error: BaseException, held: HeldAttempt) -> bool:
    """Return whether the attempt was to stop: it was asked to, or its server ends where it is."""
    if isinstance(error, SystemExit) and is_main_thread():
        return held.stop.wait(_NOTED_WITHIN_S)
    return held.stop.is_requested
