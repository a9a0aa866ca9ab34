"""A worker is to end: its attempts may finish or checkpoint, and what is left is released.

The log says how many leases it held, and how each of them ended.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from leasehold.attempt.attempt import Attempt
from leasehold.attempt.settlement import ending_of
from leasehold.domain.manifest import Manifest
from leasehold.domain.result import Stopped
from leasehold.domain.status import Termination
from leasehold.domain.trace import TraceType
from leasehold.errors import LeaseholdError, UnknownRunError, UnreadableRunError
from leasehold.services.engine import Engine, publish_owed
from leasehold.services.read_runs import get_run
from leasehold.services.reporting import shutdown_report

#: How long handlers may take: Cloud Run kills 10 s after SIGTERM, and a release takes its time.
GRACE_S: Final = 7.0
#: Handlers that can be ended are, so long before: their attempts settle as all others.
_FORCE_BEFORE_S: Final = 0.5
#: However little time is left: a killed process is dead before another attempt begins.
_MIN_DEATH_S: Final = 0.2

_SHUT_DOWN: Final = "the instance was shut down; the lease was released."
_LIMITS: Final = (
    Termination.AGENT_TIMEOUT_EXCEEDED,
    Termination.SILENCE_LIMIT_EXCEEDED,
    Termination.MEMORY_LIMIT_EXCEEDED,
    Termination.DISPATCH_DEADLINE_EXCEEDED,
)
_CLOSED: Final = "The engine was closed; the lease was released."


def shut_down(engine: Engine, *, grace: float = GRACE_S, signal_name: str | None = None) -> None:
    """Stop all attempts of this worker; after `grace` seconds none of them holds a lease.

    An attempt that ends by itself settles by itself. Of one that does not, the lease is released,
    and its step is dispatched again at once; that uses up no retry. All are ended at once: a store
    or a queue that hangs for one run keeps no other waiting.

    Args:
        engine: the parts.
        grace: seconds.
        signal_name: what ends this process, such as SIGTERM; None: the engine is only closed.
    """
    over_at = engine.clock.monotonic() + grace
    force_at = over_at - min(_FORCE_BEFORE_S, grace / 2)
    detail = f"{signal_name}: {_SHUT_DOWN}" if signal_name else _CLOSED
    seen: set[str] = set()
    running = _running(engine, seen)
    engine.leases.stop_all(Termination.INSTANCE_SHUTDOWN, detail)
    if running or signal_name:
        now = engine.clock.now()
        engine.listeners.report(
            shutdown_report(signal_name, engine.process.holder, len(running), now)
        )
    while running:
        calls = iter(
            [
                partial(_report, engine, held, run, partial(_end, engine, held, force_at, over_at))
                for held, run in running
            ]
        )
        engine.threads.side_by_side(partial(next, calls, None), len(running))
        running = _running(engine, seen)


def _running(engine: Engine, seen: set[str]) -> list[tuple[Attempt, Manifest]]:
    """Return the attempts that were not seen before, and the run as each of them has it.

    They count as seen from now on.
    """
    known = [(held, held.manifest) for held in engine.leases.held_attempts()]
    new = [(h, run) for h, run in known if not h.is_settled and h.fence.lease_id not in seen]
    seen |= {held.fence.lease_id for held, _ in new}
    return new


def _end(engine: Engine, held: Attempt, force_at: float, over_at: float) -> str:
    """Wait for the end of an attempt, and bring it about where it does not come in time.

    Returns:
        Why it could not be released; then its alarm is the end of its lease, and the sweep takes
        it up. Empty: it has ended.
    """
    monotonic = engine.clock.monotonic
    if held.wait_settled(max(0.0, force_at - monotonic())):
        return ""
    held.stop.force()
    if held.wait_settled(max(_MIN_DEATH_S, over_at - monotonic())):
        return ""
    stopped = Stopped(Termination.INSTANCE_SHUTDOWN)
    try:
        release = ending_of(held, stopped)
        settled = held.settle(release)
        publish_owed(engine, settled.answer, settled.snapshot)
    except LeaseholdError as error:
        return str(error)
    return ""


def _report(engine: Engine, held: Attempt, begun: Manifest, end: Callable[[], str]) -> None:
    """End an attempt, and report how its lease ended."""
    problem = end()
    ending = _ending(held)
    words = f"{ending.replace('_', ' ')}{f': {problem}' if problem else ''}"
    attempt = f"attempt {begun.position.attempt} of step {begun.position.step}"
    engine.listeners.report(
        {
            "severity": "WARNING" if problem else "INFO",
            "message": f"run {begun.run_id}, {attempt}: {words}",
            "event": "LEASE_AT_SHUTDOWN",
            "runId": begun.run_id,
            "step": begun.position.step,
            "attempt": begun.position.attempt,
            "ending": ending,
            "outcome": None if held.settlement is None else held.settlement.outcome.word,
            "at": engine.clock.now().isoformat(),
        }
    )


def _ending(held: Attempt) -> str:
    """Return how the lease ended, in a word that alerts can count."""
    change = held.settlement
    if change is None:
        return "lost" if held.is_settled else "not_released"
    if any(e.type is TraceType.STEP_ERROR or e.reason in _LIMITS for e in change.events):
        return "failed"
    if all(event.type is not TraceType.STEP_TERMINATED for event in change.events):
        return "finished"
    if held.is_killed:
        return "killed_and_released"
    kept = change.manifest.position.checkpoint
    is_kept = kept is not None and kept.fencing_token == held.fence.fencing_token
    return "checkpointed_and_released" if is_kept else "released"


# Attempts of this worker whose runs were cancelled by another process.


def stop_cancelled(engine: Engine) -> None:
    """Stop the handlers whose runs were cancelled; their next renewals would tell them later.

    A run that cannot be read keeps no other from being looked at.

    Raises:
        StoreUnavailableError: the store could not be asked.
    """
    for held in engine.leases.held_attempts():
        run_id = held.manifest.run_id
        if not held.is_settled and _is_cancelled(engine, run_id):
            engine.leases.stop_run(run_id, Termination.CANCELLED)


def _is_cancelled(engine: Engine, run_id: str) -> bool:
    try:
        return get_run(engine, run_id).cancelled
    except UnknownRunError:  # only an ended run is purged
        return True
    except UnreadableRunError:  # the renewal says so
        return False
