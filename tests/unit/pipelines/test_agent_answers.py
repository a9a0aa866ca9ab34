"""What an agent answers is checked before it is used; a wrong answer is worth another attempt."""

from pathlib import Path

import pytest

from leasehold import AgentClientError
from pipelines.review.citations import count_terms, shortlist, with_citations
from pipelines.review.documents import document, excerpts, library_of
from pipelines.review.models import Citation, Claim, Document, Point, Term
from pipelines.review.page import read_page
from pipelines.review.questions import DraftPoint, Pick

PAGE = read_page("# A\n\nOne is first. Two is next. Three\nis last.\n\n## B\n\nFour comes later.\n")


def claim(place: str, text: str = "It is so.", weight: float = 0.5) -> Claim:
    path, line = place.split(":")
    return Claim(
        id=place, document=path, section="", line=int(line), kind="rule", weight=weight, text=text
    )


def described(tmp_path: Path, *picks: Pick) -> Document:
    return document("a.md", PAGE, library_of(tmp_path, {"a.md": PAGE}), picks)


def test_picks_become_claims_with_their_place_in_reading_order(tmp_path: Path) -> None:
    later = Pick(number=3, kind="rule", weight=0.9)
    second = Pick(number=1, kind="number", weight=0.5)
    first = Pick(number=0, kind="lead", weight=0.6)

    claims = described(tmp_path, later, second, first).claims

    assert [(each.id, each.line, each.section, each.text) for each in claims] == [
        ("a.md:3", 3, "A", "One is first."),
        ("a.md:3+1", 3, "A", "Two is next."),
        ("a.md:8", 8, "A > B", "Four comes later."),
    ]


def test_a_pick_that_is_not_a_sentence_of_the_document_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AgentClientError) as refusal:
        described(tmp_path, Pick(number=4, kind="rule", weight=0.5))

    assert refusal.value.code == "bad_picks"
    assert refusal.value.details == {"document": "a.md", "unknown": [4], "twice": []}


def test_a_sentence_that_is_picked_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AgentClientError) as refusal:
        described(tmp_path, *[Pick(number=1, kind="rule", weight=0.5)] * 2)

    assert refusal.value.details == {"document": "a.md", "unknown": [], "twice": [1]}


def test_only_the_weightiest_claims_of_a_document_are_kept(tmp_path: Path) -> None:
    page = read_page("\n\n".join(f"Rule {number} must hold." for number in range(50)))
    picks = [Pick(number=number, kind="rule", weight=number / 100) for number in range(50)]

    kept = document("a.md", page, library_of(tmp_path, {"a.md": page}), picks)

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


def test_terms_are_counted_in_claims_and_those_of_no_one_are_dropped() -> None:
    claims = [
        claim("a.md:1", "Leases end."),
        claim("a.md:2", "A lease is held."),
        claim("b.md:1", "Release it."),
    ]

    assert count_terms(["lease", "dragon"], claims) == (Term(term="lease", claims=2, documents=1),)
