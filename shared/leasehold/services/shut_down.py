"""A worker is to end: its attempts may finish or checkpoint, and what is left is released."""

from __future__ import annotations

from functools import partial
from typing import Final

from leasehold.domain.result import Stopped
from leasehold.domain.status import Termination
from leasehold.errors import LeaseholdError
from leasehold.ports.lease_keeper import HeldAttempt
from leasehold.services.attempt import ending_of
from leasehold.services.engine import Engine, publish_owed

#: How long handlers may take: Cloud Run kills 10 s after SIGTERM, and a release takes its time.
GRACE_S: Final = 7.0
#: Handlers that can be ended are, so long before: their attempts settle as all others.
_BY_FORCE_S: Final = 0.5


def shut_down(engine: Engine, *, grace: float = GRACE_S) -> None:
    """Stop all attempts of this worker; after `grace` seconds none of them holds a lease.

    An attempt that ends by itself settles by itself. Of one that does not, the lease is released,
    and its step is dispatched again at once; that uses up no retry. All are ended at once: a store
    or a queue that hangs for one run keeps no other waiting.
    """
    over_at = engine.clock.monotonic() + grace
    force_at = over_at - min(_BY_FORCE_S, grace / 2)
    engine.leases.stop_all(Termination.INSTANCE_SHUTDOWN)
    seen: set[str] = set()
    while running := [held for held in engine.leases.held_attempts() if _is_new(held, seen)]:
        seen |= {held.fence.lease_id for held in running}
        calls = iter([partial(_end, engine, held, force_at, over_at) for held in running])
        engine.side_by_side(partial(next, calls, None), len(running))


def _is_new(held: HeldAttempt, seen: set[str]) -> bool:
    return not held.is_settled and held.fence.lease_id not in seen


def _end(engine: Engine, held: HeldAttempt, force_at: float, over_at: float) -> None:
    """Wait for the end of an attempt, and bring it about where it does not come in time."""
    monotonic = engine.clock.monotonic
    if held.wait_settled(max(0.0, force_at - monotonic())):
        return
    held.end_handler()
    if held.wait_settled(max(0.0, over_at - monotonic())):
        return
    stopped = Stopped(Termination.INSTANCE_SHUTDOWN)
    try:
        release = ending_of(engine, held, stopped)
        publish_owed(engine, held.settle(release).answer)
    except LeaseholdError as error:  # its alarm is the end of the lease: the sweep takes it up
        engine.log(f"the lease of run {held.manifest.run_id} is not released: {error}")
