"""The files of a run, for the remote worker that holds its lease.

The lease is checked before each call, and nothing holds it meanwhile: as with a handler's files,
a worker that loses it in between may still write, and the last writer wins.
"""

from __future__ import annotations

from typing import Final

from leasehold.domain.artifact_name import check_artifact_name, files_folder
from leasehold.errors import FileTooLargeError
from leasehold.services.engine import Engine
from leasehold.services.limits import FILE_BYTES
from leasehold.services.manage_lease import LeaseCredentials, check_lease
from leasehold.services.read_results import FilePage, list_files, open_file

_MAX_SHOWN: Final = 200


def put_file(engine: Engine, credentials: LeaseCredentials, name: str, data: bytes) -> None:
    """Store a file whole or not at all, in place of an earlier file.

    Raises:
        ArtifactNameError, FileTooLargeError, UnknownRunError, LeaseLostError: nothing was stored.
        StoreUnavailableError: it may be stored; the call may be repeated.
    """
    check_artifact_name(name)
    if len(data) > FILE_BYTES:
        remedy = "Store it elsewhere, and give its address in the output."
        raise _too_large(name, len(data), remedy)
    run = check_lease(engine, credentials)
    engine.artifacts.put(f"{files_folder(run)}/{name}", data)


def get_file(engine: Engine, credentials: LeaseCredentials, name: str) -> bytes:
    """Return a file of the run.

    Raises:
        UnknownFileError, and as `put_file`.
    """
    run = check_lease(engine, credentials)
    with open_file(engine, run.run_id, name) as content:
        if content.size > FILE_BYTES:
            remedy = f"Read it with GET /runs/{run.run_id}/files/NAME of serve_api."
            raise _too_large(name, content.size, remedy)
        return b"".join(content.blocks)


def list_leased_files(
    engine: Engine, credentials: LeaseCredentials, *, limit: int, page_token: str | None
) -> FilePage:
    """Return the files of the run, as `list_files`."""
    run = check_lease(engine, credentials)
    return list_files(engine, run.run_id, limit=limit, page_token=page_token)


def _too_large(name: str, size: int, remedy: str) -> FileTooLargeError:
    return FileTooLargeError(name=name[:_MAX_SHOWN], size=size, limit=FILE_BYTES, remedy=remedy)
