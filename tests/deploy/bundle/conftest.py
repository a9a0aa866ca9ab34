from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.bundle.deployed import Image
from tests.worlds.clean_environment import ROOT

CATALOG = """
from datetime import timedelta
from leasehold import PipelineEntry, Registry, StepDispatchEntry

STEPS = Registry("dispatch", [
    StepDispatchEntry(
        step_type="greet",
        handler="pipelines.steps:greet",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
    ),
])
PIPELINES = Registry("pipelines", [PipelineEntry(name="greeting", steps=("greet",))])
"""
PINNED_BY = ("constraints.txt", "hashes.txt")
STEPS = """
def greet(ctx, given):
    return given
"""


@pytest.fixture(scope="session")
def image(once: Callable[..., Path]) -> Image:
    """The bundle of this repository as it is deployed."""
    return Image(once("bundle-image", lambda folder: Image(folder).build()))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small repository: one entry, a package of one module, a catalog of one step."""
    root = tmp_path / "repository"
    files = {
        "functions/greet.py": "def greet(request): return 'hello'\n",
        "deployment.py": (ROOT / "deployment.py").read_text(),
        "shared/leasehold/__init__.py": "",
        "pipelines/__init__.py": "",
        "pipelines/catalog.py": CATALOG,
        "pipelines/steps.py": STEPS,
        "pipelines/words.json": "{}",
        **{name: (ROOT / name).read_text() for name in PINNED_BY},
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root
