"""The hash of a project's sources: what it is of, and what does not change it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from leasehold.registry.pipelines import Catalog
from leasehold.worker.sandbox.forking.project_sources import ProjectSources
from tests.api.functions.cold_catalog import PIPELINES, STEPS

CATALOG = """
from datetime import timedelta
from leasehold import PipelineEntry, Registry, StepDispatchEntry
LIMITS = {"agent_timeout": timedelta(seconds=5), "dispatch_deadline": timedelta(seconds=15)}
STEPS = Registry("dispatch", [StepDispatchEntry(step_type="a", handler="app.steps:a", **LIMITS)])
PIPELINES = Registry("pipelines", [PipelineEntry(name="p", steps=("a",))])
"""
HASH = """
import sys
from leasehold.bootstrap import boot
bundle = boot()
print(bundle.engine.process.code_hash)
print(",".join(sorted({"app.steps", "beside", "lib.words"} & sys.modules.keys())), end="")
bundle.close()
"""


def write(folder: Path, **texts: str) -> Path:
    for name, text in {"app/catalog": CATALOG, "app/steps": "import lib.words\n", **texts}.items():
        file = folder / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def booted(folder: Path) -> tuple[str, str]:
    """Return the hash of a new process, and what it imported of the project's handlers."""
    done = subprocess.run(
        [sys.executable, "-c", HASH],
        cwd=folder,
        env={"LEASEHOLD_CATALOG": "app.catalog", "LEASEHOLD_STORE": "sqlite:///runs.db"},
        capture_output=True,
        text=True,
        check=True,
    )
    found, imported = done.stdout.split("\n")
    return found, imported


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The hash of a folder in which nothing is changed, and what was imported for it."""
    return booted(write(tmp_path_factory.mktemp("a longer name"), **{"lib/words": "WORDS = 1\n"}))


def test_two_folders_with_the_same_sources_have_the_same_hash(
    before: tuple[str, str], tmp_path: Path
) -> None:
    """Files that no handler can reach make no difference."""
    folder = write(tmp_path, beside="Y = 2\n", **{"lib/words": "WORDS = 1\n"})
    write(folder, **{"app/__pycache__/x": "", "app/.hidden/x": ""})
    (folder / "app" / "notes.txt").write_text("not code")

    one, imported = booted(folder)

    assert (one, len(one), imported) == (before[0], 16, "")


@pytest.mark.parametrize("changed", ["app/catalog", "app/steps", "app/never_imported", "lib/words"])
def test_a_change_of_what_handlers_may_import_changes_the_hash(
    before: tuple[str, str], tmp_path: Path, changed: str
) -> None:
    folder = write(tmp_path, **{"lib/words": "WORDS = 1\n"})

    with (folder / f"{changed}.py").open("a") as file:
        file.write("# more\n")

    assert booted(folder)[0] != before[0]


def test_only_the_project_is_hashed() -> None:
    sources = ProjectSources.of(Catalog(steps=STEPS, pipelines=PIPELINES), "no_such_module")

    assert "tests/api/functions/cold_steps.py" in sources.files
    assert not [name for name in sources.files if name.startswith(("leasehold", "json"))]
