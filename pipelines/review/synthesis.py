"""Step synthesis: a digest of the documents, each statement with what it rests on.

Given:   Extraction, and the settings of this trial, which its entry action wrote.
Gives:   Digest: key points over all documents, a summary of each, and notable terms.
Fails:   AgentClientError from the agent, or when it cites a claim that there is not.
"""

from collections.abc import Sequence

from leasehold import StepContext
from pipelines.review import task_config
from pipelines.review.agent import Agent, chosen_agent
from pipelines.review.citations import count_terms, shortlist, with_citations
from pipelines.review.models import Digest, Document, Extraction, Point, Summary
from pipelines.review.questions import DocumentClaims, DraftPoint, FolderClaims
from pipelines.review.task_config import TaskConfig


def synthesize(ctx: StepContext, given: Extraction) -> Digest:
    """Let the agent summarise each document, then digest them all."""
    agent, config = chosen_agent(ctx), task_config.read(ctx)
    known = {claim.id: claim for document in given.documents for claim in document.claims}
    citable = [document for document in given.documents if document.path in config.documents]
    earlier = _kept_summaries(ctx, config)
    summaries = []
    for count, document in enumerate(citable, start=1):
        if points := earlier.get(document.path) or _summary(agent, document, config):
            summaries.append(Summary(document=document.path, points=points))
        if count % max(1, len(citable) // 10) == 0:
            ctx.progress(0.7 * count / len(citable), f"summaries of {count} documents")
    claims = shortlist(citable)
    draft = agent.digest(FolderClaims(claims=claims, points=config.points, avoid=config.avoid))
    drafts = _without(config.avoid, draft.points)[: config.points]
    ctx.progress(1.0, f"{len(drafts)} key points from {len(claims)} claims")
    return Digest(
        agent=agent.name,
        points=with_citations(drafts, known),
        summaries=tuple(summaries),
        terms=count_terms(draft.terms, list(known.values())),
    )


def _kept_summaries(ctx: StepContext, config: TaskConfig) -> dict[str, tuple[Point, ...]]:
    """Return the summaries of the trial before of which nothing grave was found."""
    if config.trial == 1:
        return {}
    earlier = Digest.model_validate(ctx.output_of(ctx.step_type))
    return {
        summary.document: summary.points
        for summary in earlier.summaries
        if not any(point.text in config.avoid for point in summary.points)
    }


def _summary(agent: Agent, document: Document, config: TaskConfig) -> tuple[Point, ...]:
    """Return what the agent says of the document; nothing, where it has nothing to say."""
    question = _question(document, config)
    drafts = _without(config.avoid, agent.summary(question))[: question.points]
    return with_citations(drafts, {claim.id: claim for claim in document.claims})


def _question(document: Document, config: TaskConfig) -> DocumentClaims:
    return DocumentClaims(
        document=document.path,
        title=document.title or document.path,
        claims=document.claims,
        points=3 if document.words > 1500 else 2,  # noqa: PLR2004
        avoid=config.avoid,
    )


def _without(avoid: Sequence[str], drafts: Sequence[DraftPoint]) -> list[DraftPoint]:
    """Return the drafts but for those that were refused: an agent may not listen."""
    return [draft for draft in drafts if draft.text not in avoid]
