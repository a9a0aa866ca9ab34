"""An engine for the attempts of a test: what is written under a lease stays with the test."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pydantic_core

from leasehold.attempt.attempt import Attempt
from leasehold.attempt.outage import pause
from leasehold.attempt.values import load
from leasehold.bootstrap import no_documents
from leasehold.bounded_calls import side_by_side
from leasehold.domain.change import Change, Transition
from leasehold.domain.dispatch import Rules
from leasehold.domain.lease import fence_of
from leasehold.domain.manifest import Manifest, run_ref, to_document
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Committed, KnownRun, Snapshot
from leasehold.ports.threads import Threads
from leasehold.worker.context import IncrementalState


class MemoryEngine:
    """What an attempt needs of an engine (`ports/attempt_engine.py`), without a store of runs.

    Args:
        artifacts: the files of runs.
        clock: the time.
        on_checkpoint: given each checkpoint, as the next attempt would find it.
        on_call: given the key and the result of each call made once.
    """

    def __init__(
        self,
        artifacts: Artifacts,
        clock: Clock,
        on_checkpoint: Callable[[IncrementalState], None],
        on_call: Callable[[str, Any], None] = lambda _key, _result: None,
    ) -> None:
        self.documents = no_documents(clock)
        self.artifacts = artifacts
        self.clock = clock
        self.rules = Rules(settings_for=lambda _: None)
        self.threads = Threads(side_by_side, _at_once, partial(pause, clock))
        self._on_checkpoint = on_checkpoint
        self._on_call = on_call

    def attempt(self, run: Manifest) -> Attempt:
        """Return an attempt of the run's current step, under the lease that the run has."""
        clock = self.clock
        found = Snapshot(run_ref(run.run_id), to_document(run), 1, clock.now(), clock.monotonic())
        return Attempt(self, KnownRun(run, found), fence_of(run), patience=0.0)

    def dispatch_rules(self) -> Rules:
        """Return the rules."""
        return self.rules

    def commit(
        self,
        run_id: str,
        transition: Transition,
        *,
        known: KnownRun | None = None,
        in_transaction: bool = False,  # noqa: ARG002 - as an engine has it
        within: float | None = None,  # noqa: ARG002 - as above
    ) -> Committed[Change]:
        """Tell the test what is new in the run; its lease ends when it would have ended."""
        assert known is not None, run_id  # noqa: S101 - nobody else changes the run
        run, snapshot = known
        change = transition(run, run.updated_at)
        after = change.manifest
        if after.position.lease is not None:
            after = after.at(lease=run.position.lease)
        self._tell(run, after)
        return Committed(change._replace(manifest=after), snapshot)

    def publish_or_leave(self, change: Change) -> Change:
        """Do nothing: nobody is to hear of it."""
        return change

    def _tell(self, before: Manifest, after: Manifest) -> None:
        kept = after.position.checkpoint
        if kept is not None and kept != before.position.checkpoint:
            found = pydantic_core.from_json(load(self.artifacts, kept.partial_results))
            self._on_checkpoint(IncrementalState(kept.phase, kept.iteration_count, found))
        for call in after.position.calls:
            if call not in before.position.calls:
                found = pydantic_core.from_json(load(self.artifacts, call.value))
                self._on_call(call.key, found)


def _at_once(call: Callable[[], object], _patience_s: float | None) -> bool:
    call()
    return True
