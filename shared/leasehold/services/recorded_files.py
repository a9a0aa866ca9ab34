"""Whether a run refers to a file: asked before a file is deleted whose write was refused."""

from __future__ import annotations

from leasehold.domain.manifest import manifest_of, run_ref
from leasehold.errors import LeaseholdError
from leasehold.services.engine import Engine


def may_refer_to(engine: Engine, run_id: str, name: str) -> bool:
    """Return whether the run refers to a file, as far as can be known; True: it may.

    The answer to a write may be lost, and the next one refused because the lease was over.
    """
    try:
        found = engine.documents.get(run_ref(run_id))
        run = None if found is None else manifest_of(run_id, found.document)
    except LeaseholdError:
        return True
    if run is None:
        return False
    kept = run.checkpoint
    is_of_checkpoint = kept is not None and kept.partial_results.ref == name
    return is_of_checkpoint or any(call.value.ref == name for call in run.calls)
