from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.worlds.clean_environment import CleanEnvironment, build, built_in, install, unpack


@pytest.fixture(scope="session")
def built(once: Callable[..., Path]) -> tuple[Path, Path]:
    """The sdist, and the wheel that was built from it."""
    return built_in(once("package-built", build))


@pytest.fixture(scope="session")
def unpacked(built: tuple[Path, Path], once: Callable[..., Path]) -> Path:
    """The wheel, installed."""
    return once("package-unpacked", partial(unpack, built[1]))


@pytest.fixture(scope="session")
def bare(unpacked: Path, once: Callable[..., Path]) -> CleanEnvironment:
    """What `pip install leasehold` makes."""
    return CleanEnvironment(once("package-bare", partial(install, unpacked)))


@pytest.fixture(scope="session")
def complete(unpacked: Path, once: Callable[..., Path]) -> CleanEnvironment:
    """What `pip install 'leasehold[functions,serve]' pytest mypy` makes."""
    extras, tools = ("functions", "serve"), ("pytest", "mypy")
    make = partial(install, unpacked, extras=extras, tools=tools)
    return CleanEnvironment(once("package-complete", make))


@pytest.fixture(scope="session")
def deploying(unpacked: Path, once: Callable[..., Path]) -> CleanEnvironment:
    """What `pip install 'leasehold[deploy]'` makes."""
    make = partial(install, unpacked, extras=("deploy",))
    return CleanEnvironment(once("package-deploying", make))
