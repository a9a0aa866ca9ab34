"""Step synthesis: a digest of the documents, each statement with what it rests on.

Given:   Extraction.
Gives:   Digest: key points over all documents, a summary of each, and notable terms.
Fails:   AgentClientError from the agent, or when it cites a claim that there is not.
"""

from leasehold import StepContext
from pipelines.review.agent import Agent, chosen_agent
from pipelines.review.citations import count_terms, shortlist, with_citations
from pipelines.review.models import Digest, Document, Extraction, Point, Summary
from pipelines.review.questions import DocumentClaims, FolderClaims


def synthesize(ctx: StepContext, given: Extraction) -> Digest:
    """Let the agent summarise each document, then digest them all."""
    agent = chosen_agent(ctx)
    known = {claim.id: claim for document in given.documents for claim in document.claims}
    citable = [document for document in given.documents if document.claims]
    summaries = []
    for count, document in enumerate(citable, start=1):
        if points := _summary(agent, document):
            summaries.append(Summary(document=document.path, points=points))
        if count % max(1, len(citable) // 10) == 0:
            ctx.progress(0.7 * count / len(citable), f"summaries of {count} documents")
    claims = shortlist(citable)
    draft = agent.digest(FolderClaims(claims=claims, points=given.points))
    ctx.progress(1.0, f"{len(draft.points)} key points from {len(claims)} claims")
    return Digest(
        agent=agent.name,
        points=with_citations(draft.points[: given.points], known),
        summaries=tuple(summaries),
        terms=count_terms(draft.terms, list(known.values())),
    )


def _summary(agent: Agent, document: Document) -> tuple[Point, ...]:
    """Return what the agent says of the document; nothing, where it has nothing to say."""
    question = _question(document)
    drafts = agent.summary(question)[: question.points]
    return with_citations(drafts, {claim.id: claim for claim in document.claims})


def _question(document: Document) -> DocumentClaims:
    return DocumentClaims(
        document=document.path,
        title=document.title or document.path,
        claims=document.claims,
        points=3 if document.words > 1500 else 2,  # noqa: PLR2004
    )
