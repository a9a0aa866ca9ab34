from pathlib import Path

import pytest

from pipelines.review.links import Library
from pipelines.review.models import Link


@pytest.fixture
def shelf(tmp_path: Path) -> Library:
    """Two documents that were read, and files of other kinds beside them."""
    root = tmp_path / "repo" / "docs"
    (root / "guide").mkdir(parents=True)
    (root / "guide" / "logo.png").touch()
    (root / "guide" / "big plan.md").touch()
    (tmp_path / "repo" / ".git").mkdir()
    (tmp_path / "repo" / "LICENSE").touch()
    return Library(
        root,
        {
            "index.md": frozenset({"docs", "get-started"}),
            "guide/setup.md": frozenset({"setup", "on-linux", "größe", "dep0111-process"}),
        },
    )


@pytest.mark.parametrize(
    ("target", "kind", "state"),
    [
        ("https://example.org/x", "external", "unchecked"),
        ("mailto:a@example.org", "external", "unchecked"),
        ("//example.org", "external", "unchecked"),
        ("#setup", "anchor", "ok"),
        ("#", "anchor", "ok"),
        ("#top", "anchor", "ok"),
        ("#gr%C3%B6%C3%9Fe", "anchor", "ok"),
        ("#gone", "anchor", "broken_anchor"),
        ("../index.md", "file", "ok"),
        ("../index.md#get-started", "file", "ok"),
        ("../index.md?plain=1#get-started", "file", "ok"),
        ("../index.md#gone", "file", "broken_anchor"),
        ("logo.png", "file", "ok"),
        ("big%20plan.md", "file", "ok"),
        ("big%20plan.md#anything", "file", "unchecked"),
        ("../guide", "file", "ok"),
        ("../../LICENSE", "file", "ok"),
        ("/LICENSE", "file", "ok"),
        ("/guide/setup", "file", "ok"),
        ("/setup#on-linux", "file", "ok"),
        ("/guide/setup#gone", "file", "broken_anchor"),
        ("gone.md", "file", "broken_link"),
        ("../../../gone.md", "file", "broken_link"),
        ("x" * 5000, "file", "broken_link"),
        ("nul%00.md", "file", "broken_link"),
        ("", "file", "broken_link"),
    ],
)
def test_a_link_says_what_it_is_and_whether_something_is_there(
    shelf: Library, target: str, kind: str, state: str
) -> None:
    link = shelf.resolve("guide/setup.md", 3, target, image=False)

    assert (link.line, link.kind, link.state) == (3, kind, state)


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("index.md", "../index.md"),
        ("../setup.md", ""),
        ("index.md#get-started", "../index.md#get-started"),
        ("indexx.md", "../index.md"),
        ("index.py", ""),
        ("#On-Linux", "#on-linux"),
        ("#on-linus", "#on-linux"),
        ("#DEP0111", "#dep0111-process"),
        ("#get-started", "../index.md#get-started"),
        ("#nothing-like-it", ""),
    ],
)
def test_a_broken_link_comes_with_what_it_may_have_meant(
    shelf: Library, target: str, hint: str
) -> None:
    assert shelf.resolve("guide/setup.md", 3, target, image=False).hint == hint


def test_an_image_is_a_link_to_a_file(shelf: Library) -> None:
    link = shelf.resolve("index.md", 7, "guide/gone.png", image=True)

    assert link == Link(
        line=7, kind="file", target="guide/gone.png", image=True, state="broken_link"
    )
