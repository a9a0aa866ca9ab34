"""The checkpoint that an attempt goes on from: only one that is whole, and of the same step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from leasehold.domain.artifact_name import is_own_artifact
from leasehold.domain.checkpoint import Checkpoint, KeptValue
from leasehold.domain.json_text import check_json
from leasehold.domain.manifest import Manifest
from leasehold.errors import ArtifactNameError, ArtifactNotFoundError, DamagedFileError

# Iterations: how far a step ever was, and what counts as progress.


#: Every store keeps a whole number of 64 bits.
MAX_ITERATIONS: Final = 2**63 - 1
#: Characters of the name of a phase.
MAX_PHASE_CHARS: Final = 128
#: So many phases of a step count as progress; further ones are kept, and do not.
MAX_PHASES_COUNTED: Final = 32
#: So many checkpoints of a step may turn out to be unusable; what it keeps then is no progress.
MAX_REJECTED_CHECKPOINTS: Final = 3


def furthest_of(manifest: Manifest) -> dict[str, int]:
    """Return the most iterations of each phase that the current step ever kept."""
    kept = manifest.position.checkpoint
    known = () if kept is None else kept.furthest
    return {reached.phase: reached.iteration_count for reached in known}


def is_further(furthest: Mapping[str, int], phase: str, iteration_count: int) -> bool:
    """Return whether a step with so many iterations of a phase is further than it ever was.

    Phases beyond a number never are: names that are made up each time would be progress forever.
    """
    is_counted = phase in furthest or len(furthest) < MAX_PHASES_COUNTED
    return is_counted and furthest.get(phase, -1) < iteration_count


def counts_as_progress(manifest: Manifest, phase: str, iteration_count: int) -> bool:
    """Return whether a checkpoint of the current step is progress: the step was never as far.

    How far it was goes with a checkpoint that is rejected, so that the step can begin again. Where
    that happens again and again, it would begin again forever.
    """
    rejected = manifest.steps[manifest.position.step].rejected or 0
    is_new = is_further(furthest_of(manifest), phase, iteration_count)
    return is_new and rejected <= MAX_REJECTED_CHECKPOINTS


_MAX_NUMBER_SHOWN_CHARS: Final = 40

#: Returns the text of a value; raises what `attempt.values.load` does.
Load = Callable[[KeptValue], str]


class KeptResults(NamedTuple):
    """The partial results of a checkpoint as JSON text, or why the checkpoint is rejected."""

    text: str = ""
    problem: str = ""


def read_results(run: Manifest, checkpoint: Checkpoint, load: Load) -> KeptResults:
    """Return what a checkpoint holds, if it is this step's and unchanged.

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
        return f"It has {str(checkpoint.iteration_count)[:_MAX_NUMBER_SHOWN_CHARS]} iterations."
    return ""


def may_read(run: Manifest, name: str) -> bool:
    """Return whether an artifact is the run's own, or that of a run that it goes on from."""
    return is_own_artifact(run, name) or any(
        name.startswith(f"runs/{other}/") for other in run.shares or ()
    )
