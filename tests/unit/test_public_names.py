"""The names that users import from `leasehold` itself."""

from __future__ import annotations

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
