"""The gates of the review: what a digest must be before more is built on it.

A gate refuses what another attempt of the same agent may well repeat, so a person decides. Problems
of the documents themselves are for the step review, which reports them and continues.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from leasehold import GateContext, GatePolicyFailure
from pipelines.review.checks import check_digest
from pipelines.review.models import Digest, Extraction, Point
from pipelines.review.words import same_words

#: The findings of supervision that are about what a digest rests on.
CITATION_CODES: Final = frozenset(
    {"point_uncited", "citation_unknown", "citation_altered", "summary_elsewhere", "coverage_low"}
)

LONGEST_POINT: Final = 500  # characters; a quotation may be as long as what it quotes
OFFENDERS: Final = 3  # that a finding names…
OFFENDER_SHOWN: Final = 400  # …with so many characters of each


def format_compliance(ctx: GateContext, output: Digest) -> None:
    """Refuse a digest that does not read as one: empty, repeated, overlong or misplaced parts.

    Raises:
        GatePolicyFailure: it names the first of them.
    """
    extraction = Extraction.model_validate(ctx.given)
    _refuse(
        "format_compliance",
        list(_misshapen(output, extraction)),
        f"Read the digest, the output of step {ctx.step_type}. Have it written again "
        f"(leasehold retry {ctx.run_id}), or continue with it as it is (leasehold approve "
        f"{ctx.run_id}). If it comes back like this, the agent cannot do it: choose another with "
        "REVIEW_AGENT or REVIEW_MODEL.",
    )


def citation_coverage(ctx: GateContext, output: Digest) -> None:
    """Refuse a digest with a point that quotes no claim word for word, or of too few documents.

    Raises:
        GatePolicyFailure: it names the first of them.
    """
    extraction = Extraction.model_validate(ctx.given)
    findings = check_digest(output, extraction)
    _refuse(
        "citation_coverage",
        [each.message for each in findings if each.code in CITATION_CODES],
        "Do not pass the digest on: look up the places named. Have it written again "
        f"(leasehold retry {ctx.run_id}); if it comes back like this, choose another agent with "
        "REVIEW_AGENT or REVIEW_MODEL. Continue with it as it is (leasehold approve "
        f"{ctx.run_id}) only to see the report, which will fail it.",
    )


def _refuse(check_id: str, problems: Sequence[str], remediation: str) -> None:
    if not problems:
        return
    listed = " ".join(
        f"({number}) {problem[:OFFENDER_SHOWN]}"
        for number, problem in enumerate(problems[:OFFENDERS], start=1)
    )
    more = len(problems) - OFFENDERS
    raise GatePolicyFailure(
        check_id, listed + (f" And {more} more." if more > 0 else ""), remediation
    )


def _misshapen(digest: Digest, extraction: Extraction) -> Iterator[str]:
    claims = sum(len(document.claims) for document in extraction.documents)
    if claims and not digest.points:
        yield f"The digest has no key points; the documents make {claims} claims."
    if len(digest.points) > extraction.points:
        yield f"The digest has {len(digest.points)} key points; allowed: {extraction.points}."
    yield from _misshapen_points("Key point", digest.points)
    citable = [document.path for document in extraction.documents if document.claims]
    for summary in digest.summaries:
        if summary.document not in citable:
            yield f"There is more than one summary of {summary.document}, or it makes no claims."
        else:
            citable.remove(summary.document)
        if not summary.points:
            yield f"The summary of {summary.document} is empty."
        yield from _misshapen_points(f"Summary of {summary.document}, point", summary.points)


def _misshapen_points(name: str, points: Sequence[Point]) -> Iterator[str]:
    first: dict[object, int] = {}
    for number, point in enumerate(points, start=1):
        excerpt = repr(point.text[:80])
        earlier = first.setdefault(same_words(point.text), number)
        if earlier != number:
            yield f"{name}s {earlier} and {number} say the same: “{points[earlier - 1].text}”"
        elif not point.text.strip():
            yield f"{name} {number} is empty."
        elif any(point.text == each.quote for each in point.citations):
            continue  # it says what the document says, however that is written
        elif not point.text.isprintable():
            yield f"{name} {number} is not one line of text: {excerpt}."
        elif len(point.text) > LONGEST_POINT:
            size = f"{len(point.text)} characters; allowed: {LONGEST_POINT}"
            yield f"{name} {number} has {size}: {excerpt}…"
