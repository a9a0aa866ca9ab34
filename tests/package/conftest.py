from __future__ import annotations

import fcntl
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.package.clean_environment import CleanEnvironment, build, built_in, install


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Callable[..., Path]:
    """Makes a folder, or waits until another worker of this session has made it."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent

    def once(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = shared / name, shared / f"{name}-done"
        with (shared / f"{name}-lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return once


@pytest.fixture(scope="session")
def built(once: Callable[..., Path]) -> tuple[Path, Path]:
    """The sdist, and the wheel that was built from it."""
    return built_in(once("package-built", build))


@pytest.fixture(scope="session")
def bare(built: tuple[Path, Path], once: Callable[..., Path]) -> CleanEnvironment:
    """What `pip install leasehold` makes."""
    return CleanEnvironment(once("package-bare", partial(install, built[1])))


@pytest.fixture(scope="session")
def complete(built: tuple[Path, Path], once: Callable[..., Path]) -> CleanEnvironment:
    """What `pip install 'leasehold[functions,serve]' pytest mypy` makes."""
    extras, tools = ("functions", "serve"), ("pytest", "mypy")
    make = partial(install, built[1], extras=extras, tools=tools)
    return CleanEnvironment(once("package-complete", make))
