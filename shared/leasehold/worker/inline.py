"""The inline runner: the handler runs in the worker's own thread. It cannot be killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import pydantic_core
from pydantic import ValidationError

from leasehold.domain.dispatch import Rules
from leasehold.domain.manifest import ErrorRecord, Manifest
from leasehold.domain.result import (
    OUTPUT_STATUSES,
    Deferred,
    Failed,
    Finished,
    Result,
    StepResult,
    Stopped,
)
from leasehold.domain.status import Termination
from leasehold.errors import PermanentError
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Documents, Snapshot
from leasehold.ports.step_runner import StepHandler, StepOutput
from leasehold.ports.values import check_depth
from leasehold.worker.context import StepContext
from leasehold.worker.failures import first_problem, record_of, record_of_misfit, told
from leasehold.worker.gates import through_gates
from leasehold.worker.handlers import Handler, handler_of
from leasehold.worker.heartbeat import Heartbeat
from leasehold.worker.held_run import HeldRun
from leasehold.worker.interrupts import is_ctrl_c, is_main_thread
from leasehold.worker.outage import outage_in
from leasehold.worker.outputs import problem_with_output
from leasehold.worker.side_by_side import side_by_side
from leasehold.worker.threads import start_thread

#: A server that is told to quit raises SystemExit in the main thread; the signal is noted within
#: this time.
_NOTED_WITHIN_S: Final = 0.2

_NO_THREAD: Final = "The system had no thread to renew the lease with."
_MAX_DETAIL: Final = 500


class InlineRunner:
    """The step runner port, in threads of this process."""

    def __init__(
        self, *, documents: Documents, artifacts: Artifacts, rules: Rules, clock: Clock
    ) -> None:
        self._documents = documents
        self._artifacts = artifacts
        self._rules = rules
        self._clock = clock
        self._interrupt: BaseException | None = None  # of the main thread
        self.heartbeat = Heartbeat(clock)

    def check(self, step: StepHandler) -> None:
        """Resolve the handler, or raise HandlerNotFoundError."""
        handler_of(step)

    def problem_with(self, step: StepHandler, given: str) -> tuple[str, str] | None:
        """Return the name of the handler's model and why this JSON text does not fit; or None."""
        handler = handler_of(step)
        try:
            handler.given.validate_json(given)
        except ValidationError as error:
            return handler.given_name, first_problem(error)
        return None

    def problem_with_output(
        self, step: StepOutput, output: str, following: StepHandler | None = None
    ) -> ErrorRecord | None:
        """Return why this JSON text is no output of the step, or not for the next one; or None."""
        return problem_with_output(step, output, following)

    def through_gates(
        self, gates: Sequence[StepHandler], manifest: Manifest, finished: Finished
    ) -> Result:
        """Return the result as it is, or what the first gate that refuses it makes of it."""
        try:
            return through_gates(gates, manifest, self._artifacts, finished)
        except KeyboardInterrupt as interrupt:
            return self._interrupted(interrupt)

    def raise_interrupt(self) -> None:
        """Raise the interrupt that cut an attempt of this thread short, once that is released."""
        if is_main_thread() and self._interrupt is not None:
            interrupt, self._interrupt = self._interrupt, None
            raise interrupt

    def hold(self, acquired: Snapshot, manifest: Manifest) -> AbstractContextManager[HeldRun]:
        """Hold the lease that the manifest has just got; inside, it is renewed."""
        held = HeldRun(
            documents=self._documents,
            rules=self._rules,
            clock=self._clock,
            acquired=acquired,
            manifest=manifest,
        )
        return self.heartbeat.keeping(held)

    def held_runs(self) -> Sequence[HeldRun]:
        """Return the runs that are held now."""
        return self.heartbeat.held_runs()

    def stop_all(self, reason: Termination) -> None:
        """Ask the handlers of all runs that are held to end, and of those that come later."""
        self.heartbeat.stop_all(reason)

    def at_once(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make the calls, none of which raises, all at the same time; wait for their ends.

        Those that no thread can be had for are made here, one after the other.
        """
        threads = [start_thread(call, "ending") for call in calls]
        for call, thread in zip(calls, threads, strict=True):
            if thread is None:
                call()
        for thread in threads:
            if thread is not None:
                thread.join()

    def side_by_side(self, take: Callable[[], Callable[[], None] | None], at_most: int) -> None:
        """Make the calls that `take` gives, at most so many at a time, until it gives none."""
        side_by_side(take, at_most)

    def run(self, held: HeldRun, step: StepHandler, given: str) -> Result:
        """Call the handler and judge what it does; do not begin what is to stop already."""
        if end := self._end_before_it_begins(held):
            return end
        try:
            handler = handler_of(step)
            value = handler.given.validate_json(given)
        except ValidationError as error:
            what = f"What step {step.step_type} is given"
            return Failed(record_of_misfit(error, code="invalid_input", what=what), permanent=True)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is kept with the run
            return Failed(record_of(error), permanent=True)
        return self._call(handler, held, value)

    def _call(self, handler: Handler, held: HeldRun, value: object) -> Result:
        try:
            context = StepContext(held, artifacts=self._artifacts, monotonic=self._clock.monotonic)
            if end := self._end_before_it_begins(held):
                return end
            answer = handler(context, value)
        except BaseException as error:  # noqa: BLE001 - a handler must not take the worker with it
            if is_ctrl_c(error):
                return self._interrupted(error, held.stop.reason)
            return _end_by(error, held)
        return judged(handler, answer)

    def _interrupted(self, interrupt: BaseException, reason: Termination | None = None) -> Stopped:
        """Have the attempt released first; whoever runs it in this thread raises it then."""
        self._interrupt = interrupt
        return Stopped(reason or Termination.INSTANCE_SHUTDOWN)

    def _end_before_it_begins(self, held: HeldRun) -> Result | None:
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


def _end_by(error: BaseException, held: HeldRun) -> Result:
    """Return how an attempt ends whose handler raised."""
    if isinstance(error, Exception) and (outage := outage_in(error)):
        return Deferred(Termination.STORE_UNAVAILABLE, told(outage.message, _MAX_DETAIL))
    if _is_to_stop(error, held):
        return Stopped(held.stop.reason or Termination.INSTANCE_SHUTDOWN)
    return Failed(record_of(error), permanent=isinstance(error, PermanentError))


def judged(handler: Handler, answer: Any) -> Result:
    """Return the answer of a handler as its model has it, or as the failure it is."""
    status: str = "SUCCESS"
    if isinstance(answer, StepResult):
        answer, status = answer.output, answer.status
    if status not in OUTPUT_STATUSES:
        message = f"StepResult.status is {status!r}; allowed: {', '.join(OUTPUT_STATUSES)}."
        return Failed(ErrorRecord(type="StepResult", code="invalid_output", message=message))
    try:
        value = handler.output.validate_python(answer)
        _refuse_nan(value)
        text = handler.output.dump_json(value).decode()
        check_depth(text)
        return Finished(text, status)
    except ValidationError as error:
        return Failed(record_of_misfit(error, code="invalid_output", what="The output"))
    except (ValueError, RecursionError) as error:  # PydanticSerializationError among them
        message = f"The output cannot be kept as JSON: {error}"
        return Failed(ErrorRecord(type="TypeError", code="invalid_output", message=message))


def _refuse_nan(value: Any) -> None:
    """Raise ValueError for NaN and infinity: JSON has neither, and null would hide them."""
    text = pydantic_core.to_json(value, inf_nan_mode="constants", fallback=repr)
    if b"NaN" in text or b"Infinity" in text:
        try:
            pydantic_core.from_json(text, allow_inf_nan=False)  # they may stand within a string
        except ValueError:
            raise ValueError("it holds NaN or infinity, which JSON does not have") from None


def _is_to_stop(error: BaseException, held: HeldRun) -> bool:
    """Return whether the attempt was to stop: it was asked to, or its server ends where it is."""
    if isinstance(error, SystemExit) and is_main_thread():
        return held.stop.wait(_NOTED_WITHIN_S)
    return held.stop.is_requested
