"""The environment in which an integration is tested is one that a user can have."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FOLDER = Path(__file__).parent / Path(sys.prefix).name


def test_no_requirement_of_leasehold_or_of_the_library_is_broken() -> None:
    """Else tests would pass with versions that no installation of both can have."""
    wanted = [_requirement(line) for line in (FOLDER / "requirements.txt").read_text().splitlines()]
    seen: set[tuple[str, str]] = set()
    broken = []

    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        if not requirement.specifier.contains(_version(name), prereleases=True):
            broken.append(f"{requirement}, and {_version(name)} is installed")
        for extra in {"", *requirement.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, extra))
            wanted += [
                each
                for each in map(Requirement, requires(name) or ())
                if each.marker is None or each.marker.evaluate({"extra": extra})
            ]

    assert not broken


@pytest.mark.skipif("integrations-newest" in sys.prefix, reason="it has the newest versions")
def test_what_is_installed_is_what_is_pinned() -> None:
    pins = (FOLDER / "constraints.txt").read_text().splitlines()

    installed = [f"{pin.partition('==')[0]}=={_version(pin.partition('==')[0])}" for pin in pins]

    assert installed == pins


def _requirement(line: str) -> Requirement:
    return Requirement(line.partition(" #")[0])


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "0"
