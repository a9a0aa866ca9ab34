"""The checkpoints of an attempt: what it keeps by hand or by its loops, and where it may end."""

from __future__ import annotations

import sys
from typing import Any

import pydantic_core

from leasehold.attempt.calls import ContextCalls, KeptCheckpoint
from leasehold.domain.json_text import MAX_OUTPUT_BYTES, check_size, not_json
from leasehold.domain.kept_checkpoint import MAX_ITERATIONS, MAX_PHASE_CHARS
from leasehold.domain.notes import said
from leasehold.errors import (
    MAX_VALUE_SHOWN_CHARS,
    CheckpointMisusedError,
    ContinuedError,
    InvalidRequestError,
)
from leasehold.frozen import dataclass
from leasehold.worker.context.checkpointed import Loop, Loops, Pace
from leasehold.worker.context.typed_json import plain_json_text_of


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


class Checkpoints:
    """Those of one attempt.

    Args:
        calls: what the attempt asks of the engine.
        pace: of the attempt.
        kept: that of an earlier attempt, as it is stored; None: there is none.

    Attributes:
        resume: what an earlier attempt kept; None: nothing, or nothing that can be used.
        is_entering: whether an entry action runs, which keeps none.
    """

    def __init__(self, calls: ContextCalls, pace: Pace, kept: KeptCheckpoint | None) -> None:
        self.resume: IncrementalState | None = None
        self.is_entering = False
        self._calls = calls
        self._pace = pace
        self._loops: Loops | None = None
        self._keeps_by_hand = False
        if kept is not None:
            results = pydantic_core.from_json(kept.results)
            self.resume = IncrementalState(kept.phase, kept.iteration_count, results)

    def keep_by_hand(self, iteration_count: int, partial_results: Any, phase: str) -> bool:
        """Keep a checkpoint of the handler's own; return whether the step was never as far."""
        _check_one_way(is_other=self._loops is not None)
        self._keeps_by_hand = True
        return self._keep(iteration_count, partial_results, phase)

    def loop(self, every: int, phase: str) -> Loop:
        """Return a loop that keeps them: see `StepContext.checkpointed`."""
        if type(every) is not int or every < 1:
            value = repr(every)[:MAX_VALUE_SHOWN_CHARS]
            raise InvalidRequestError(field="every", value=value, allowed="a whole number from 1")
        _check_place(0, phase)
        if self._loops is None:
            _check_one_way(is_other=self._keeps_by_hand)
            self._loops = Loops(
                keep=self._keep, reject=self._reject, pace=self._pace, stop=self._calls.stop
            )
            self._pace.looks_back = True
            if self.resume is not None:
                self._loops.restore(self.resume.partial_results)
        return self._loops.loop(every, phase)

    def keep_rest(self) -> None:
        """Keep what the loops have done and not kept yet."""
        if self._loops is not None:
            self._loops.keep_rest()

    def end_if_short(self, is_further: bool) -> None:
        """End the attempt where its time is short, and the next one finds more than this one."""
        self._pace.beat()
        is_due = is_further and self._pace.is_short() and not self._calls.stop.is_requested
        if is_due and sys.exception() is None:  # else it would hide an error that is on its way out
            raise ContinuedError(at_checkpoint=True)

    def _reject(self, why: str) -> None:
        """Begin at the beginning: what an earlier attempt kept cannot be used."""
        self._calls.reject_checkpoint(why)
        self.resume = None

    def _keep(self, iteration_count: int, partial_results: Any, phase: str) -> bool:
        if self.is_entering:
            problem = "An entry action keeps a checkpoint, in place of that of its handler"
            raise CheckpointMisusedError(problem=problem, remedy="Keep it in the handler")
        _check_place(iteration_count, phase)
        try:
            text = plain_json_text_of("partial_results", partial_results)
        except ValueError as error:
            raise not_json("partial_results", error) from None
        check_size("partial_results", text, MAX_OUTPUT_BYTES)
        self._calls.checkpoint(iteration_count, phase, text)
        return self._pace.note(iteration_count, phase)


def _check_one_way(*, is_other: bool) -> None:
    if is_other:
        raise CheckpointMisusedError(
            problem="This handler uses both ctx.checkpoint and ctx.checkpointed, and a checkpoint "
            "of the one would replace that of the other",
            remedy="Keep what it needs in the results of a loop, or do without such loops",
        )


def _check_place(iteration_count: int, phase: str) -> None:
    is_count = isinstance(iteration_count, int) and not isinstance(iteration_count, bool)
    if not is_count or not 0 <= iteration_count <= MAX_ITERATIONS:
        allowed = f"a whole number from 0 to {MAX_ITERATIONS}"
        value = repr(iteration_count)[:MAX_VALUE_SHOWN_CHARS]
        raise InvalidRequestError(field="iteration_count", value=value, allowed=allowed)
    is_word = isinstance(phase, str) and len(phase) <= MAX_PHASE_CHARS
    if not is_word or (phase and not phase.isprintable()):
        allowed = f"a text of at most {MAX_PHASE_CHARS} printable characters"
        value = said(repr(phase))[:MAX_VALUE_SHOWN_CHARS]
        raise InvalidRequestError(field="phase", value=value, allowed=allowed)
