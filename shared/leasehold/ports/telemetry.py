"""The telemetry port: what OpenTelemetry gets of the work, where it is switched on.

Ends of attempts and of runs follow from committed changes. Only what no change says is passed on
beside them: how long a gate, a call and a send took, and that a worker lost its lease.
"""

from __future__ import annotations

from typing import Final

from leasehold.domain.artifact_name import RunLife
from leasehold.domain.change import Change
from leasehold.domain.delivery import Delivery
from leasehold.domain.manifest import Manifest
from leasehold.domain.traceparent import parent_in


class Telemetry:
    """Hears of the work. No call waits for anyone, and none raises.

    This one does nothing, but for a trace that a caller gave: that is passed on.
    """

    def begin(self, run: RunLife, given: str) -> str | None:
        """Return the `traceparent` that a run keeps; None: it keeps none.

        Args:
            run: the run that begins.
            given: the header of the caller; empty: it gave none.
        """
        _ = run
        parent = parent_in(given) if given else None
        return None if parent is None else str(parent)

    def changed(self, change: Change) -> None:
        """Hear of a change whose commit stands."""

    def gate_asked(self, run: Manifest, gate: str, verdict: str, seconds: float) -> None:
        """Hear that a gate was asked, what it made of the output, and how long that took."""

    def call_recorded(self, run: Manifest, key: str, seconds: float) -> None:
        """Hear that the result of a call was recorded, and how long the call took."""

    def sent(self, delivery: Delivery, outcome: str, seconds: float) -> None:
        """Hear of a send, or of an announcement that ended without one, and what came of it."""

    def lease_lost(self, run: Manifest) -> None:
        """Hear that a worker lost the lease that this run has, as far as it is known here."""

    def flush(self, within_s: float) -> None:
        """Send what there is; wait so long at most, and not at all while the receiver is away."""

    def close(self, within_s: float) -> None:
        """Do as `flush`, and send nothing any more."""


NO_TELEMETRY: Final = Telemetry()
