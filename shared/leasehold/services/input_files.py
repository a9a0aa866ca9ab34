"""The files that a run is started with: they are there before its first attempt begins."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress

from leasehold.domain.artifact_name import (
    RunLife,
    check_artifact_name,
    files_folder,
    folder_of_life,
)
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import InputFile
from leasehold.errors import (
    ArtifactNameError,
    ArtifactNotFoundError,
    InvalidRequestError,
    StoreUnavailableError,
    TooLargeError,
)
from leasehold.ports.artifacts import Artifacts
from leasehold.services.request_bounds import MAX_FILE_BYTES, MAX_INPUT_FILES


def checked_files(files: Mapping[str, bytes]) -> tuple[InputFile, ...]:
    """Return the files as a run notes them, sorted by name.

    Raises:
        InvalidRequestError: there are too many, or one is in the place of a folder of another.
        ArtifactNameError: a name cannot be that of a file.
        TooLargeError: together they are too large.
    """
    if not files:
        return ()
    if len(files) > MAX_INPUT_FILES:
        allowed = f"at most {MAX_INPUT_FILES} files"
        raise InvalidRequestError(field="files", value=len(files), allowed=allowed)
    for name, data in files.items():
        if not isinstance(name, str) or not isinstance(data, bytes):
            raise InvalidRequestError(field="files", value=str(name)[:200], allowed="bytes by name")
        check_artifact_name(name)
        if any(other.startswith(f"{name}/") for other in files):
            raise ArtifactNameError(name=name[:200], problem="another file needs it as a folder")
    if (size := sum(map(len, files.values()))) > MAX_FILE_BYTES:
        raise TooLargeError(what="files", size=size, limit=MAX_FILE_BYTES)
    return tuple(
        InputFile(name=name, digest=hashlib.sha256(data).hexdigest())
        for name, data in sorted(files.items())
    )


def store_files(artifacts: Artifacts, run: RunLife, files: Mapping[str, bytes]) -> None:
    """Store the files where the handlers of the run look for them.

    Raises:
        StoreUnavailableError: not all of them are stored.
    """
    for name, data in files.items():
        artifacts.put(f"{files_folder(run)}/{name}", data)


def copy_files(artifacts: Artifacts, run: Manifest, new: RunLife) -> None:
    """Give a run that is made of another one the files which that was started with.

    Raises:
        StoreUnavailableError: not all of them are copied.
    """
    for file in run.input_files:
        with suppress(ArtifactNotFoundError):  # a handler that needs it says so
            data = artifacts.get(f"{files_folder(run)}/{file.name}")
            artifacts.put(f"{files_folder(new)}/{file.name}", data)


def drop_artifacts(artifacts: Artifacts, new: RunLife) -> None:
    """Leave nothing behind of a run that was not begun: its life has its own folder."""
    with suppress(StoreUnavailableError):
        artifacts.delete(folder_of_life(new))
