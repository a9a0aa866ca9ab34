"""Step review: supervision of the digest, independent of the attempt that made it.

Given:   Digest, and the output of extraction.
Gives:   Review: a verdict and its findings, the gravest first; whether the digest is settled, and
         its score, by which the best of several trials is chosen.
Fails:   AgentClientError from the agent, or when it objects to a point that there is not.
"""

from collections.abc import Sequence
from typing import Final, get_args

from leasehold import StepContext
from pipelines.review.agent import chosen_agent
from pipelines.review.checks import all_points, check_digest, check_document, documents_cited
from pipelines.review.gates import CITATION_CODES
from pipelines.review.models import (
    Digest,
    Extraction,
    Finding,
    Review,
    Severity,
    Supervision,
)
from pipelines.review.supervision import Inspector, Look, account, looks_at, objected

GRAVITY: Final = {severity: rank for rank, severity in enumerate(get_args(Severity))}


def supervise(ctx: StepContext, given: Digest) -> Review:
    """Check the digest against its sources, have the agent look at it, and check the documents."""
    return supervised(ctx, given, chosen_agent(ctx))


def supervised(ctx: StepContext, digest: Digest, agent: Inspector) -> Review:
    """Do so with this agent."""
    extraction = Extraction.model_validate(ctx.output_of("extraction"))
    looks = looks_at(ctx, agent, digest)
    return review(digest, extraction, looks, account(ctx, looks))


def review(
    digest: Digest, extraction: Extraction, looks: Sequence[Look], supervision: Supervision
) -> Review:
    """Return the findings of all checks, and what follows from them.

    A digest with something grave in it is not settled: the next trial writes it again. Unless it is
    what the gates look for, which a person has let pass as it is.
    """
    findings = sorted(
        [
            *extraction.findings,
            *check_digest(digest, extraction),
            *objected(looks, digest),
            *(each for document in extraction.documents for each in check_document(document)),
        ],
        key=lambda each: (GRAVITY[each.severity], each.document or "", each.line or 0),
    )
    grave = [each for each in findings if each.severity == "high"]
    citable = {document.path for document in extraction.documents if document.claims}
    return Review(
        verdict="fail" if grave else "pass_with_findings" if findings else "pass",
        settled=not grave or any(each.code in CITATION_CODES for each in findings),
        score=score(digest, grave),
        supervision=supervision,
        citations_checked=sum(len(point.citations) for point in all_points(digest)),
        documents_citable=len(citable),
        documents_cited=len(citable & documents_cited(digest)),
        findings=tuple(findings),
    )


def score(digest: Digest, grave: Sequence[Finding]) -> float:
    """Return the share of the points that nothing grave was found of; without points, 0 or 1."""
    points = [point.text for point in all_points(digest)]
    if not points:
        return 0.0 if grave else 1.0
    named = {each.point for each in grave}
    return round(sum(text not in named for text in points) / len(points), 4)
