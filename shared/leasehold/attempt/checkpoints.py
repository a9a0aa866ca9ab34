"""The checkpoints of an attempt: what it has so far is kept, beside the run where it is large."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from leasehold.attempt.values import (
    PackedFile,
    discard,
    inline,
    may_refer_to,
    pack,
    put_packed,
)
from leasehold.domain import lifecycle
from leasehold.domain.artifact_name import step_folder
from leasehold.domain.checkpoint import Checkpoint
from leasehold.domain.json_text import check_json, not_json
from leasehold.domain.manifest import Manifest
from leasehold.domain.redaction import without_secrets
from leasehold.domain.stored import replace
from leasehold.errors import InvalidRequestError, LeaseLostError

if TYPE_CHECKING:  # as in `attempt/calls.py`
    from leasehold.attempt.attempt import Attempt

_LOG: Final = logging.getLogger("leasehold.attempt")


def keep_checkpoint(attempt: Attempt, iteration_count: int, phase: str, results: str) -> None:
    """Keep what the attempt has so far, JSON text; the lease is renewed with it.

    Large results become a file under a new name, before the run refers to it; the file that it
    takes the place of is deleted after that. So whenever a worker is killed, the run refers to
    a whole file.

    Raises:
        InvalidRequestError: it is not JSON, or goes back behind this attempt's last.
        LeaseLostError: the lease is not held any more; nothing was written. Or it ended with
            the attempt, whose dispatch deadline is over; then the checkpoint is kept.
        StoreUnavailableError: it could not be written while the lease was held.
    """
    attempt.check_unsettled()  # before a file is stored
    run, file = attempt.manifest, None
    try:
        check_json(results)
    except ValueError as error:
        raise not_json("partial_results", error) from None
    kept = inline(
        results, beside=replace(run, position=replace(run.position, checkpoint=None)).text_bytes
    )
    if kept is None:
        file = pack(run, attempt.engine.clock.new_id(), results)
        kept = file.value
    keep = partial(
        lifecycle.checkpoint,
        iteration_count=iteration_count,
        phase=phase and without_secrets(phase),
        partial_results=kept,
    )
    before = _refer_to(attempt, file, partial(attempt.save, keep, "The checkpoint is kept."))

    replaced = before.position.checkpoint and before.position.checkpoint.partial_results.ref
    is_ours = f"{replaced}".startswith(
        f"{step_folder(run, run.position.step, run.position.trial)}/"
    )
    if replaced and is_ours and replaced != kept.ref:  # that of a write that was repeated
        discard(attempt.engine.artifacts, replaced, attempt.engine.threads)


def reject_checkpoint(attempt: Attempt, rejected: Checkpoint, why: str) -> None:
    """Drop a checkpoint that cannot be used, and say so in the run; raises as `keep_checkpoint`."""
    _LOG.warning(
        "run %s, attempt %s of step %s begins at the beginning, its checkpoint is rejected: %s",
        *(attempt.name.run_id, attempt.name.attempt, attempt.name.step, why),
    )
    reject = partial(lifecycle.reject_checkpoint, rejected=rejected, why=why)
    attempt.persist(partial(attempt.save, reject))


def _refer_to(
    attempt: Attempt, file: PackedFile | None, record: Callable[[], Manifest]
) -> Manifest:
    """Store a file, have the run refer to it by `record`, and return what that returns.

    Where the run surely does not refer to it, it is deleted; else it goes with the step.
    """
    if file is None:
        return attempt.persist(record)
    attempt.note_temporary_file()  # it may be there from now on, and the run not know it
    engine, is_sent = attempt.engine, False
    try:
        attempt.insist(partial(put_packed, engine.artifacts, file))
        is_sent = True
        return attempt.persist(record)
    except BaseException as error:
        is_refused = isinstance(error, LeaseLostError | InvalidRequestError)
        run_id = attempt.name.run_id
        if not is_sent or (is_refused and not may_refer_to(engine.documents, run_id, file.name)):
            discard(engine.artifacts, file.name, engine.threads)
        raise
