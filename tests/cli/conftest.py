from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.bootstrap import boot
from leasehold.services.engine import Engine
from tests.worlds.catalogs import shop
from tests.worlds.engines import marked
from tests.worlds.runs_api import runs_api
from tests.worlds.shell import Shell

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A folder with nothing in it, no setting, and this repository's own catalog out of reach."""
    monkeypatch.setattr(sys, "path", [path for path in sys.path if Path(path) != ROOT])
    for name in [name for name in sys.modules if name.partition(".")[0] == "pipelines"]:
        monkeypatch.delitem(sys.modules, name)
    shell = Shell(tmp_path)
    (tmp_path / "shop.py").unlink()
    del shell.settings["LEASEHOLD_CATALOG"]
    return shell


@pytest.fixture
def engine(request: pytest.FixtureRequest, shell: Shell) -> Iterator[Engine]:
    """The store that the commands open, opened beside them."""
    catalog, settings = marked(request, shop)
    data = shell.folder / ".leasehold"
    environ = {
        "LEASEHOLD_STORE": f"sqlite:///{data}/leasehold.db",
        "LEASEHOLD_ARTIFACTS": f"file://{data}/artifacts",
        **settings,
    }
    with closing(boot(environ, catalog=catalog)) as bundle:
        yield bundle.engine


@pytest.fixture
def losing() -> list[str]:
    """The paths to which the server loses its next answer."""
    return []


@pytest.fixture
def server(engine: Engine, losing: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The runs API over the same store, which can import the handlers; its address."""
    monkeypatch.setitem(sys.modules, "shop", shop)
    with runs_api(engine, losing) as url:
        yield url
