import pytest

from pipelines.review.local_agent import LocalAgent
from pipelines.review.models import Claim, ClaimKind
from pipelines.review.questions import (
    Aspect,
    DocumentClaims,
    DraftPoint,
    Excerpt,
    FolderClaims,
    Inspection,
    Numbered,
    QuotedPoint,
)
from pipelines.review.supervision import ASPECTS


def picks(*sentences: str, first: int = 1) -> list[tuple[int, ClaimKind]]:
    excerpt = Excerpt(
        document="a.md",
        title="A",
        sentences=tuple(
            Numbered(number=number, section="A", text=text)
            for number, text in enumerate(sentences, start=first)
        ),
    )
    return [(pick.number, pick.kind) for pick in LocalAgent().claims(excerpt)]


def claim(place: str, text: str, *, kind: ClaimKind = "rule", weight: float = 0.7) -> Claim:
    document, line = place.split(":")
    return Claim(
        id=place,
        document=document,
        section="",
        line=int(line),
        kind=kind,
        weight=weight,
        text=text,
    )


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("The lease runs for 30 seconds at a time.", "number"),
        ("Python 3.11 or newer is needed here.", "number"),
        ("A worker must renew its lease in time.", "rule"),
        ("Retries are cheaper than lost runs are.", "comparison"),
        ("A manifest is the single document of a run.", "definition"),
    ],
)
def test_a_sentence_that_can_be_checked_is_a_claim(sentence: str, kind: ClaimKind) -> None:
    assert picks(sentence) == [(1, kind)]


@pytest.mark.parametrize(
    "sentence",
    [
        "We are happy about every contribution.",
        "Must it run within 30 seconds at all?",
        "The following 3 settings are known here:",
        "At most 5.",
        "`lease(30, 'seconds')` `renew(10)` `claim(5)` are so and so.",
    ],
)
def test_what_states_nothing_or_is_no_whole_sentence_is_no_claim(sentence: str) -> None:
    assert picks(sentence) == []


def test_the_first_whole_sentence_of_a_document_is_its_lead() -> None:
    assert picks("Note:", "Leasehold runs pipelines on serverless.", "It runs well.", first=0) == [
        (1, "lead")
    ]


def test_an_excerpt_from_further_down_has_no_lead() -> None:
    assert picks("Leasehold runs pipelines on serverless.", first=200) == []


def test_claims_that_say_the_same_become_one_point_that_cites_both() -> None:
    claims = (
        claim("a.md:3", "A worker must renew its lease every 10 seconds."),
        claim("b.md:9", "The worker must renew the lease every 10 seconds."),
    )

    draft = LocalAgent().digest(FolderClaims(claims=claims, points=5))

    assert draft == [DraftPoint(text=claims[0].text, claims=("a.md:3", "b.md:9"))]


def test_claims_that_differ_in_a_number_are_not_folded() -> None:
    claims = (
        claim("a.md:3", "A worker must renew its lease every 10 seconds."),
        claim("b.md:9", "A worker must renew its lease every 20 seconds."),
    )

    draft = LocalAgent().digest(FolderClaims(claims=claims, points=5))

    assert [point.claims for point in draft] == [("a.md:3",), ("b.md:9",)]


def test_a_digest_prefers_what_differs_from_what_it_said() -> None:
    claims = (
        claim("a.md:1", "The lease of a worker must be renewed every 10 seconds.", weight=0.9),
        claim("a.md:2", "The lease of a worker must be renewed after 10 seconds.", weight=0.89),
        claim("b.md:1", "An announcement is sent at most once to each channel.", weight=0.6),
    )

    draft = LocalAgent().digest(FolderClaims(claims=claims, points=2))

    assert [point.claims[0] for point in draft] == ["a.md:1", "b.md:1"]


def test_a_summary_keeps_the_lead_and_the_order_of_the_document() -> None:
    claims = (
        claim("a.md:1", "Leasehold runs pipelines on serverless.", kind="lead", weight=0.6),
        claim("a.md:5", "Every run must have an alarm.", weight=0.75),
        claim("a.md:9", "Some files are older than others.", weight=0.3),
    )

    points = LocalAgent().summary(
        DocumentClaims(document="a.md", title="A", claims=claims, points=2)
    )

    assert [point.claims for point in points] == [("a.md:1",), ("a.md:5",)]


def test_nothing_to_digest_gives_nothing() -> None:
    agent = LocalAgent()

    assert agent.digest(FolderClaims(claims=(), points=5)) == []
    assert agent.claims(Excerpt(document="a.md", title="A", sentences=())) == []


RENEW = "A worker should renew its lease every 10 seconds."


def objected(aspect: Aspect, *points: tuple[str, str]) -> list[int]:
    """Return the numbers of the points that are objected to; each with what it quotes."""
    quoted = tuple(
        QuotedPoint(number=number, text=text, quotes=(quote,))
        for number, (text, quote) in enumerate(points, start=1)
    )
    agent = LocalAgent()
    return [each.point for each in agent.objections(Inspection(aspect=aspect, points=quoted))]


@pytest.mark.parametrize("aspect", ASPECTS)
def test_what_is_said_word_for_word_is_never_objected_to(aspect: Aspect) -> None:
    points = (RENEW, "No file is ever deleted by the sweep.", "It must be so.", "", "5")

    assert objected(aspect, *((text, text) for text in points)) == []


@pytest.mark.parametrize(
    ("aspect", "text"),
    [
        ("support", "Retries cost money."),
        ("strength", "A worker must renew its lease every 10 seconds."),
        ("sense", "A worker should not renew its lease every 10 seconds."),
    ],
)
def test_a_point_that_does_not_say_what_it_quotes_is_objected_to(aspect: Aspect, text: str) -> None:
    assert objected(aspect, (RENEW, RENEW), (text, RENEW)) == [2]


@pytest.mark.parametrize(
    ("aspect", "text"),
    [
        ("repetition", "The worker should renew the lease every 10 seconds."),
        ("contradiction", "The worker should renew the lease every 20 seconds."),
    ],
)
def test_a_point_that_repeats_or_contradicts_an_earlier_one_is_objected_to(
    aspect: Aspect, text: str
) -> None:
    assert objected(aspect, (RENEW, RENEW), (text, text)) == [2]
