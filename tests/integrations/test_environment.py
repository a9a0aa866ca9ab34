"""The environment in which an integration is tested is one that a user can have."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import leasehold

FOLDER = Path(__file__).parent / Path(sys.prefix).name
INTEGRATION = Path(leasehold.__file__).parent / "integrations" / FOLDER.name


def test_no_requirement_of_leasehold_or_of_the_library_is_broken() -> None:
    """Else tests would pass with versions that no installation of both can have."""
    lines = (FOLDER / "requirements.txt").read_text().splitlines()
    needed = _all_needed([Requirement(line.partition(" #")[0]) for line in lines])

    assert not [
        f"{each}, and {_version(each.name)} is installed"
        for each in needed
        if not each.specifier.contains(_version(each.name), prereleases=True)
    ]


def test_the_extra_brings_all_that_the_integration_imports() -> None:
    """More is installed here: what a user has is the extra alone."""
    extra = Requirement(f"leasehold[{FOLDER.name.replace('_', '-')}]")
    needed = {canonicalize_name(each.name) for each in _all_needed([extra])}
    brought = {name for each in needed for name in _packages_of(each)}

    modules = [*INTEGRATION.glob("*.py"), *INTEGRATION.parent.glob("*.py")]
    imported = {name for module in modules for name in _imported_by(module)}

    assert {name for name in imported if not _is_there(name, brought)} == set()


@pytest.mark.skipif("integrations-newest" in sys.prefix, reason="it has the newest versions")
def test_what_is_installed_is_what_is_pinned() -> None:
    pins = (FOLDER / "constraints.txt").read_text().splitlines()

    installed = [f"{pin.partition('==')[0]}=={_version(pin.partition('==')[0])}" for pin in pins]

    assert installed == pins


def _all_needed(wanted: list[Requirement]) -> list[Requirement]:
    """Return these requirements and those that they have in turn."""
    seen: set[tuple[str, str]] = set()
    needed = []
    while wanted:
        needed.append(requirement := wanted.pop())
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, extra))
            wanted += [
                each
                for each in map(Requirement, requires(name) or ())
                if each.marker is None or each.marker.evaluate({"extra": extra})
            ]
    return needed


def _packages_of(name: str) -> set[str]:
    """Return the packages that a distribution has, as paths: `google/adk`."""
    record = distribution(name).read_text("RECORD") or ""
    paths = (line.partition(",")[0] for line in record.splitlines())
    return {part for path in paths for part in (path.split("/")[0], "/".join(path.split("/")[:2]))}


def _imported_by(module: Path) -> Iterator[str]:
    """Yield the names of what a module imports, as paths, but for what it has from here."""
    for node in ast.walk(ast.parse(module.read_text())):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            first, _, rest = name.partition(".")
            if first not in {*sys.stdlib_module_names, "leasehold"}:
                yield f"{first}/{rest.partition('.')[0]}" if first == "google" else first


def _is_there(name: str, brought: set[str]) -> bool:
    return not {name, f"{name}.py"}.isdisjoint(brought)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "0"
