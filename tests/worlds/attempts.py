"""Attempts of handlers in real processes, without an engine: what the process runner does."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pydantic_core

from leasehold.attempt.attempt import Attempt
from leasehold.attempt.calls import AttemptCalls
from leasehold.bootstrap import folder_artifacts, system_clock
from leasehold.domain.result import Result
from leasehold.domain.stored import replace
from leasehold.testing.contexts import LEASE, MemoryEngine, checkpoint_of, run_at_work
from leasehold.worker.context.checkpoints import IncrementalState
from leasehold.worker.handler.call import InlineRunner
from leasehold.worker.sandbox.sandbox import Sandbox
from leasehold.worker.stopping.system_signals import Interrupts
from tests.worlds.builders import at_position


@dataclass(frozen=True)
class Step:
    """A step, as far as a runner needs to know it."""

    handler: str
    step_type: str = "step"
    entry_actions: Sequence[str] = ()
    reuse: int = 1


def _step(handler: str, *entry_actions: str) -> Step:
    return Step(_path(handler), entry_actions=tuple(map(_path, entry_actions)))


def _path(name: str) -> str:
    return name if ":" in name else f"tests.chaos.sandbox.handlers:{name}"


@dataclass
class Attempts:
    """Runs attempts in one sandbox.

    Args:
        sandbox: what runs them.
        folder: where their files are.
        reuse: how many of a step one process may serve.
    """

    sandbox: Sandbox
    folder: Path
    reuse: int = 1
    checkpoints: list[IncrementalState] = field(default_factory=list)

    def held(
        self,
        *,
        timeout: float = 120,
        cleanup: float = 5,
        memory: int | None = None,
        silence: float | None = None,
        outputs: Mapping[str, Any] | None = None,
        resume: IncrementalState | None = None,
        lease: float = LEASE.total_seconds(),
        deadline: int = 3600,
    ) -> Attempt:
        """Return an attempt that is held; all times are seconds."""
        clock = system_clock()
        run = run_at_work(clock, "r-1", "step", outputs or {}, timedelta(seconds=timeout))
        dispatch = replace(
            run.position.dispatch,
            cleanup_ms=round(cleanup * 1000),
            memory_limit_bytes=memory,
            silence_limit_ms=None if silence is None else round(silence * 1000),
            deadline_s=deadline,
        )
        now = run.updated_at
        ends = now + timedelta(seconds=lease)
        held_lease = (
            None if run.position.lease is None else replace(run.position.lease, expires_at=ends)
        )
        kept = None if resume is None else checkpoint_of(clock, run, resume)
        run = at_position(run, dispatch=dispatch, checkpoint=kept, lease=held_lease)
        artifacts = folder_artifacts(self.folder, clock)
        return MemoryEngine(artifacts, clock, self.checkpoints.append).attempt(run)

    def run(
        self,
        handler: str,
        given: Any = None,
        held: Attempt | None = None,
        *,
        entry_actions: Sequence[str] = (),
        step_type: str = "step",
    ) -> Result:
        """Run an attempt to its end; `handler` is one of `tests/chaos/sandbox/handlers.py`."""
        held, step = held or self.held(), _step(handler, *entry_actions)
        step = replace(step, step_type=step_type, reuse=self.reuse)
        text = pydantic_core.to_json(given).decode()
        return self.sandbox.run(held, step, text, AttemptCalls(held))

    def run_inline(
        self, handler: str, given: Any = None, *, entry_actions: Sequence[str] = ()
    ) -> Result:
        """Run the same in this process."""
        runner, step = InlineRunner(Interrupts()), _step(handler, *entry_actions)
        return runner.run(self.held(), step, pydantic_core.to_json(given).decode())

    def begin(self, handler: str, held: Attempt, given: Any = None) -> Running:
        """Run an attempt in a thread."""
        return Running(self, handler, held, given)


class Running:
    """An attempt that runs in a thread."""

    def __init__(self, attempts: Attempts, handler: str, held: Attempt, given: Any) -> None:
        self._results: list[Result] = []
        self._thread = threading.Thread(
            target=lambda: self._results.append(attempts.run(handler, given, held))
        )
        self._thread.start()

    def result(self) -> Result:
        """Wait for the end, and return what it came to."""
        self._thread.join(60)
        (result,) = self._results
        return result
