from __future__ import annotations

from pathlib import Path

import pytest

from tests.package.clean_environment import CleanEnvironment, build, install


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that was built from it."""
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="session")
def bare(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> CleanEnvironment:
    """What `pip install leasehold` makes."""
    return install(built[1], tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="session")
def complete(
    built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> CleanEnvironment:
    """What `pip install 'leasehold[functions,serve]' pytest mypy` makes."""
    folder = tmp_path_factory.mktemp("complete") / "venv"
    return install(built[1], folder, "functions", "serve", tools=("pytest", "mypy"))
