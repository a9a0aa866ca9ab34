"""What an attempt is to go on from: whole, and its own step's, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from leasehold.domain.artifact_name import is_own_artifact
from leasehold.domain.iterations import MAX_ITERATIONS
from leasehold.domain.json_text import check_json
from leasehold.domain.kept_work import Checkpoint, KeptValue
from leasehold.domain.manifest import Manifest
from leasehold.errors import ArtifactNameError, ArtifactNotFoundError, DamagedFileError

_MAX_SHOWN: Final = 40

#: Returns the text of a value; raises what `attempt.values.load` does.
Load = Callable[[KeptValue], str]


class KeptResults(NamedTuple):
    """The partial results of a checkpoint as JSON text, or why the checkpoint is rejected."""

    text: str = ""
    problem: str = ""


def read_results(run: Manifest, checkpoint: Checkpoint, load: Load) -> KeptResults:
    """Return what a checkpoint holds, if it is this step's and no one has changed it.

    Args:
        run: the run.
        checkpoint: its checkpoint.
        load: reads a value.

    Raises:
        StoreUnavailableError: it cannot be read now, which says nothing of what it is.
    """
    if problem := _foreign(run, checkpoint):
        return KeptResults(problem=problem)
    try:
        text = load(checkpoint.partial_results)
        check_json(text)
    except (ArtifactNotFoundError, ArtifactNameError, DamagedFileError) as error:
        return KeptResults(problem=error.message)
    except ValueError as error:
        return KeptResults(problem=f"It is not JSON text: {error}.")
    return KeptResults(text)


def _foreign(run: Manifest, checkpoint: Checkpoint) -> str:
    """Return why the checkpoint is not of the current step; empty: it is."""
    if (checkpoint.step, checkpoint.trial) != (run.position.step, run.position.trial):
        return f"It is of step {checkpoint.step}, trial {checkpoint.trial}."
    ref = checkpoint.ref
    if ref is not None and not may_read(run, ref):
        return f"It refers to {ref!r}, which does not belong to the run."
    if ref is None and checkpoint.inline is None:
        return "It holds nothing."
    if not 0 <= checkpoint.iteration_count <= MAX_ITERATIONS:
        return f"It has {str(checkpoint.iteration_count)[:_MAX_SHOWN]} iterations."
    return ""


def may_read(run: Manifest, name: str) -> bool:
    """Return whether an artifact is the run's own, or that of a run that it goes on from."""
    return is_own_artifact(run, name) or any(
        name.startswith(f"runs/{other}/") for other in run.shares or ()
    )
