"""The lives of a run id: their marks, and the folders of what belongs to one.

A key that is given again after its run was purged begins another life of the same id. Each life has
a mark, which its trace and its deliveries carry, and a folder of that name for its artifacts: who
deletes what is left of one life finds nothing of the next.

A run that a version before this one began has no mark in its manifest, and its artifacts lie in the
folder of its id.
"""

from __future__ import annotations

import hashlib
from typing import Final, Protocol

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
        """The mark; empty: a version before this one began the run."""
        ...


def life_of(nonce: str) -> str:
    """Return the mark of the life that has this nonce; the nonce itself is for tasks alone."""
    return hashlib.sha256(nonce.encode()).hexdigest()[:8]


def files_folder(run: RunLife) -> str:
    """Return the folder of the files that handlers store."""
    return f"{_folder(run)}/{_FILES}"


def values_folder(run: RunLife) -> str:
    """Return the folder of large inputs and outputs, and of large results of calls that stay."""
    return f"{_folder(run)}/{_VALUES}"


def checkpoints_folder(run: RunLife) -> str:
    """Return the folder of all temporary files."""
    return f"{_folder(run)}/{_CHECKPOINTS}"


def step_folder(run: RunLife, step: str, trial: int) -> str:
    """Return the folder of the temporary files of one trial of a step.

    Each has its own, so that all of it can be deleted once it is over.
    """
    return f"{checkpoints_folder(run)}/{step}-{trial}"


def folder_of_life(run: RunLife) -> str | None:
    """Return the folder of all that belongs to a run, and to no other life of its id.

    None: a version before this one began the run.
    """
    return _folder(run) if run.life else None


def folder_of_id(run: RunLife) -> str:
    """Return the folder of all lives of a run id."""
    return f"runs/{run.run_id}"


def is_unmarked(run: RunLife, name: str) -> bool:
    """Return whether an artifact lies where versions before this one keep those of the run's id.

    Its name does not say which life it belongs to.
    """
    return any(name.startswith(f"{folder_of_id(run)}/{kind}/") for kind in _KINDS)


def is_own_artifact(run: RunLife, name: str) -> bool:
    """Return whether an artifact lies where the run keeps what is its own, whoever says so.

    A worker of a version before this one keeps it where that does.
    """
    is_marked = any(name.startswith(f"{_folder(run)}/{kind}/") for kind in _KINDS)
    return is_marked or is_unmarked(run, name)


def kind_folder(name: str) -> str:
    """Return the folder of all artifacts of the same run and kind as the one of this name."""
    parts = name.split("/")[:-1]
    return "/".join(parts[: 3 if parts[2:3] and parts[2] in _KINDS else 4])


def _folder(run: RunLife) -> str:
    return f"runs/{run.run_id}/{run.life}" if run.life else folder_of_id(run)
