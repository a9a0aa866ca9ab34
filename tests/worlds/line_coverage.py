"""Measures which lines of the rules the tests run: `-p tests.worlds.line_coverage`.

Each line has a probe that takes itself out as soon as the line runs. That still costs a third of
the CPU of pure code, so adapters and servers, which are most of what runs, are not measured. Only
the processes of the tests are measured, and not the ones that they start.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from slipcover import Slipcover, merge_coverage

_ROOT: Final = Path(__file__).parents[2]
#: The packages that decide, and neither wait nor store.
_RULES: Final = ("budgets", "domain", "registry")
_SOURCES: Final = [str(_ROOT / "shared" / "leasehold" / rules) for rules in _RULES]
_PROBES: Final = Slipcover(immediate=True, source=_SOURCES)
_MODULES: Final = tuple(f"leasehold.{rules}" for rules in _RULES)
#: So many modules with the least coverage are shown.
_LEAST: Final = 5
_MEASURED: Final = pytest.StashKey[dict[str, Any]]()


class _Loader(SourceFileLoader):
    """Loads a module with a probe in each line."""

    def exec_module(self, module: ModuleType) -> None:
        code = self.get_code(module.__name__)
        assert code is not None
        exec(_PROBES.instrument(code), module.__dict__)  # noqa: S102 - as the loader itself does


class _Finder(MetaPathFinder):
    """Finds the modules of the rules."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(_MODULES):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


assert "leasehold" not in sys.modules, "it was imported before its lines could be measured"
sys.meta_path.insert(0, _Finder())


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "list all lines of the rules that did not run, and want no share of them"
    parser.addoption("--missing-lines", action="store_true", help=words)


@pytest.hookimpl(tryfirst=True)  # before the folder is deleted
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave to the first process what a fork has run; there, fail if too few lines ran."""
    config: Any = session.config
    folder: Path = config._tmp_path_factory.getbasetemp()  # noqa: SLF001
    if hasattr(config, "workerinput"):
        _PROBES.source = None  # the first process looks for modules that nobody imported
        folder.with_suffix(".lines").write_text(json.dumps(_PROBES.get_coverage()))
        return
    measured = _PROBES.get_coverage()
    for part in folder.glob("*.lines"):
        merge_coverage(measured, json.loads(part.read_text()))
    config.stash[_MEASURED] = measured
    if not config.option.missing_lines and _share(measured) < _floor():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Report the share of the lines that ran, and the modules with the least of it."""
    measured = config.stash[_MEASURED]
    wanted = "" if config.option.missing_lines else f", and {_floor()} % have to"
    terminalreporter.write_line(f"{_share(measured):.1f} % of the lines of the rules ran{wanted}")
    by_share = sorted(measured["files"].items(), key=lambda item: _share(item[1]))
    shown = by_share if config.option.missing_lines else by_share[:_LEAST]
    for file, found in shown:
        if missing := found["missing_lines"]:
            lines = f": {', '.join(map(str, missing))}" if config.option.missing_lines else ""
            terminalreporter.write_line(f"{_share(found):6.1f} % of {file}{lines}")


def _share(found: dict[str, Any]) -> float:
    return float(found["summary"]["percent_covered"])


def _floor() -> float:
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    return float(settings["tool"]["slipcover"]["fail-under"])
