"""What an attempt counts as whose worker is silent: judged by its last heartbeat."""

from __future__ import annotations

from leasehold.domain.change import Draft, is_unattended
from leasehold.domain.lease import is_past_deadline, is_silent
from leasehold.domain.lifecycle.termination import (
    GONE,
    deadline_error,
    expired,
    note_error,
    trace_termination,
)
from leasehold.domain.manifest_parts import Lease
from leasehold.domain.status import AttemptEnd, Termination


def lapse(
    draft: Draft, lease: Lease, *, holder_gone: bool = False, released: str = ""
) -> AttemptEnd:
    """Return what the attempt under `lease` counts as, now that the lease is ended.

    It is traced, and the run notes the error of a failure, or one silence more.

    Args:
        draft: the change so far.
        lease: the lease that is ended.
        holder_gone: whether the holder's process is known to be gone; its silence is explained.
        released: the sentence of a worker that ended it by itself; empty: it fell silent.
    """
    run = draft.run
    draft.owe_folder()  # it may have left a file there that no run knows of
    if is_past_deadline(run, lease):
        error = deadline_error(run)
        sentence = f"{GONE} {error.message}" if holder_gone else error.message
        trace_termination(draft, lease, Termination.DISPATCH_DEADLINE_EXCEEDED, sentence)
        note_error(draft, error)
        return AttemptEnd.FAILED
    sentence = GONE if holder_gone else released or expired(run, lease)
    trace_termination(draft, lease, Termination.LEASE_EXPIRED, sentence)
    is_explained = holder_gone or is_unattended(lease.expires_at, draft.now)
    silent = not is_explained and is_silent(run, draft.now, draft.rules, lease)
    draft.set_position(silences=run.position.silences + silent)
    return AttemptEnd.EXPIRED
