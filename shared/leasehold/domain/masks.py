"""What of a run is its worker's alone: lease ids, which open it, and nonces.

Whoever has a lease's id and its fencing token can complete the step in the worker's place. Stores
keep the ids, and a worker gets its own; whoever only reads a run gets this presentation of it.
The token is a counter, and opens nothing by itself.
"""

from __future__ import annotations

from typing import Final

from leasehold.domain.manifest import Manifest
from leasehold.domain.trace import TraceEvent

#: So much of a secret tells two of them apart, and leaves more than enough to guess.
_VISIBLE: Final = 4
_LONG: Final = 16

#: Facts of trace events that are secrets.
_SECRETS: Final = ("leaseId", "nonce")


def masked(secret: str) -> str:
    """Return what people see of a secret: its first letters; nothing of a short one."""
    return f"{secret[:_VISIBLE]}…" if len(secret) >= _LONG else "…"


def masked_run(run: Manifest) -> Manifest:
    """Return the run as everybody may see it."""
    lease, last = run.position.lease, run.position.last_settlement
    return run.at(
        lease=lease and lease.with_(lease_id=masked(lease.lease_id)),
        last_settlement=last and last.with_(lease_id=masked(last.lease_id)),
        dispatch=run.position.dispatch.with_(nonce=masked(run.position.dispatch.nonce)),
    )


def masked_event(event: TraceEvent) -> TraceEvent:
    """Return the event as everybody may see it."""
    facts = event.model_dump(exclude_none=True)
    secrets = {name: masked(str(facts[name])) for name in _SECRETS if name in facts}
    return TraceEvent.model_validate({**facts, **secrets}) if secrets else event
