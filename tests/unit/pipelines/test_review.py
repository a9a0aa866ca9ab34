import pytest

from pipelines.review.models import (
    Citation,
    Claim,
    Digest,
    Document,
    Extraction,
    Finding,
    Link,
    LinkState,
    Point,
    Review,
    Section,
    Supervision,
)
from pipelines.review.questions import Aspect, Objection
from pipelines.review.review import review
from pipelines.review.supervision import Look

RENEW = "A worker must renew `lease_ttl` every 10 seconds or so."


def claim(place: str, text: str) -> Claim:
    document, line = place.split(":")
    return Claim(
        id=place,
        document=document,
        section="",
        line=int(line),
        kind="rule",
        weight=0.5,
        text=text,
    )


def document(
    path: str,
    *claims: Claim,
    title: str | None = "Title",
    words: int = 100,
    sections: tuple[Section, ...] = (),
    links: tuple[Link, ...] = (),
) -> Document:
    return Document(
        path=path,
        title=title,
        lines=50,
        words=words,
        sections=sections,
        links=links,
        claims_found=len(claims),
        claims=claims,
    )


def extraction(*documents: Document, findings: tuple[Finding, ...] = ()) -> Extraction:
    return Extraction(
        folder="/docs",
        agent="test",
        points=12,
        documents=documents,
        skipped_folders=(),
        findings=findings,
    )


def point(text: str, *cited: Claim) -> Point:
    return Point(
        text=text,
        citations=tuple(
            Citation(claim=each.id, document=each.document, line=each.line, quote=each.text)
            for each in cited
        ),
    )


def digest(*points: Point) -> Digest:
    return Digest(agent="test", points=points, summaries=())


def link(line: int, target: str, state: LinkState) -> Link:
    return Link(line=line, target=target, state=state)


def section(line: int, level: int, name: str) -> Section:
    return Section(path=(name,), level=level, line=line)


def reviewed(digest: Digest, extraction: Extraction, *looks: Look) -> Review:
    supervision = Supervision(trial=1, attempts=1, iterations=5, calls=5, calls_before=0)
    return review(digest, extraction, looks, supervision)


def codes_and_places(findings: tuple[Finding, ...]) -> list[tuple[str, str | None, int | None]]:
    return [(finding.code, finding.document, finding.line) for finding in findings]


def test_a_digest_that_quotes_its_sources_passes() -> None:
    renew = claim("a.md:3", RENEW)

    result = reviewed(digest(point(RENEW, renew)), extraction(document("a.md", renew)))

    assert result.verdict == "pass"
    assert (result.settled, result.score) == (True, 1.0)
    assert result.findings == ()
    assert (result.citations_checked, result.documents_citable, result.documents_cited) == (1, 1, 1)


def test_a_citation_of_nothing_fails_the_digest() -> None:
    renew, invented = claim("a.md:3", RENEW), claim("a.md:40", "All is well.")

    result = reviewed(
        digest(point(RENEW, renew), point("All is well.", invented)),
        extraction(document("a.md", renew)),
    )

    assert result.verdict == "fail"
    assert codes_and_places(result.findings) == [("citation_unknown", None, None)]


def test_a_quotation_that_does_not_stand_at_its_place_fails_the_digest() -> None:
    renew = claim("a.md:3", RENEW)
    altered = claim("a.md:3", "A worker may renew `lease_ttl` every 10 seconds or so.")

    result = reviewed(digest(point("It renews.", altered)), extraction(document("a.md", renew)))

    assert result.verdict == "fail"
    assert codes_and_places(result.findings) == [("citation_altered", "a.md", 3)]


def test_a_point_without_a_citation_fails_the_digest() -> None:
    renew = claim("a.md:3", RENEW)

    result = reviewed(
        digest(point(RENEW, renew), point("Trust me.")), extraction(document("a.md", renew))
    )

    assert codes_and_places(result.findings) == [("point_uncited", None, None)]


def test_a_number_that_no_citation_has_fails_the_digest() -> None:
    renew = claim("a.md:3", RENEW)

    result = reviewed(
        digest(point("Leases are renewed every 15 seconds.", renew)),
        extraction(document("a.md", renew)),
    )

    assert result.verdict == "fail"
    assert [finding.message for finding in result.findings] == [
        (
            "The digest says 15, which none of its citations says: "
            "“Leases are renewed every 15 seconds.”"
        )
    ]


