"""The reference has each public name, and what it says of them is so."""

from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path

import pytest

from leasehold import errors

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SHARED = ROOT / "shared"
AGENTS = sorted(
    f"leasehold.integrations.{path.parent.name}"
    for path in SHARED.glob("leasehold/integrations/*/__init__.py")
)
PAGES = {
    "leasehold": "reference.md",
    "leasehold.in_process": "reference.md",
    "leasehold.testing": "reference-testing.md",
} | dict.fromkeys(AGENTS, "reference-agents.md")

#: A table of functions is part of a project, and is written by `leasehold deploy init`.
_OF_A_TABLE = "leasehold.registry.functions"


def public_names(module: str) -> list[str]:
    """Return what a module's `__all__` has, without an import: some need an agent library."""
    tree = ast.parse((SHARED / module.replace(".", "/") / "__init__.py").read_text())
    (names,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return list(names)


def section(module: str) -> str:
    """Return the part of a page that describes a module."""
    text = (DOCS / PAGES[module]).read_text()
    found = re.search(rf"^## {re.escape(module)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{module} is on no page"
    return found[1]


def names_in(module: str) -> list[str]:
    """Return the names that the section of a module describes."""
    return re.findall(r"^### (?:\w+\.)?(\w+)$", section(module), re.MULTILINE)


@pytest.mark.parametrize("module", PAGES)
def test_each_public_name_of_a_module_is_on_its_page(module: str) -> None:
    described = names_in(module)

    assert [name for name in public_names(module) if name not in described] == []
    assert described == sorted(set(described), key=str.lower)


def test_each_name_says_what_it_is() -> None:
    empty = [
        heading
        for page in sorted(set(PAGES.values()))
        for heading, text in re.findall(
            r"^###+ (\S+)\n(.*?)(?=^##|\Z)", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL
        )
        if not re.match(r"\s*(?:```.*?```\s*)?[A-Z`]", text, re.DOTALL)
    ]

    assert empty == []


def test_what_the_pages_import_is_public() -> None:
    """A reader who imports it as a page does finds it in the reference."""
    pages = [ROOT / "README.md", *DOCS.glob("*.md"), *DOCS.glob("patterns/*.md")]
    imported = {
        (node.module, alias.name)
        for page in pages
        for code in re.findall(
            r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL
        )
        for node in _imports(code)
        for alias in node.names
    }

    assert len(imported) > 40
    assert [
        f"{module}.{name}"
        for module, name in sorted(imported)
        if not (module in PAGES and (name in names_in(module) or f"{module}.{name}" in PAGES))
        and not (module == "leasehold.errors" and hasattr(errors, name))
        and module != _OF_A_TABLE
    ] == []


def _imports(code: str) -> list[ast.ImportFrom]:
    try:
        tree = ast.parse(code)
    except SyntaxError:  # a signature, which is no statement
        return []
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("leasehold")
    ]


def test_each_error_that_it_names_is_there() -> None:
    """Users import it from `leasehold.errors`, or Python has it."""
    named = {
        name
        for page in set(PAGES.values())
        for name in re.findall(r"\b[A-Z]\w+Error\b", (DOCS / page).read_text())
    }

    assert len(named) > 40
    assert [
        name for name in sorted(named) if not hasattr(errors, name) and not hasattr(builtins, name)
    ] == []


def test_the_orders_of_faults_are_those_of_the_guide() -> None:
    """A hook of the engine, on the same object, is no order: it is on neither page."""
    guide = (DOCS / "testing.md").read_text()
    rows = [row for row in guide.splitlines() if row.startswith("| `") and "(" in row]
    ordered = {
        name
        for row in rows
        for name in re.findall(r"`(\w+)\((?:step|channel|seconds)", row.split("|")[1])
    }
    described = re.findall(r"^#### Faults\.(\w+)$", section("leasehold.testing"), re.MULTILINE)

    assert {*described} == {"pending"} | ordered
    assert len(described) == len(set(described))
