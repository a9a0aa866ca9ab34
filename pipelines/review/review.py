"""Step review: supervision of the digest, independent of the agent that made it.

Given:   Digest, and the output of extraction.
Gives:   Review: a verdict and its findings, the gravest first.
"""

from typing import Final, get_args

from leasehold import StepContext
from pipelines.review.checks import (
    all_points,
    check_agreement,
    check_digest,
    check_document,
    documents_cited,
)
from pipelines.review.models import Digest, Extraction, Finding, Review, Severity, Verdict

GRAVITY: Final = {severity: rank for rank, severity in enumerate(get_args(Severity))}


def supervise(ctx: StepContext, given: Digest) -> Review:
    """Check the digest against the extraction, and the documents themselves."""
    extraction = Extraction.model_validate(ctx.output_of("extraction"))
    reviewed = review(given, extraction)
    ctx.progress(1.0, f"{len(reviewed.findings)} findings: {reviewed.verdict}")
    return reviewed


def review(digest: Digest, extraction: Extraction) -> Review:
    """Return the findings of all checks, and the verdict that follows from them."""
    findings = sorted(
        [
            *extraction.findings,
            *check_digest(digest, extraction),
            *(each for document in extraction.documents for each in check_document(document)),
            *check_agreement(extraction),
        ],
        key=lambda each: (GRAVITY[each.severity], each.document or "", each.line or 0),
    )
    citable = {document.path for document in extraction.documents if document.claims}
    return Review(
        verdict=verdict(findings),
        citations_checked=sum(len(point.citations) for point in all_points(digest)),
        documents_citable=len(citable),
        documents_cited=len(citable & documents_cited(digest)),
        findings=tuple(findings),
    )


def verdict(findings: list[Finding]) -> Verdict:
    """Return `fail` when anything is grave: then the digest cannot be trusted."""
    if any(each.severity == "high" for each in findings):
        return "fail"
    return "pass_with_findings" if findings else "pass"
