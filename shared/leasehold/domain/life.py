"""The lives of a run id: their marks, and the folders of what belongs to one.

A key that is given again after its run was purged begins another life of the same id. Each life has
a mark, which its trace and its deliveries carry, and a folder of that name for its artifacts: who
deletes what is left of one life finds nothing of the next.
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
        """The mark."""
        ...


def life_of(nonce: str) -> str:
    """Return the mark of the life that has this nonce; the nonce itself is for tasks alone."""
    return hashlib.sha256(nonce.encode()).hexdigest()[:8]


def folder_of_life(run: RunLife) -> str:
    """Return the folder of all that belongs to a run, and to no other life of its id."""
    return f"runs/{run.run_id}/{run.life}"


def is_own_artifact(run: RunLife, name: str) -> bool:
    """Return whether an artifact lies where the run keeps what is its own, whoever says so."""
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
