"""Where the temporary files of a step lie: its checkpoints, and results of calls made once.

Each trial of a step has a folder of its own, so that all of it can be deleted once it is over.
What users store lies elsewhere (`domain/artifact_name.py`).
"""

from __future__ import annotations


def checkpoints_folder(run_id: str) -> str:
    """Return the folder of all temporary files of a run."""
    return f"runs/{run_id}/checkpoints"


def step_folder(run_id: str, step: str, trial: int) -> str:
    """Return the folder of the temporary files of one trial of a step."""
    return f"{checkpoints_folder(run_id)}/{step}-{trial}"
