"""Large results of calls made once: stored beside the run, which refers to them."""

from __future__ import annotations

from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import CallResult
from leasehold.services import temporary_files
from leasehold.services.temporary_files import PackedFile


def packed(run: Manifest, new_id: str, call: CallResult) -> tuple[CallResult, PackedFile]:
    """Return a call as a reference to its result, and the file that is to be stored for that.

    It goes with the step's temporary files; one that is kept lies with the values of the run.

    Args:
        run: the run, under its lease.
        new_id: so that no other file under the lease has the name.
        call: with its result.
    """
    file = temporary_files.pack(run, new_id, call.inline or "null")
    if call.keep:
        name = f"{run.current_step}-call-{run.fencing_token}-{new_id}{temporary_files.GZIP}"
        file = file._replace(name=f"runs/{run.run_id}/values/{name}")
    return call.with_(inline=None, ref=file.name, digest=file.digest), file
