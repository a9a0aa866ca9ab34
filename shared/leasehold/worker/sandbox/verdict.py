"""What an attempt in a child comes to: its last word, and else how its process ended."""

from __future__ import annotations

import signal
import time
from typing import Final

from leasehold.attempt.attempt import Attempt
from leasehold.domain.json_text import check_json
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.redaction import Redaction
from leasehold.domain.result import (
    Continued,
    Deferred,
    Failed,
    Finished,
    LimitExceeded,
    Result,
    Stopped,
    Unable,
)
from leasehold.domain.status import BlockCode, Termination
from leasehold.domain.stored import replace
from leasehold.domain.trace import MAX_DETAIL_CHARS
from leasehold.errors import (
    AgentTimeoutError,
    DispatchDeadlineError,
    HandlerDiedError,
    HandlerGarbledError,
    HandlerNotFoundError,
    LeaseholdError,
    MemoryLimitError,
    SilenceLimitError,
)
from leasehold.ports.handler_runner import StepHandler
from leasehold.worker.failures.failures import record_of_child, safe_text
from leasehold.worker.failures.kept_text import cut, json_of
from leasehold.worker.sandbox.child.child_socket import LINK_LOST, OUT_OF_TIME
from leasehold.worker.sandbox.forking.child import Ending
from leasehold.worker.sandbox.forking.fork_server import ENGINE_ERROR
from leasehold.worker.sandbox.sandboxed_attempt import SandboxedAttempt
from leasehold.worker.sandbox.wire import messages
from leasehold.worker.sandbox.wire.messages import (
    ContinuedNote,
    DeferredNote,
    FailedNote,
    FinishedNote,
    UnableNote,
)

_MIB: Final = 1024 * 1024
_MAX_PRINTED_CHARS: Final = 2000
_PRINTED_LINES: Final = 5
_MAX_PROBLEM_CHARS: Final = 300

_NOT_SEEN: Final = "The process that starts handlers ended, and the handler with it."
_BEFORE_IT_BEGAN: Final = "The process ended before the handler was called"
_WITH_ITS_PARENT: Final = (
    "again and again, and with it the process that had started this one and no other "
    "(does the handler kill its parent?)"
)
_BY_WHOM: Final = " (by the system, out of memory?)"


def verdict_on(
    attempt: SandboxedAttempt,
    held: Attempt,
    step: StepHandler,
    ending: Ending | None,
    *,
    is_alone: bool = False,
) -> Result:
    """Return what an attempt comes to that was served to its end.

    Args:
        attempt: the attempt.
        held: the same, as the worker holds it.
        step: what was to be called.
        ending: how its process ended; None: its end was not seen.
        is_alone: whether its fork server had no other child.
    """
    return _Verdict(attempt, held, step, is_alone=is_alone).on(ending or Ending())


