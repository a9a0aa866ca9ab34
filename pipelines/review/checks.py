"""What supervision looks at. It trusts the extraction, and nothing that the agent wrote."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Final
from urllib.parse import unquote

from pipelines.review.code_spans import code_spans
from pipelines.review.findings import finding
from pipelines.review.models import (
    Citation,
    Claim,
    Digest,
    Document,
    Extraction,
    Finding,
    Link,
    Point,
)
from pipelines.review.vocabulary import NUMBER, numbers, terms

COVERAGE_NEEDED: Final = 0.5  # share of the documents with claims that a digest must cite
TELLING_WORDS: Final = 4  # that a sentence needs before its numbers can contradict another's
HISTORIES: Final = ("change", "history", "news", "release")  # in paths of what repeats itself
PATHS_SHOWN: Final = 3
LINES_SHOWN: Final = 20
TARGET_SHOWN: Final = 120  # characters of a link's target
MISSING: Final[Mapping[str, str]] = {
    "broken_link": "leads to no file",
    "broken_anchor": "leads to no heading or anchor of its page",
}


def check_digest(digest: Digest, extraction: Extraction) -> Iterator[Finding]:
    """Yield what is wrong with the digest: citations, numbers, coverage."""
    known = {claim.id: claim for document in extraction.documents for claim in document.claims}
    lines = {document.path: document.lines for document in extraction.documents}
    for point in all_points(digest):
        if not point.citations:
            message = f"A point of the digest cites nothing: “{point.text}”"
            yield finding("point_uncited", message, point=point.text)
        for citation in point.citations:
            for found in _check_citation(citation, known.get(citation.claim), lines):
                yield found.model_copy(update={"point": point.text})
        yield from _check_numbers(point)
    yield from _check_summaries(digest)
    yield from _check_coverage(digest, extraction)


def check_document(document: Document) -> Iterator[Finding]:
    """Yield what is wrong with one document: its title, its outline, its links."""
    if document.words == 0:
        yield finding("document_empty", "The document has no text.", document=document.path, line=1)
        return
    if document.title is None:
        yield finding("no_title", "The document has no title.", document=document.path, line=1)
    yield from _check_outline(document)
    yield from _check_links(document)


def check_agreement(extraction: Extraction) -> Iterator[Finding]:
    """Yield sentences that differ by nothing but their numbers from one of an earlier document.

    Only sentences that name something in code are compared, as in “`retries` is 5 by default”:
    the same words about different things are no contradiction.
    """
    claims = [
        claim
        for document in extraction.documents
        if not any(word in document.path.lower() for word in HISTORIES)
        for claim in document.claims
        if numbers(claim.text) and _tells_what(claim.text)
    ]
    by_words = sorted(claims, key=lambda claim: _words(claim.text))
    for _, same in groupby(by_words, key=lambda claim: _words(claim.text)):
        first, *others = same
        for other in others:
            if other.document != first.document and numbers(other.text) != numbers(first.text):
                yield finding(
                    "numbers_differ",
                    f"“{other.text}” gives another number than {first.document}:{first.line}: "
                    f"“{first.text}”",
                    document=other.document,
                    line=other.line,
                )


def all_points(digest: Digest) -> list[Point]:
    """Return the key points and those of the summaries."""
    return [*digest.points, *(point for each in digest.summaries for point in each.points)]


def documents_cited(digest: Digest) -> set[str]:
    """Return the paths that the digest cites."""
    return {citation.document for point in all_points(digest) for citation in point.citations}


def _check_citation(
    citation: Citation, claim: Claim | None, lines: dict[str, int]
) -> Iterator[Finding]:
    if claim is None:
        yield finding(
            "citation_unknown",
            f"The digest cites {citation.claim}, which is not a claim of any document.",
        )
    elif (citation.document, citation.line, citation.quote) != (
        claim.document,
        claim.line,
        claim.text,
    ) or citation.line > lines[claim.document]:
        yield finding(
            "citation_altered",
            f"The digest quotes “{citation.quote}” from {citation.document}:{citation.line}; "
            f"{claim.document}:{claim.line} says “{claim.text}”",
            document=claim.document,
            line=claim.line,
        )


def _check_numbers(point: Point) -> Iterator[Finding]:
    founded = {number for citation in point.citations for number in numbers(citation.quote)}
    if unfounded := sorted(numbers(point.text) - founded):
        yield finding(
            "number_unfounded",
            f"The digest says {', '.join(unfounded)}, which none of its citations says: "
            f"“{point.text}”",
            document=point.citations[0].document if point.citations else None,
            line=point.citations[0].line if point.citations else None,
            point=point.text,
        )


def _check_summaries(digest: Digest) -> Iterator[Finding]:
    for summary in digest.summaries:
        for point in summary.points:
            places = {citation.document for citation in point.citations}
            if places and summary.document not in places:
                yield finding(
                    "summary_elsewhere",
                    f"The summary of {summary.document} cites only other documents: “{point.text}”",
                    document=summary.document,
                    point=point.text,
                )


def _check_coverage(digest: Digest, extraction: Extraction) -> Iterator[Finding]:
    citable = [document.path for document in extraction.documents if document.claims]
    cited = documents_cited(digest)
    uncited = [path for path in citable if path not in cited]
    share = 1 - len(uncited) / max(1, len(citable))
    examples = _some(uncited, PATHS_SHOWN)
    if share < COVERAGE_NEEDED:
        yield finding(
            "coverage_low",
            f"The digest cites {len(citable) - len(uncited)} of {len(citable)} documents that "
            f"make claims; it needs {COVERAGE_NEEDED:.0%}. Not cited: {examples}.",
        )
    for path in uncited:
        yield finding("document_uncited", "The digest says nothing about it.", document=path)


def _check_outline(document: Document) -> Iterator[Finding]:
    for section in document.sections:
        if section.empty and section.path[-1].strip("[] ").lower() != "unreleased":
            yield finding(
                "empty_section",
                f"The section “{section.path[-1]}” is empty.",
                document=document.path,
                line=section.line,
            )
    for above, section in pairwise(document.sections):
        if section.level > above.level + 1:
            yield finding(
                "level_skipped",
                f"“{section.path[-1]}” is of level {section.level} right under one of level "
                f"{above.level}.",
                document=document.path,
                line=section.line,
                remediation=f"Make it level {above.level + 1}.",
            )


def _check_links(document: Document) -> Iterator[Finding]:
    """Yield one finding for each broken target, at its first line."""
    broken = [link for link in document.links if link.state in MISSING]
    by_target = sorted(broken, key=lambda link: (link.target, link.image, link.line))
    for _, same in groupby(by_target, key=lambda link: (link.target, link.image)):
        link, *others = same
        also = sorted({other.line for other in others} - {link.line})
        lines = _some([str(line) for line in also], LINES_SHOWN)
        where = f" (also on line {lines})" if also else ""
        yield finding(
            link.state,
            f"The {'image' if link.image else 'link'} {_describe(link)}{where}.",
            document=document.path,
            line=link.line,
            remediation=f"Did it mean `{link.hint}`?" if link.hint else None,
        )


def _describe(link: Link) -> str:
    """Return the target as written rather than as it is encoded, and what it misses."""
    target = unquote(link.target)
    short = target if len(target) <= TARGET_SHOWN else target[:TARGET_SHOWN] + "..."
    return f"`{short}` {MISSING[link.state]}" if target else "has no target"


def _some(names: Sequence[str], limit: int) -> str:
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def _tells_what(text: str) -> bool:
    return any(code_spans(text)) and len(terms(NUMBER.sub("", text))) >= TELLING_WORDS


def _words(text: str) -> str:
    return " ".join(NUMBER.sub("#", text).lower().split())
