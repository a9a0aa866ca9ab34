"""The port of an attempt: what it needs of the engine, which stands above it."""

from __future__ import annotations

from typing import Protocol

from leasehold.domain.change import Change, Transition
from leasehold.domain.dispatch import Rules
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.clock import Clock, Threads
from leasehold.ports.documents import Committed, Documents, KnownRun
from leasehold.ports.telemetry import Telemetry


class AttemptEngine(Protocol):
    """What an attempt needs of an engine; see `services/engine.py`."""

    @property
    def documents(self) -> Documents:
        """The store of runs."""
        ...

    @property
    def artifacts(self) -> Artifacts:
        """The store of files."""
        ...

    @property
    def clock(self) -> Clock:
        """The time of this machine."""
        ...

    @property
    def rules(self) -> Rules:
        """The rules for a write that dispatches nothing."""
        ...

    @property
    def threads(self) -> Threads:
        """The threads for calls in the background."""
        ...

    @property
    def telemetry(self) -> Telemetry:
        """The telemetry of the work."""
        ...

    def dispatch_rules(self) -> Rules:
        """Return the rules for a write that may dispatch."""
        ...

    def commit(
        self,
        run_id: str,
        transition: Transition,
        *,
        known: KnownRun | None = None,
        in_transaction: bool = False,
        within: float | None = None,
    ) -> Committed[Change]:
        """Apply a transition to the run in one commit."""
        ...

    def publish_or_leave(self, change: Change) -> Change:
        """Publish what a committed change owes; what cannot be published now the sweep does."""
        ...
