"""What an agent answers is checked before it is used; a wrong answer is worth another attempt."""

from pathlib import Path

import pytest

from leasehold import AgentClientError
from pipelines.review import extraction
from pipelines.review.extraction import checked, document, excerpts, read_pages, resolved
from pipelines.review.files import find_markdown
from pipelines.review.markdown import Page, read_page
from pipelines.review.models import Citation, Claim, Document, Point, ReviewInput
from pipelines.review.questions import DraftPoint, Pick
from pipelines.review.synthesis import shortlist, with_citations

PAGE = read_page("# A\n\nOne is first. Two is next. Three\nis last.\n\n## B\n\nFour comes later.\n")


def claim(place: str, text: str = "It is so.", weight: float = 0.5) -> Claim:
    path, line = place.split(":")
    return Claim(
        id=place, document=path, section="", line=int(line), kind="rule", weight=weight, text=text
    )


def described(page: Page, *picks: Pick) -> Document:
    (excerpt,) = excerpts("a.md", page)
    best_first = sorted(checked(excerpt, picks), key=lambda pick: -pick.weight)
    return document(Path("/nowhere"), "a.md", {"a.md": page}, best_first)


def test_picks_become_claims_with_their_place_in_reading_order() -> None:
    later = Pick(number=3, kind="rule", weight=0.9)
    second = Pick(number=1, kind="number", weight=0.5)
    first = Pick(number=0, kind="lead", weight=0.6)

    claims = described(PAGE, later, second, first).claims

    assert [(each.id, each.line, each.section, each.text) for each in claims] == [
        ("a.md:3", 3, "A", "One is first."),
        ("a.md:3+1", 3, "A", "Two is next."),
        ("a.md:8", 8, "A > B", "Four comes later."),
    ]


def test_a_pick_that_is_not_a_sentence_of_the_document_is_refused() -> None:
    with pytest.raises(AgentClientError) as refusal:
        described(PAGE, Pick(number=4, kind="rule", weight=0.5))

    assert refusal.value.code == "bad_picks"
    assert refusal.value.details == {"document": "a.md", "unknown": [4], "twice": []}


def test_a_sentence_that_is_picked_twice_is_refused() -> None:
    with pytest.raises(AgentClientError) as refusal:
        described(PAGE, *[Pick(number=1, kind="rule", weight=0.5)] * 2)

    assert refusal.value.details == {"document": "a.md", "unknown": [], "twice": [1]}


def test_only_the_weightiest_claims_of_a_document_are_kept() -> None:
    page = read_page("\n\n".join(f"Rule {number} must hold." for number in range(50)))
    picks = [Pick(number=number, kind="rule", weight=number / 100) for number in range(50)]

    kept = described(page, *picks)

    assert (kept.claims_found, len(kept.claims)) == (50, 40)
    assert kept.claims[0].text == "Rule 10 must hold."


def test_a_long_document_is_asked_about_in_excerpts_that_fit_one_call() -> None:
    page = read_page("\n\n".join("word " * 199 + f"{number}." for number in range(60)))

    parts = list(excerpts("a.md", page))

    assert [len(part.sentences) for part in parts] == [24, 24, 12]
    assert parts[1].sentences[0].number == 24


def test_a_draft_is_cited_word_for_word() -> None:
    known = {"a.md:3": claim("a.md:3", "One is first.")}

    points = with_citations([DraftPoint(text="One leads.", claims=("a.md:3",))], known)

    assert points == (
        Point(
            text="One leads.",
            citations=(Citation(claim="a.md:3", document="a.md", line=3, quote="One is first."),),
        ),
    )


@pytest.mark.parametrize("claims", [("a.md:99",), ()])
def test_a_draft_without_a_claim_that_exists_is_refused(claims: tuple[str, ...]) -> None:
    with pytest.raises(AgentClientError) as refusal:
        with_citations([DraftPoint(text="So it is.", claims=claims)], {"a.md:3": claim("a.md:3")})

    assert refusal.value.code == "bad_citations"
    assert refusal.value.details == [{"point": "So it is.", "claims": list(claims)}]


def test_the_shortlist_takes_the_weightiest_of_each_document_in_order() -> None:
    documents = [
        Document(
            path=f"{number}.md",
            title=None,
            lines=9,
            words=9,
            sections=(),
            links=(),
            claims_found=8,
            claims=tuple(claim(f"{number}.md:{line}", weight=line / 10) for line in range(1, 9)),
        )
        for number in range(100)
    ]

    short = shortlist(documents)

    assert len(short) == 600
    assert [each.id for each in short[:7]] == [
        "0.md:3",
        "0.md:4",
        "0.md:5",
        "0.md:6",
        "0.md:7",
        "0.md:8",
        "1.md:3",
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two documents, and files of other kinds beside them."""
    root = tmp_path / "docs"
    (root / "guide").mkdir(parents=True)
    (root / "index.md").write_text("# Docs\n\n## Get started\n")
    (root / "guide" / "setup.md").write_text("# Größe\n")
    (root / "guide" / "big plan.txt").touch()
    (tmp_path / "LICENSE").touch()
    return root


@pytest.mark.parametrize(
    ("target", "state"),
    [
        ("https://example.org/x", "unchecked"),
        ("mailto:a@example.org", "unchecked"),
        ("//example.org", "unchecked"),
        ("/where/the/site/has/it", "unchecked"),
        ("#gr%C3%B6%C3%9Fe", "ok"),
        ("#", "ok"),
        ("#top", "ok"),
        ("#gone", "broken_anchor"),
        ("../index.md#get-started", "ok"),
        ("../index.md?plain=1#get-started", "ok"),
        ("../index.md#gone", "broken_anchor"),
        ("big%20plan.txt", "ok"),
        ("big%20plan.txt#anything", "unchecked"),
        ("../guide", "ok"),
        ("../../LICENSE", "ok"),
        ("gone.md", "broken_link"),
        ("../../../gone.md", "broken_link"),
        ("x" * 5000, "broken_link"),
        ("nul%00.md", "broken_link"),
        ("", "broken_link"),
    ],
)
def test_a_link_says_whether_something_is_there(folder: Path, target: str, state: str) -> None:
    given = ReviewInput(folder=str(folder))
    pages = read_pages(find_markdown(given), given)

    link = resolved(folder, "guide/setup.md", pages, 3, target)

    assert (link.line, link.target, link.state) == (3, target, state)


def test_what_there_is_no_room_for_is_left_out_and_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extraction, "MAX_PARTS", {"sections": 1, "links": 9, "sentences": 9})
    given = ReviewInput(folder=str(folder))
    found = find_markdown(given)

    pages = read_pages(found, given)

    assert [len(page.sections) for page in pages.values()] == [1, 0]
    assert [(each.code, each.document) for each in found.findings] == [
        ("too_much", "index.md"),
        ("too_much", "guide/setup.md"),
    ]
