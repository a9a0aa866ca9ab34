"""One attempt in a child, from its process to what it comes to."""

from __future__ import annotations

import functools
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Final

from leasehold.attempt.attempt import Attempt
from leasehold.attempt.calls import AttemptCalls
from leasehold.domain.iterations import furthest_of
from leasehold.domain.result import Result
from leasehold.ports.handler_runner import EnteredStep, StepHandler
from leasehold.worker.sandbox.child import Child
from leasehold.worker.sandbox.children import ENTRY, NO_SOURCES, Children
from leasehold.worker.sandbox.ending import Ending
from leasehold.worker.sandbox.limits import Limits
from leasehold.worker.sandbox.memory import is_memory_told
from leasehold.worker.sandbox.messages import Job
from leasehold.worker.sandbox.relayed_logs import levels_in_force
from leasehold.worker.sandbox.sandboxed_attempt import SandboxedAttempt
from leasehold.worker.sandbox.source_finder import SourceText
from leasehold.worker.sandbox.stacks import Stacks
from leasehold.worker.sandbox.verdict import verdict_on

_LOG: Final = logging.getLogger("leasehold.sandbox")

#: Without a process for so long, the attempt is put off.
_PATIENCE_S: Final = 10.0

#: A step whose process was lost with its fork server so often, in a row, has one of its own next:
#: nobody else is lost with it then, and whose doing it was is known.
_LOST: Final = 2
_MOST_KEPT: Final = 1000


class Sandbox:
    """Runs handlers in processes, one for each attempt. Any thread may call.

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

    def run(self, held: Attempt, step: EnteredStep, given: str, calls: AttemptCalls) -> Result:
        """Have a child call the handler, and judge what it does.

        Raises:
            ForkServerError, OSError: there is no process, or no descriptor, to be had.
        """
        is_alone = self._lost[_name_of(held)] >= _LOST
        with (
            _stacks_pipe(step) as (stacks, far),
            self._children_for(is_alone) as children,
            _child_of(children, held, step) as child,
        ):
            limits = Limits.of(held, time.monotonic(), self._import_s)
            if limits.memory is not None and not is_memory_told():
                _warn_of_memory()
            with suppress(ConnectionError):  # it has ended already; how, it is asked later
                socket.send_fds(child.call, [b"s"], [far])
            note_fit = partial(self._children.note_fit, step.handler)
            attempt = SandboxedAttempt(
                held, child, limits, calls=calls, stacks=stacks, note_fit=note_fit
            )
            attempt.serve(_job(held, step, limits), given.encode())
            ending = child.ending()
            self._note(held, is_lost=ending == Ending() and attempt.last is None)
            return verdict_on(attempt, held, step, ending, is_alone=is_alone)

    def import_all(self) -> None:
        """Have all handlers imported now, for the attempts to come; nobody waits for it."""
        self._children.import_all()

    def close(self) -> None:
        """End all processes; no attempt may run."""
        self._children.close()

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
        elif name in self._lost or len(self._lost) < _MOST_KEPT:
            self._lost[name] += 1


@functools.cache  # once in each process
def _warn_of_memory() -> None:
    _LOG.warning(
        "no step is held to its memory_limit here: this machine does not tell how much memory a "
        "process takes (/proc/PID/status, /proc/PID/smaps)"
    )


def _name_of(held: Attempt) -> tuple[str, str]:
    return held.manifest.run_id, held.manifest.current_step


@contextmanager
def _child_of(children: Children, held: Attempt, step: StepHandler) -> Iterator[Child]:
    child = children.open(step.handler, wait=held.stop.wait, within=_PATIENCE_S)
    try:
        yield child
    finally:
        child.close()


@contextmanager
def _stacks_pipe(step: StepHandler) -> Iterator[tuple[Stacks, int]]:
    """Make the pipe for stacks: the end that is read, and the other one for the child."""
    near, far = os.pipe()
    try:
        os.set_blocking(near, False)
        os.set_blocking(far, False)
        yield Stacks(near, step.handler.partition(":")[0].partition(".")[0]), far
    finally:
        os.close(near)
        os.close(far)


def _job(held: Attempt, step: EnteredStep, limits: Limits) -> Job:
    run = held.manifest
    retry = run.dispatch.retry
    return Job(
        run_id=run.run_id,
        life=run.life,
        step_type=run.current_step,
        handler=step.handler,
        entry_actions=tuple(step.entry_actions),
        attempt=run.attempt,
        trial=run.trial,
        non_retryable=() if retry is None else retry.non_retryable,
        hard_s=limits.timeout_s,
        cleanup_s=limits.cleanup_s,
        furthest=furthest_of(run),
        note=run.note,
        begin_by=held.stop_at,
        levels=levels_in_force(),
    )
