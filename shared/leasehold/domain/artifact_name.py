"""The names of artifacts: what any store of them can keep, and the folders of one run.

No name can lead a store astray. A key that is given again after its run was purged begins another
*life* of the same id. Each life has a mark, which its trace and its deliveries carry, and a folder
of that name for its artifacts: who deletes what is left of one life finds nothing of the next.
"""

from __future__ import annotations

from typing import Final, Protocol

from leasehold.errors import ArtifactNameError

#: The folder of writes that are not finished, where a store has one.
UNFINISHED: Final = ".unfinished"
#: What the name of the file begins with by which a folder says which store it is.
MARK: Final = ".store-"

_MAX_PART_BYTES: Final = 200
_MAX_NAME_BYTES: Final = 1000


def check_artifact_name(name: str) -> None:
    """Pass a relative path of plain parts.

    Raises:
        ArtifactNameError: it is not one, or too long.
    """
    problem = _problem(name)
    if problem is not None:
        raise ArtifactNameError(name=name[:_MAX_PART_BYTES], problem=problem)


def is_artifact_name(name: str) -> bool:
    """Return whether `check_artifact_name` passes the name."""
    return _problem(name) is None


def _problem(name: str) -> str | None:
    """Return why the name is refused, or None."""
    if any(_is_no_text(character) for character in name):
        return "it holds a control character, a backslash or a lone surrogate"
    if not 1 <= len(name.encode()) <= _MAX_NAME_BYTES:
        return f"it must have 1 to {_MAX_NAME_BYTES} bytes"
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "it is not a relative path of plain parts"
    if any(len(part.encode()) > _MAX_PART_BYTES for part in parts):
        return f"a part of it has over {_MAX_PART_BYTES} bytes"
    if parts[0] == UNFINISHED or name.startswith(MARK):
        return f"{UNFINISHED} is kept for unfinished writes, {MARK}… for the mark of the store"
    return None


def _is_no_text(character: str) -> bool:
    return character < " " or character in "\x7f\\" or "\ud800" <= character <= "\udfff"


#: The kinds of artifacts, a folder each: what handlers store, what the engine keeps of inputs,
#: outputs and calls, and temporary files: checkpoints, and results of calls of the current step.
_FILES: Final = "files"
_VALUES: Final = "values"
_CHECKPOINTS: Final = "checkpoints"
_KINDS: Final = (_FILES, _VALUES, _CHECKPOINTS)


class RunLife(Protocol):
    """One life of a run id: a manifest, or what a run is started with."""

    @property
    def run_id(self) -> str:
        """The id."""
        ...

    @property
    def life(self) -> str:
        """The mark."""
        ...


def folder_of_life(run: RunLife) -> str:
    """Return the folder of all that belongs to a run, and to no other life of its id."""
    return f"runs/{run.run_id}/{run.life}"


def is_own_artifact(run: RunLife, name: str) -> bool:
    """Return whether an artifact lies in the run's own folder."""
    return any(name.startswith(f"{folder_of_life(run)}/{kind}/") for kind in _KINDS)


def files_folder(run: RunLife) -> str:
    """Return the folder of the files that handlers store."""
    return f"{folder_of_life(run)}/{_FILES}"


def values_folder(run: RunLife) -> str:
    """Return the folder of large inputs and outputs, and of large results of calls that stay."""
    return f"{folder_of_life(run)}/{_VALUES}"


def checkpoints_folder(run: RunLife) -> str:
    """Return the folder of all temporary files."""
    return f"{folder_of_life(run)}/{_CHECKPOINTS}"


def step_folder(run: RunLife, step: str, trial: int) -> str:
    """Return the folder of the temporary files of one trial of a step.

    Each has its own, so that all of it can be deleted once it is over.
    """
    return f"{checkpoints_folder(run)}/{step}-{trial}"


def kind_folder(name: str) -> str:
    """Return the folder of all artifacts of the same run and kind as the one of this name."""
    return "/".join(name.split("/")[:-1][:4])
