"""One attempt in a child, from its process to what it comes to."""

from __future__ import annotations

import functools
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Final, NamedTuple

from leasehold.attempt.attempt import Attempt
from leasehold.attempt.calls import AttemptCalls
from leasehold.domain.kept_checkpoint import furthest_of
from leasehold.domain.result import Continued, Finished, Result
from leasehold.domain.traceparent import attempt_traceparent
from leasehold.ports.handler_runner import EnteredStep
from leasehold.worker.sandbox.forking.child import Child, Ending
from leasehold.worker.sandbox.forking.children import (
    ENTRY,
    NO_SOURCES,
    Children,
    IdleChildren,
    Purpose,
)
from leasehold.worker.sandbox.forking.memory import is_memory_told, own_children, takes_more_than
from leasehold.worker.sandbox.forking.source_finder import SourceText
from leasehold.worker.sandbox.output_lines import levels_in_force
from leasehold.worker.sandbox.sandboxed_attempt import Limits, SandboxedAttempt
from leasehold.worker.sandbox.stacks import Stacks
from leasehold.worker.sandbox.verdict import verdict_on
from leasehold.worker.sandbox.wire.messages import Job

_LOG: Final = logging.getLogger("leasehold.sandbox")

#: Without a process for this time, the attempt is deferred.
_PROCESS_PATIENCE_S: Final = 10.0

#: A step whose process was lost with its fork server so often, in a row, has one of its own next:
#: then no other attempt is lost with it, and the cause is known.
_LOST_BEFORE_ALONE: Final = 2
_MAX_NAMES_KEPT: Final = 1000

#: A process that has served others, and does not begin within so many seconds, is replaced.
_USED_START_S: Final = 5.0
#: With more bytes than this, or half of the step's memory limit, no process waits for an attempt.
_MAX_IDLE_MEMORY_BYTES: Final = 256 * 2**20
_NOT_USED_AGAIN: Final = (
    "the process of step %s is not used again, whatever its reuse: its handler has left or changed "
    "%s"
)


class _Work(NamedTuple):
    """An attempt, and for which purpose a process of it may be used again; None: for none."""

    held: Attempt
    step: EnteredStep
    given: str
    calls: AttemptCalls
    purpose: Purpose | None


