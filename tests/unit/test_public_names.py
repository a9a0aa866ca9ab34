"""The names that users import from `leasehold` itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import leasehold


@pytest.mark.parametrize("name", leasehold.__all__)
def test_a_public_name_is_there(name: str) -> None:
    """They are imported when they are used: a module that moved would be noticed only then."""
    assert getattr(leasehold, name).__name__ == name
    assert name in dir(leasehold)


def test_another_name_is_not() -> None:
    with pytest.raises(AttributeError, match="'leasehold' has no attribute 'nothing'"):
        _ = leasehold.nothing  # type: ignore[attr-defined]


def test_a_checker_of_types_knows_each_of_them() -> None:
    """It does not run `__getattr__`: a name that is not imported for it would be `Any`."""
    tree = ast.parse(Path(leasehold.__file__).read_text())
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert sorted(imported) == sorted(leasehold.__all__)
    assert imported == {name: getattr(leasehold, name).__module__ for name in leasehold.__all__}
