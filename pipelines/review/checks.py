"""The rules of supervision. They trust the extraction, and nothing that the agent wrote."""

from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise
from typing import Final
from urllib.parse import unquote

from pipelines.review.findings import finding
from pipelines.review.models import Citation, Claim, Digest, Document, Extraction, Finding, Point
from pipelines.review.words import numbers

COVERAGE_NEEDED: Final = 0.5  # share of the documents with claims that a digest must cite
PATHS_SHOWN: Final = 3
TARGET_SHOWN: Final = 120  # characters of a link's target
MISSING: Final[Mapping[str, str]] = {
    "broken_link": "leads to no file",
    "broken_anchor": "leads to no heading or anchor of its page",
}


def check_digest(digest: Digest, extraction: Extraction) -> Iterator[Finding]:
    """Yield what is wrong with the digest: citations, numbers, coverage."""
    known = {claim.id: claim for document in extraction.documents for claim in document.claims}
    for point in all_points(digest):
        if not point.citations:
            message = f"A point of the digest cites nothing: “{point.text}”"
            yield finding("point_uncited", message, point=point.text)
        for citation in point.citations:
            yield from _check_citation(point, citation, known.get(citation.claim))
        founded = {number for citation in point.citations for number in numbers(citation.quote)}
        if unfounded := sorted(numbers(point.text) - founded):
            message = f"The digest says {', '.join(unfounded)}, which none of its citations says"
            yield finding("number_unfounded", f"{message}: “{point.text}”", point=point.text)
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
    yield from _check_coverage(digest, extraction)


def check_document(document: Document) -> Iterator[Finding]:
    """Yield what is wrong with one document: its title, its outline, its links."""
    if document.words == 0:
        yield finding("document_empty", "The document has no text.", document=document.path, line=1)
        return
    if document.title is None:
        yield finding("no_title", "The document has no title.", document=document.path, line=1)
    for above, section in pairwise(document.sections):
        if section.level > above.level + 1:
            levels = f"is of level {section.level} right under one of level {above.level}"
            message = f"“{section.path[-1]}” {levels}."
            yield finding("level_skipped", message, document=document.path, line=section.line)
    broken = [link for link in document.links if link.state in MISSING]
    for target, same in groupby(
        sorted(broken, key=lambda link: link.target), lambda link: link.target
    ):
        link = min(same, key=lambda link: link.line)
        shown = unquote(target)[:TARGET_SHOWN]
        what = f"`{shown}` {MISSING[link.state]}" if target else "has no target"
        yield finding(link.state, f"The link {what}.", document=document.path, line=link.line)


def all_points(digest: Digest) -> list[Point]:
    """Return the key points and those of the summaries."""
    return [*digest.points, *(point for each in digest.summaries for point in each.points)]


def documents_cited(digest: Digest) -> set[str]:
    """Return the paths that the digest cites."""
    return {citation.document for point in all_points(digest) for citation in point.citations}


def _check_citation(point: Point, citation: Citation, claim: Claim | None) -> Iterator[Finding]:
    if claim is None:
        message = f"The digest cites {citation.claim}, which is not a claim of any document."
        yield finding("citation_unknown", message, point=point.text)
        return
    true = Citation(claim=claim.id, document=claim.document, line=claim.line, quote=claim.text)
    if citation != true:
        yield finding(
            "citation_altered",
            f"The digest quotes “{citation.quote}” from {citation.document}:{citation.line}; "
            f"{claim.document}:{claim.line} says “{claim.text}”",
            document=claim.document,
            line=claim.line,
            point=point.text,
        )


def _check_coverage(digest: Digest, extraction: Extraction) -> Iterator[Finding]:
    citable = [document.path for document in extraction.documents if document.claims]
    cited = documents_cited(digest)
    uncited = [path for path in citable if path not in cited]
    if len(uncited) > (1 - COVERAGE_NEEDED) * len(citable):
        more = len(uncited) - PATHS_SHOWN
        examples = ", ".join(uncited[:PATHS_SHOWN]) + (f" and {more} more" if more > 0 else "")
        yield finding(
            "coverage_low",
            f"The digest cites {len(citable) - len(uncited)} of {len(citable)} documents that "
            f"make claims; it needs {COVERAGE_NEEDED:.0%}. Not cited: {examples}.",
        )
    for path in uncited:
        yield finding("document_uncited", "The digest says nothing about it.", document=path)
