"""What the docs say about where things are is so: a wrong path costs each reader a search."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "shared/leasehold"
DOCS = ROOT / "docs"
PAGES = ("architecture.md", "internals.md", "glossary.md")

_IN_CODE = re.compile(r"`([^`\s]+)`")
_PATH = re.compile(r"(?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|toml)")


def paths(page: str) -> Iterator[str]:
    """Yield each path that a page names."""
    for name in _IN_CODE.findall((DOCS / page).read_text()):
        if _PATH.fullmatch(name) and not name.startswith("http"):
            yield name


def is_there(path: str) -> bool:
    return (ROOT / path).exists() or (PACKAGE / path).exists()


@pytest.mark.parametrize("page", PAGES)
def test_each_path_that_a_page_names_is_there(page: str) -> None:
    named = list(paths(page))

    assert len(named) > 10
    assert [path for path in named if not is_there(path)] == []


def test_each_name_that_the_architecture_gives_is_in_its_file() -> None:
    """`domain/status.py` (`NEXT`): a reader who looks for it finds it there."""
    text = (DOCS / "architecture.md").read_text()
    named = re.findall(r"`([\w/]+\.py)` \(`(\w+)`(?:, `(\w+)`)?", text)
    missing = [
        (path, name)
        for path, *names in named
        for name in names
        if name and not re.search(rf"\b{name}\b", (PACKAGE / path).read_text())
    ]

    assert len(named) >= 7
    assert missing == []


def test_each_package_has_a_row_that_says_what_is_in_it() -> None:
    """A package that is described nowhere is filled with whatever has no other place."""
    text = (DOCS / "architecture.md").read_text()
    described = dict(re.findall(r"^\| `([\w/.]+)` \| (.+) \|$", text, re.MULTILINE))
    packages = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}

    assert packages - described.keys() == set()


def test_the_table_of_changes_is_short() -> None:
    """A row is what the names of files do not say; before a 17th row, rename a file."""
    table = (DOCS / "architecture.md").read_text().partition("## Where do I change it?")[2]
    rows = [line for line in table.splitlines() if line.startswith("| ")]

    assert len(rows) - 1 <= 16


def test_the_glossary_has_a_size_that_a_newcomer_reads() -> None:
    text = (DOCS / "glossary.md").read_text()

    assert text.count("\n### ") <= 60
    assert len(text.split()) <= 1800


def test_the_glossary_has_each_term_once_and_in_order() -> None:
    terms = re.findall(r"^### (.+)$", (DOCS / "glossary.md").read_text(), re.MULTILINE)

    assert terms == sorted(set(terms), key=str.lower)


def test_the_links_within_pages_lead_to_a_heading() -> None:
    missing = [
        f"{page.name}: #{anchor}"
        for page in DOCS.glob("*.md")
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text())
        if anchor not in anchors((page.parent / target) if target else page)
    ]

    assert missing == []


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}
