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
_ROOM = re.compile(r"^### ((?:`\w+/`(?: and |, )?)+)", re.MULTILINE)


def paths(page: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each path that a page names, and the rooms of the section it stands in."""
    rooms: list[str] = []
    for line in (DOCS / page).read_text().splitlines():
        if line.startswith("#"):
            rooms = re.findall(r"`(\w+)/`", line)
        for name in _IN_CODE.findall(line):
            if _PATH.fullmatch(name) and not name.startswith("http"):
                yield name, rooms


def is_there(path: str, rooms: list[str]) -> bool:
    places = [ROOT, PACKAGE, *(PACKAGE / room for room in rooms)]
    return any((place / path).exists() for place in places)


@pytest.mark.parametrize("page", PAGES)
def test_each_path_that_a_page_names_is_there(page: str) -> None:
    named = list(paths(page))

    assert len(named) > 10
    assert [path for path, rooms in named if not is_there(path, rooms)] == []


def test_each_room_has_its_section() -> None:
    """A room that is described nowhere is filled with whatever has no other place."""
    text = (DOCS / "architecture.md").read_text()
    described = {room for rooms in _ROOM.findall(text) for room in re.findall(r"\w+", rooms)}
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}

    assert rooms - described - {"testing", "and"} == set()


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
