"""The reference is made from the sources of an integration, and agrees with its modules."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from docs import outline
from tests.integrations.conftest import HERE

MODULE: Final[Any] = importlib.import_module(f"leasehold.integrations.{HERE}")
PAGE: Final = (Path(__file__).parents[2] / "docs/reference-agents.md").read_text()


def test_the_page_shows_what_users_call_and_nothing_that_the_library_calls() -> None:
    for name in MODULE.__all__:
        shown = re.findall(rf"^#### {HERE}\.{name}\.(\w+)$", PAGE, re.MULTILINE)

        assert shown == list(_called_by_users(getattr(MODULE, name)))


def _called_by_users(value: Any) -> Iterator[str]:
    """Yield the methods of a class that its library does not know."""
    if not inspect.isclass(value):
        return
    of_library = {name for base in value.__mro__[1:] for name in vars(base)}
    for name, member in vars(value).items():
        is_method = inspect.isfunction(member) or isinstance(member, property)
        if is_method and not name.startswith("_") and name not in of_library:
            yield name


def test_an_outline_has_the_signatures_of_what_it_stands_for() -> None:
    for name, outlined in outline.names_of(MODULE.__name__):
        value = getattr(MODULE, name)

        assert inspect.getdoc(outlined) == inspect.getdoc(value)
        if not inspect.isclass(value) or "__init__" in vars(value):
            assert inspect.signature(outlined) == inspect.signature(value)