def test_a_digest_of_less_than_half_of_the_documents_fails() -> None:
    renew = claim("a.md:3", RENEW)
    others = [claim("b.md:1", "B is a file."), claim("c.md:1", "C is a file.")]

    result = reviewed(
        digest(point(RENEW, renew)),
        extraction(
            document("a.md", renew),
            document("b.md", others[0]),
            document("c.md", others[1]),
            document("claimless.md"),
        ),
    )

    assert result.verdict == "fail"
    assert codes_and_places(result.findings) == [
        ("coverage_low", None, None),
        ("document_uncited", "b.md", None),
        ("document_uncited", "c.md", None),
    ]


def test_broken_links_are_told_once_for_each_target() -> None:
    broken = (
        link(4, "gone%20x.md", "broken_link"),
        link(9, "gone%20x.md", "broken_link"),
        link(5, "b.md#no", "broken_anchor"),
        link(6, "", "broken_link"),
        link(7, "b.md", "ok"),
        link(8, "https://example.org", "unchecked"),
    )

    result = reviewed(digest(), extraction(document("a.md", links=broken)))

    assert result.verdict == "pass_with_findings"
    assert [(each.line, each.message) for each in result.findings] == [
        (4, "The link `gone x.md` leads to no file."),
        (5, "The link `b.md#no` leads to no heading or anchor of its page."),
        (6, "The link has no target."),
    ]


def test_the_outline_of_each_document_is_checked() -> None:
    sections = (
        section(1, 1, "A"),
        section(3, 3, "B"),
        section(5, 1, "C"),
    )

    result = reviewed(
        digest(),
        extraction(
            document("a.md", sections=sections),
            document("b.md", title=None),
            document("c.md", title=None, words=0),
        ),
    )

    assert codes_and_places(result.findings) == [
        ("level_skipped", "a.md", 3),
        ("no_title", "b.md", 1),
        ("document_empty", "c.md", 1),
    ]


def test_what_extraction_left_out_is_a_finding_of_the_review_and_the_gravest_stand_first() -> None:
    left_out = Finding(
        severity="medium", code="not_utf8", document="z.md", message="No.", remediation="Do."
    )

    result = reviewed(
        digest(point("Trust me.")),
        extraction(document("a.md", title=None), findings=(left_out,)),
    )

    assert [finding.code for finding in result.findings] == [
        "point_uncited",
        "not_utf8",
        "no_title",
    ]


@pytest.mark.parametrize(
    ("aspect", "code", "settled"),
    [
        ("support", "point_unsupported", False),
        ("strength", "point_overstated", False),
        ("sense", "point_reversed", False),
        ("repetition", "point_repeated", True),
        ("contradiction", "points_contradict", True),
    ],
)
def test_what_the_agent_objects_to_is_a_finding_that_names_its_point(
    aspect: Aspect, code: str, settled: bool
) -> None:
    renew, end = claim("a.md:3", RENEW), claim("a.md:9", "Each lease has an end.")
    look = Look(aspect=aspect, attempt=1, objections=(Objection(point=2, reason="No."),))

    result = reviewed(
        digest(point(RENEW, renew), point("Leases end.", end)),
        extraction(document("a.md", renew, end)),
        look,
    )

    (found,) = result.findings
    assert (found.code, found.point, found.document, found.line) == (
        code,
        "Leases end.",
        "a.md",
        9,
    )
    assert found.message == "The digest says “Leases end.”. No."
    assert (result.settled, result.score) == (settled, 1.0 if settled else 0.5)


def test_what_a_person_let_pass_at_a_gate_asks_for_no_other_digest() -> None:
    """The report says that the digest fails, and the person is not asked again."""
    renew = claim("a.md:3", RENEW)

    result = reviewed(
        digest(point(RENEW, renew), point("Trust me.")), extraction(document("a.md", renew))
    )

    assert (result.verdict, result.settled, result.score) == ("fail", True, 0.5)


def test_a_review_of_an_earlier_version_can_be_published() -> None:
    """A run may be between the two steps when the new version is deployed."""
    counts = {"citationsChecked": 1, "documentsCitable": 1, "documentsCited": 1}

    read = Review.model_validate({"verdict": "pass", **counts, "findings": []})

    assert (read.settled, read.supervision.iterations) == (True, 0)


def test_a_digest_of_nothing_scores_by_whether_that_is_grave() -> None:
    nothing = extraction(document("a.md"))
    something = extraction(document("a.md", claim("a.md:3", RENEW)))

    assert reviewed(digest(), nothing).score == 1.0
    assert reviewed(digest(), something).score == 0.0
