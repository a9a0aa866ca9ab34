"""The hash of a project's sources: what it is of, and what does not change it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from leasehold.registry.pipelines import Catalog
from leasehold.worker.sandbox.forking.project_sources import NO_SOURCES, ProjectSources
from leasehold.worker.sandbox.forking.source_finder import SourceText, dump, load
from tests.worlds.catalogs.cold import PIPELINES, STEPS

CATALOG = """
from datetime import timedelta
from leasehold import PipelineEntry, Registry, StepDispatchEntry
LIMITS = {"agent_timeout": timedelta(seconds=5), "dispatch_deadline": timedelta(seconds=15)}
STEPS = Registry("dispatch", [StepDispatchEntry(step_type="a", handler="app.steps:a", **LIMITS)])
PIPELINES = Registry("pipelines", [PipelineEntry(name="p", steps=("a",))])
"""
#: What the catalog's package reaches; of `late`, only once a function is called.
REACHED = {
    "lib/words": "def words():\n    from late import WORDS\n    return WORDS\n",
    "late": "WORDS = 1\n",
}
#: Each folder has a process that imported nothing of a project before.
HASH = """
import os, sys
from leasehold.bootstrap import boot
for folder in sys.argv[1:]:
    if not os.fork():
        os.chdir(folder)
        bundle = boot()
        imported = sorted({"app.steps", "beside", "lib.words", "late"} & sys.modules.keys())
        print(bundle.engine.process.code_hash, *imported, flush=True)
        bundle.close()
        os._exit(0)
    if os.wait()[1]:
        sys.exit(1)
"""
CHANGES = ("app/catalog", "app/steps", "app/never_imported", "late")


def write(folder: Path, **texts: str) -> Path:
    for name, text in {"app/catalog": CATALOG, "app/steps": "import lib.words\n", **texts}.items():
        file = folder / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def plain(folder: Path) -> Path:
    return write(folder, **REACHED)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a process of each folder says: its hash, and what it imported of the handlers."""
    folder = tmp_path_factory.mktemp("projects")
    folders = {"before": plain(folder / "a longer name"), "same": plain(folder / "same")}
    write(folders["same"], beside="Y = 2\n", **{"app/__pycache__/x": "", "app/.hidden/x": ""})
    (folders["same"] / "app" / "notes.txt").write_text("not code")
    for number, changed in enumerate(CHANGES):
        folders[changed] = plain(folder / str(number))
        with (folders[changed] / f"{changed}.py").open("a") as file:
            file.write("# more\n")
    done = subprocess.run(
        [sys.executable, "-c", HASH, *map(str, folders.values())],
        env={"LEASEHOLD_CATALOG": "app.catalog", "LEASEHOLD_STORE": "sqlite:///runs.db"},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip(folders, done.stdout.splitlines(), strict=True))


def test_two_folders_with_the_same_sources_have_the_same_hash(found: dict[str, str]) -> None:
    """Files that no handler can reach make no difference, and nothing is imported for it."""
    assert found["same"] == found["before"]
    assert len(found["same"]) == 16


@pytest.mark.parametrize("changed", CHANGES)
def test_a_change_of_what_handlers_may_import_changes_the_hash(
    found: dict[str, str], changed: str
) -> None:
    assert len(found[changed]) == 16
    assert found[changed] != found["before"]


def test_children_read_each_file_as_the_worker_has_read_it(tmp_path: Path) -> None:
    texts = {
        "a.py": b"A = 1\n",
        "b/__init__.py": b"",
        "b/c.py": "# -*- latin-1 -*- é\n".encode("latin-1"),
    }
    files = {name: SourceText(str(tmp_path / name), text, 7) for name, text in texts.items()}

    assert load(dump(files)) == files


def test_a_file_that_is_not_python_is_said_with_the_line(tmp_path: Path) -> None:
    texts = {"app/a.py": b"A = 1\n", "app/b.py": b"\nif:\n", "app/c.py": b"C = 'a\0b'\n"}
    files = {name: SourceText(str(tmp_path / name), text, 7) for name, text in texts.items()}

    lines = list(replace(NO_SOURCES, files=files).unreadable())

    assert len(lines) == 2
    assert lines[0] == "app/b.py:2 is not Python (invalid syntax): the steps that import it block"
    assert lines[1].startswith("app/c.py")


def test_only_the_project_is_hashed() -> None:
    sources = ProjectSources.of(Catalog(steps=STEPS, pipelines=PIPELINES), "no_such_module")

    assert "tests/worlds/catalogs/cold_steps.py" in sources.files
    assert not [name for name in sources.files if name.startswith(("leasehold", "json"))]