class _Verdict:
    def __init__(
        self, attempt: SandboxedAttempt, held: Attempt, step: StepHandler, *, is_alone: bool
    ) -> None:
        self._attempt = attempt
        self._is_alone = is_alone
        self._held = held
        self._limits = attempt.limits
        self._handler = step.handler
        run = held.manifest
        self._step = {"step": run.position.step}
        self._facts = {"step": run.position.step, "attempt": run.position.attempt}

    def on(self, ending: Ending) -> Result:
        attempt = self._attempt
        if attempt.last is not None:
            try:
                return self._on_last_word(*attempt.last)
            except ValueError:
                return self._garbled("its result is not what a child sends")
        if attempt.was_stopped and not self._has_failed_meanwhile():
            return self._stopped()
        if attempt.garbled:
            return self._garbled(attempt.garbled)
        if attempt.limit is not None:
            return self._on_limit(attempt.limit)
        return self._on_death(ending)

    def _on_limit(self, reason: Termination) -> Result:
        """Return what it comes to that it was killed at a limit; its import is no failure."""
        limits = self._limits
        if self._attempt.is_imported:
            return self._exceeded(reason)
        if reason is Termination.MEMORY_LIMIT_EXCEEDED:
            most = (limits.memory or 0) // _MIB
            return self._unavailable(f"took more than the {most} MiB of memory that the step has")
        return self._unavailable(f"took longer than {limits.hard_at - limits.begun_at:.3g} s")

    def _unavailable(self, what: str) -> Unable:
        """Return what it comes to that the import did not end, so that nothing was called."""
        problem = f"importing {self._handler.partition(':')[0]!r} {what}"
        error = HandlerNotFoundError(handler=self._handler, **self._step, problem=problem)
        return Unable(BlockCode.HANDLER_UNAVAILABLE, self._record(error))

    def _has_failed_meanwhile(self) -> bool:
        """Return whether it was killed at its own limit, although it was also to stop.

        It had been warned of its time before that, and memory it takes at its own risk.
        """
        limit, is_told = self._attempt.limit, self._attempt.is_past_soft_limit
        is_late = limit is self._attempt.soft_limit and is_told
        return is_late or limit is Termination.MEMORY_LIMIT_EXCEEDED

    def _on_last_word(self, note: messages.Ending, body: bytes) -> Result:
        """Return what a child's last word comes to; ValueError: it is none."""
        match note:
            case FinishedNote(status=status, summary=summary, skip_to=skip_to):
                output = body.decode()
                check_json(output)
                return Finished(output, status, summary, skip_to)
            case DeferredNote(reason=reason, detail=detail):
                return Deferred(reason, safe_text(detail, MAX_DETAIL_CHARS))
            case ContinuedNote(at_checkpoint=at_checkpoint, over_budget=over):
                is_to_stop = self._held.stop.is_requested  # then that is why it ends
                wanted = None if note.wanted is None else note.wanted.to_request()
                continued = Continued(at_checkpoint, safe_text(over, MAX_DETAIL_CHARS), wanted)
                return self._stopped() if is_to_stop else continued
            case UnableNote(code=code):
                return Unable(code, record_of_child(body))
            case FailedNote(has_raised=True):
                return self._on_error(note, record_of_child(body))
        return Failed(record_of_child(body), permanent=note.permanent)

    def _on_error(self, note: FailedNote, record: ErrorRecord) -> Result:
        """Return what it comes to that the handler raised: the limit, where it was past one."""
        attempt = self._attempt
        if attempt.is_past_soft_limit or (attempt.limit and not attempt.was_stopped):
            return self._exceeded(attempt.limit or attempt.soft_limit, record)
        if self._held.stop.is_requested:
            return self._stopped()
        if note.lacked_memory and self._limits.memory is not None:
            return self._exceeded(Termination.MEMORY_LIMIT_EXCEEDED, record)
        return Failed(record, permanent=note.permanent)

    def _on_death(self, ending: Ending) -> Result:
        """Return what an attempt comes to whose process ended of itself, without a last word."""
        if ending.exit_code == LINK_LOST:
            return self._garbled("it closed its connection to the worker")
        if not ending.is_known:
            return self._on_unseen_death()
        attempt, limits = self._attempt, self._limits
        is_late = attempt.is_past_soft_limit or limits.hard_at <= time.monotonic()
        if is_late and (attempt.is_past_soft_limit or ending.exit_code == OUT_OF_TIME):
            return self._exceeded(attempt.soft_limit)
        if ending.signal == signal.SIGKILL and limits.memory is not None:
            return self._on_limit(Termination.MEMORY_LIMIT_EXCEEDED)
        if self._held.stop.is_requested:
            return self._stopped()
        return self._died(ending)

    def _died(self, ending: Ending) -> Result:
        """Return what it comes to that its process ended by its own doing, or before it began."""
        how = _words_of(ending)
        if not self._attempt.is_imported:
            if ending.exit_code == ENGINE_ERROR:
                return self._not_begun()
            return self._unavailable(f"ended its process: {how}")
        return self._failed(HandlerDiedError(**self._step, problem=how))

    def _on_unseen_death(self) -> Result:
        """Return what it comes to that it was lost with its fork server, by whose doing ever."""
        if self._is_alone and not self._held.stop.is_requested:
            return self._failed(HandlerDiedError(**self._step, problem=_WITH_ITS_PARENT))
        return Deferred(Termination.PROCESS_UNAVAILABLE, _NOT_SEEN)

    def _not_begun(self) -> Deferred:
        """Return what it comes to that the engine's own code could not go on, with what it said."""
        said = self._attempt.prints.last_lines.strip().rpartition("\n")[2]
        detail = f"{_BEFORE_IT_BEGAN}: {said}" if said else f"{_BEFORE_IT_BEGAN}."
        return Deferred(Termination.PROCESS_UNAVAILABLE, safe_text(detail, MAX_DETAIL_CHARS))

    def _stopped(self) -> Stopped:
        return Stopped(self._held.stop.reason or Termination.INSTANCE_SHUTDOWN)

    def _garbled(self, problem: str) -> Result:
        problem = safe_text(problem, _MAX_PROBLEM_CHARS)
        if not self._attempt.is_imported:
            return self._unavailable(f"ended the conversation of its process: {problem}")
        return self._failed(HandlerGarbledError(**self._step, problem=problem))

    def _failed(self, error: LeaseholdError) -> Failed:
        return Failed(self._record(error))

    def _record(self, error: LeaseholdError) -> ErrorRecord:
        """Return the failure of a process, with the known facts of its last moments."""
        stacks, printed = self._attempt.stacks, self._attempt.prints.last_lines
        record = replace(
            ErrorRecord.of(error), origin=stacks.origin(), traceback=stacks.text() or None
        )
        if printed:
            record = replace(record, details=json_of({"printed": _end_of(printed)}))
        return record

    def _exceeded(self, reason: Termination, raised: ErrorRecord | None = None) -> Result:
        """Return the end at a limit; of what the handler raised then, the traceback is kept.

        Time that went by while it waited for a store is no failure of its own.
        """
        outage = self._held.outage
        if outage is not None and reason is not Termination.MEMORY_LIMIT_EXCEEDED:
            return Deferred(
                Termination.STORE_UNAVAILABLE, safe_text(outage.message, MAX_DETAIL_CHARS)
            )
        stacks = self._attempt.stacks
        record = replace(ErrorRecord.of(self._error_of(reason)), origin=stacks.origin())
        if raised is not None:
            record = replace(record, origin=raised.origin, traceback=raised.traceback)
        return LimitExceeded(reason, record, stacks.text())

    def _error_of(self, reason: Termination) -> LeaseholdError:
        dispatch = self._held.manifest.position.dispatch
        match reason:
            case Termination.MEMORY_LIMIT_EXCEEDED:
                limit = self._limits.memory or 0
                taken = max(self._attempt.taken, limit)
                sizes = {"taken_mib": -(-taken // _MIB), "limit_mib": limit // _MIB}
                return MemoryLimitError(**self._facts, **sizes)
            case Termination.DISPATCH_DEADLINE_EXCEEDED:
                return DispatchDeadlineError(**self._facts, deadline_s=dispatch.deadline_s)
            case Termination.SILENCE_LIMIT_EXCEEDED:
                silence_s = (dispatch.silence_limit_ms or 0) / 1000
                return SilenceLimitError(**self._facts, silence_s=silence_s)
        return AgentTimeoutError(**self._facts, timeout_s=dispatch.timeout_ms / 1000)


def _end_of(printed: str) -> str:
    """Return the last lines without their secrets: such may have begun in a line before them."""
    lines = Redaction().text(printed).split("\n")
    return cut("\n".join(lines[-_PRINTED_LINES:]), _MAX_PRINTED_CHARS)


def _words_of(ending: Ending) -> str:
    if ending.signal is not None:
        name = _name_of(ending.signal)
        killed = ending.signal == signal.SIGKILL
        return f"it was killed by {name}{_BY_WHOM}" if killed else f"it crashed by {name}"
    return f"it exited with code {ending.exit_code} (os._exit in the handler?)"


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
