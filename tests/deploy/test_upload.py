"""`gcloud builds submit` uploads the whole source, and nothing private."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.build_machine import ROOT, upload_rules

FOLDERS = (".ci", "bench", "docs", "examples", "pipelines", "shared", "tests", "tools")
MADE_BY_TOOLS = {"__pycache__", "leasehold.egg-info", "out"}


def test_all_of_the_source_is_uploaded() -> None:
    files = [path for name in FOLDERS for path in (ROOT / name).rglob("*") if path.is_file()]
    names = [path.relative_to(ROOT) for path in files if not MADE_BY_TOOLS & {*path.parts}]

    assert list(upload_rules().match_files(names)) == []
    hidden = {name.as_posix() for name in names if name.name.startswith(".")}
    assert hidden == {
        "shared/leasehold/deploy/bundle/files/.gcloudignore",
        "shared/leasehold/cli/new-project/.gitignore",
    }


def test_each_file_beside_the_folders_is_uploaded_too() -> None:
    needed = (".gcloudignore", ".gitignore", "Makefile", "README.md", "cloudbuild.yaml")

    assert list(upload_rules().match_files([*needed, "constraints.txt", "pyproject.toml"])) == []
    assert all((ROOT / name).is_file() for name in needed)


@pytest.mark.parametrize(
    "private",
    [
        *(".git/config", ".venv/bin/python", ".leasehold/leasehold.db", "build/bundle/main.py"),
        *(".env", "pipelines/.env", ".env.local", "prod.env", "tests/key.pem", "pipelines/a.key"),
        *("tools/__pycache__/a.pyc", "bench/out/serve.json"),
    ],
)
def test_what_is_private_or_made_here_is_not(private: str) -> None:
    assert upload_rules().match_file(Path(private))