class Sandbox:
    """Runs handlers in processes, one for each attempt at a time. Any thread may call.

    Args:
        handlers: all that it may be given, `module:function`.
        sources: the project's own, as they were read here: handlers are imported from these.
        import_s: how long the import of a handler may take, in seconds.
        entry: the module that children run.
    """

    def __init__(
        self,
        handlers: Sequence[str] = (),
        *,
        sources: Mapping[str, SourceText] = NO_SOURCES,
        import_s: float = 60.0,
        entry: str = ENTRY,
    ) -> None:
        self._import_s = import_s
        self._open = partial(Children, entry, sources=sources, load_s=import_s)
        self._children = self._open(handlers=handlers)
        self._lost: Counter[tuple[str, str]] = Counter()
        self._told: set[tuple[str, str]] = set()

    def run(self, held: Attempt, step: EnteredStep, given: str, calls: AttemptCalls) -> Result:
        """Have a child call the handler, and judge what it does.

        Raises:
            ForkServerError, OSError: there is no process, or no descriptor, to be had.
        """
        is_alone = self._lost[_name_of(held)] >= _LOST_BEFORE_ALONE
        purpose = Purpose.of(step) if _is_reused(step) and not is_alone else None
        work = _Work(held, step, given, calls, purpose)
        with self._children_for(is_alone) as children:
            used = children.idle.take(purpose) if purpose else None
            if used is not None and (result := self._run_in(used, work, children.idle)):
                return result
            new = children.open(step.handler, wait=held.stop.wait, within=_PROCESS_PATIENCE_S)
            result = self._run_in(new, work, children.idle, is_alone=is_alone)
            assert result is not None  # noqa: S101 - only of one that is used there is none
            return result

    def import_all(self) -> None:
        """Import all handlers now, in the background, for later attempts."""
        self._children.import_all()

    def close(self) -> None:
        """End all processes; no attempt may run."""
        self._children.close()

    def _run_in(
        self, child: Child, work: _Work, idle: IdleChildren, *, is_alone: bool = False
    ) -> Result | None:
        """Run an attempt in a process, and keep that for another one if it may serve it.

        Returns:
            What it comes to; None: the process had served others, and ended before this one began.
        """
        held, step, given, calls, purpose = work
        child.attempts += 1
        is_used = child.attempts > 1
        reuse = step.reuse - child.attempts + 1 if purpose else 1
        is_kept = False
        try:
            import_s = min(self._import_s, _USED_START_S) if is_used else self._import_s
            limits = Limits.of(held, time.monotonic(), import_s)
            if limits.memory is not None and not is_memory_told():
                _warn_of_memory()
            attempt = SandboxedAttempt(
                held,
                child,
                limits,
                calls=calls,
                stacks=Stacks(child.stacks, step.handler.partition(":")[0].partition(".")[0]),
                note_fit=partial(self._children.note_fit, step.handler),
            )
            attempt.serve(_job(held, step, limits, reuse), given.encode())
            if is_used and attempt.never_began:
                held.is_killed = False  # nothing of a handler was
                return None
            ending = None if attempt.is_clean and not attempt.has_ended else child.ending()
            self._note(held, is_lost=ending == Ending() and attempt.last is None)
            result = verdict_on(attempt, held, step, ending, is_alone=is_alone)
            if purpose and reuse > 1 and self._may_go_on(attempt, child, result, step):
                is_kept = True  # from now on it is another attempt's
                idle.keep(purpose, child)
            return result
        finally:
            if not is_kept:
                child.close()

    def _may_go_on(
        self, attempt: SandboxedAttempt, child: Child, result: Result, step: EnteredStep
    ) -> bool:
        """Return whether a process is as it was before an attempt, which ended well.

        What it says of itself is not all that counts: a handler may have made it say so.
        """
        was_told = attempt.was_stopped or attempt.is_past_soft_limit
        if was_told or not isinstance(result, Finished | Continued):
            return False
        left = attempt.left
        if not left and own_children(child.pid):
            left = "processes"
        if not left and takes_more_than(child.pid, _memory_kept(attempt.limits)):
            left = "memory"
        if left and (step.step_type, left) not in self._told and len(self._told) < _MAX_NAMES_KEPT:
            self._told.add((step.step_type, left))
            _LOG.warning(_NOT_USED_AGAIN, step.step_type, left)
        return attempt.is_clean and not left and not child.is_outdated

    @contextmanager
    def _children_for(self, is_alone: bool) -> Iterator[Children]:
        if not is_alone:
            yield self._children
            return
        with closing(self._open()) as children:
            yield children

    def _note(self, held: Attempt, *, is_lost: bool) -> None:
        """Count how often in a row the process of a step was lost with its fork server."""
        name = _name_of(held)
        if not is_lost:
            self._lost.pop(name, None)
        elif name in self._lost or len(self._lost) < _MAX_NAMES_KEPT:
            self._lost[name] += 1


@functools.cache  # once in each process
def _warn_of_memory() -> None:
    _LOG.warning(
        "no step is held to its memory_limit here: this machine does not tell how much memory a "
        "process takes (/proc/PID/status, /proc/PID/smaps)"
    )


def _name_of(held: Attempt) -> tuple[str, str]:
    return held.manifest.run_id, held.manifest.position.step


def _is_reused(step: EnteredStep) -> bool:
    """Return whether a process of a step may be used again; where none says how it is, none is."""
    return step.reuse > 1 and sys.platform == "linux" and is_memory_told()


def _memory_kept(limits: Limits) -> int:
    return _MAX_IDLE_MEMORY_BYTES if limits.memory is None else limits.memory // 2


def _job(held: Attempt, step: EnteredStep, limits: Limits, reuse: int) -> Job:
    run = held.manifest
    retry = run.position.dispatch.retry
    return Job(
        run_id=run.run_id,
        life=run.life,
        step=run.position.step,
        step_type=run.step_type,
        handler=step.handler,
        entry_actions=tuple(step.entry_actions),
        attempt=run.position.attempt,
        trial=run.position.trial,
        non_retryable=() if retry is None else retry.non_retryable,
        hard_s=limits.timeout_s,
        cleanup_s=limits.cleanup_s,
        furthest=furthest_of(run),
        has_checkpoint=run.position.checkpoint is not None,
        has_budget=run.has_budget,
        note=run.position.note,
        traceparent=attempt_traceparent(run, run.traceparent, held.fence.lease_id),
        begin_by=held.stop_at,
        levels=levels_in_force(),
        reuse=reuse,
    )
