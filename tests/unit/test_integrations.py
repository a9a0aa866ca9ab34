"""An integration whose library is missing says what to type."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from leasehold import integrations
from leasehold.errors import MissingExtraError

NAMES = [module.name for module in pkgutil.iter_modules(integrations.__path__) if module.ispkg]


@pytest.mark.parametrize("name", NAMES)
def test_an_integration_without_its_library_says_which_extra_to_install(name: str) -> None:
    """None of these libraries is in the environment of these tests."""
    extra = name.replace("_", "-")

    with pytest.raises(MissingExtraError) as refused:
        importlib.import_module(f"leasehold.integrations.{name}")

    assert f"[{extra}]" in str(refused.value)
