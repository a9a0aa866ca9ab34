"""The context: what a handler may ask of the engine while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pydantic_core

from leasehold.domain.json_text import OUTPUT_BYTES, check_size
from leasehold.domain.manifest_parts import Progress
from leasehold.errors import InvalidRequestError
from leasehold.logs.attempt import STEP_LOG
from leasehold.worker.attempt_calls import AttemptCalls
from leasehold.worker.threads import in_thread

_LOG: Final = logging.getLogger(STEP_LOG)
_MAX_MESSAGE: Final = 200

MAX_PHASE: Final = 128
#: Every store keeps a whole number of 64 bits.
MAX_ITERATIONS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class IncrementalState:
    """What an earlier attempt of the step left: see `StepContext.checkpoint`.

    Args:
        phase: the part of the work it was in.
        iteration_count: how many iterations were done.
        partial_results: what had been made by then, as plain JSON values.
    """

    phase: str
    iteration_count: int
    partial_results: Any


class StepContext:
    """One attempt of one step, as its handler sees it.

    Attributes:
        run_id: the run.
        step_type: the step.
        attempt: the number of this attempt, from 1.
        trial: the number of this trial, from 1.
        resume: what an earlier attempt kept with `checkpoint`; None: begin at the beginning.
        artifacts: files of this run.
        log: a logger that names run and step in each line.
    """

    def __init__(self, calls: AttemptCalls) -> None:
        attempt = calls.facts
        self.run_id = attempt.run_id
        self.step_type = attempt.step_type
        self.attempt = attempt.attempt
        self.trial = attempt.trial
        self.artifacts = calls.files
        facts = {"run_id": self.run_id, "step": self.step_type, "attempt": self.attempt}
        self.log = logging.LoggerAdapter(_LOG, facts)
        self._calls = calls
        self.resume = self._kept()

    def time_left(self) -> timedelta:
        """Return how long the attempt may still run; never below zero."""
        return timedelta(seconds=max(0.0, self._calls.time_left()))

    @property
    def shutdown_requested(self) -> bool:
        """Whether the attempt should end: shutdown, a lost lease, or a run that was cancelled."""
        return self._calls.stop.is_requested

    def wait_or_shutdown(self, seconds: float) -> bool:
        """Wait, but not longer than until the attempt should end; True: it should."""
        return self._calls.stop.wait(seconds)

    async def await_or_shutdown(self, seconds: float) -> bool:
        """Wait as `wait_or_shutdown` does, without blocking the handler's loop."""
        return await self._calls.stop.wait_async(seconds)

    def on_stop(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have `callback` called, in a thread of its own, when the attempt should end.

        For what a flag cannot reach: to close a connection that the handler waits for.

        Returns:
            What ends that.
        """
        return self._calls.stop.on_stop(callback)

    def checkpoint(self, iteration_count: int, partial_results: Any, phase: str = "") -> None:
        """Keep what there is so far; the next attempt finds it in `resume`. Renews the lease.

        Args:
            iteration_count: how many iterations are done.
            partial_results: JSON values or pydantic models.
            phase: the part of the work, where it has several; at most 128 printable characters.

        Raises:
            InvalidRequestError, TooLargeError: the results cannot be kept.
            LeaseLostError: the run is another worker's now. Let it pass: the attempt is over.
            StoreUnavailableError: it could not be stored while the lease was held. Let it pass:
                the attempt is deferred, which is no failure.
        """
        _check_place(iteration_count, phase)
        try:
            text = pydantic_core.to_json(partial_results, inf_nan_mode="constants").decode()
        except ValueError as error:
            raise InvalidRequestError(
                field="partial_results", value=str(error)[:_MAX_MESSAGE], allowed="JSON values"
            ) from None
        check_size("partial_results", text, OUTPUT_BYTES)
        self._calls.checkpoint(iteration_count, phase, text)

    async def acheckpoint(
        self, iteration_count: int, partial_results: Any, phase: str = ""
    ) -> None:
        """Do what `checkpoint` does, without blocking the handler's loop.

        Where the system has no thread for that, it blocks: to lose the work would be worse.
        """
        save = partial(self.checkpoint, iteration_count, partial_results, phase)
        await in_thread(save)

    def progress(self, fraction: float, message: str = "") -> None:
        """Record how far the work is: a share of 1, and a short message."""
        clean = message.encode("utf-8", "replace").decode()  # a file name may be no text
        share = min(1.0, max(0.0, fraction)) if fraction == fraction else 0.0  # noqa: PLR0124 - NaN
        self._calls.note_progress(Progress(fraction=share, message=clean[:_MAX_MESSAGE]))

    def output_of(self, step_type: str) -> Any:
        """Return the output of an earlier step of this run, as plain JSON values.

        Raises:
            InvalidRequestError: no earlier step of that name has an output.
            StoreUnavailableError: it could not be read. Let it pass: the attempt is deferred.
        """
        return pydantic_core.from_json(self._calls.output_of(step_type))

    def _kept(self) -> IncrementalState | None:
        kept = self._calls.kept_checkpoint()
        if kept is None:
            return None
        return IncrementalState(
            kept.phase, kept.iteration_count, pydantic_core.from_json(kept.results)
        )


def _check_place(iteration_count: int, phase: str) -> None:
    is_count = isinstance(iteration_count, int) and not isinstance(iteration_count, bool)
    if not is_count or not 0 <= iteration_count <= MAX_ITERATIONS:
        allowed = f"a whole number from 0 to {MAX_ITERATIONS}"
        value = repr(iteration_count)[:_MAX_MESSAGE]
        raise InvalidRequestError(field="iteration_count", value=value, allowed=allowed)
    is_word = isinstance(phase, str) and len(phase) <= MAX_PHASE
    if not is_word or (phase and not phase.isprintable()):
        allowed = f"a text of at most {MAX_PHASE} printable characters"
        raise InvalidRequestError(field="phase", value=repr(phase)[:_MAX_MESSAGE], allowed=allowed)
