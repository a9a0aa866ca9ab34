"""The process runner: each attempt runs in a child of its own, which can be killed."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from leasehold.domain.result import Deferred, Result
from leasehold.domain.status import Termination
from leasehold.errors import ForkServerError
from leasehold.logs.attempt import lines_of
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.clock import Clock
from leasehold.ports.handler_runner import StepHandler
from leasehold.worker.attempt_calls import AttemptCalls
from leasehold.worker.held_attempt import HeldAttempt
from leasehold.worker.held_calls import HeldCalls, Load
from leasehold.worker.interrupts import Interrupts, is_ctrl_c
from leasehold.worker.sandbox.child import Child
from leasehold.worker.sandbox.children import Children
from leasehold.worker.sandbox.limits import Limits
from leasehold.worker.sandbox.messages import Job
from leasehold.worker.sandbox.relayed_logs import levels_in_force
from leasehold.worker.sandbox.sandboxed_attempt import SandboxedAttempt
from leasehold.worker.sandbox.stacks import Stacks
from leasehold.worker.sandbox.verdict import verdict_on

#: Without a process for so long, the attempt is put off.
_PATIENCE_S: Final = 10.0


class ProcessRunner:
    """The handler runner port, in a process for each attempt.

    Args:
        artifacts: the files of runs.
        load: reads a value of a run.
        clock: monotonic seconds, those of the machine.
        interrupts: where a Ctrl-C is kept that cuts an attempt short.
    """

    def __init__(
        self, artifacts: Artifacts, load: Load, clock: Clock, interrupts: Interrupts
    ) -> None:
        self._artifacts = artifacts
        self._load = load
        self._clock = clock
        self._interrupts = interrupts
        self._children = Children()

    def run(self, held: HeldAttempt, step: StepHandler, given: str) -> Result:
        """Have a child call the handler, and judge what it does."""
        if end := held.end_before_it_begins():
            return end
        run = held.manifest
        try:
            with lines_of(run.run_id, run.current_step, run.attempt):
                return self._run(held, step, given)
        except (ForkServerError, OSError) as error:  # no process, or no descriptor
            problem = error.message if isinstance(error, ForkServerError) else str(error)
            unavailable = Deferred(Termination.PROCESS_UNAVAILABLE, problem)
            return held.end_before_it_begins() or unavailable
        except KeyboardInterrupt as error:
            if is_ctrl_c(error):
                return self._interrupts.stopped_by(error, held.stop.reason)
            raise

    def close(self) -> None:
        """End all processes; no attempt may run."""
        self._children.close()

    def _run(self, held: HeldAttempt, step: StepHandler, given: str) -> Result:
        with _stacks_pipe() as (stacks, far), self._child(held, step) as child:
            limits = Limits.of(held, time.monotonic())
            calls = HeldCalls(
                held,
                artifacts=self._artifacts,
                load=self._load,
                monotonic=self._clock.monotonic,
            )
            with suppress(ConnectionError):  # it has ended already; how, it is asked later
                socket.send_fds(child.call, [b"s"], [far])
            note_fit = partial(self._children.note_fit, step.handler.partition(":")[0])
            attempt = SandboxedAttempt(
                held, child, limits, calls=calls, stacks=stacks, note_fit=note_fit
            )
            attempt.serve(_job(calls, held, step, limits), given.encode())
            return verdict_on(attempt, held, limits, child.ending())

    @contextmanager
    def _child(self, held: HeldAttempt, step: StepHandler) -> Iterator[Child]:
        child = self._children.open(step.handler, wait=held.stop.wait, within=_PATIENCE_S)
        try:
            yield child
        finally:
            child.close()


@contextmanager
def _stacks_pipe() -> Iterator[tuple[Stacks, int]]:
    """Make the pipe for stacks: the end that is read, and the other one for the child."""
    near, far = os.pipe()
    try:
        os.set_blocking(near, False)
        os.set_blocking(far, False)
        yield Stacks(near), far
    finally:
        os.close(near)
        os.close(far)


def _job(calls: AttemptCalls, held: HeldAttempt, step: StepHandler, limits: Limits) -> Job:
    retry = held.manifest.dispatch.retry
    return Job(
        run_id=calls.facts.run_id,
        step_type=calls.facts.step_type,
        handler=step.handler,
        attempt=calls.facts.attempt,
        trial=calls.facts.trial,
        non_retryable=() if retry is None else retry.non_retryable,
        soft_at=limits.soft_at,
        hard_at=limits.hard_at,
        levels=levels_in_force(),
    )
