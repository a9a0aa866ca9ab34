"""Scenes of agents, played to their end: the module `scenes` of a library has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from leasehold.domain.manifest import Manifest
from leasehold.testing import InProcessEngine


def played(engine: InProcessEngine, scene: str, folder: Path, **given: object) -> Manifest:
    """Play a scene until it has ended."""
    run = engine.start("scene", {"scene": scene, "folder": str(folder), **given})
    return engine.run_until_settled(run.run_id)


def output_of(run: Manifest) -> Any:
    """Return what a run came to."""
    return json.loads(run.steps[run.plan[0]].output or "null")
