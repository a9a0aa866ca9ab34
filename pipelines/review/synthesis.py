"""Step synthesis: a digest of the documents, each statement with what it rests on.

Given:   Extraction, and the settings of this trial, which its entry action wrote.
Gives:   Digest: key points over all documents, and a summary of each.
Fails:   AgentClientError from the agent, or when it cites a claim that there is not.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import TypeAdapter

from leasehold import AgentClientError, StepContext
from pipelines.review import task_config
from pipelines.review.agent import Agent, chosen_agent
from pipelines.review.models import (
    Citation,
    Claim,
    Digest,
    Document,
    Extraction,
    Point,
    Summary,
)
from pipelines.review.questions import DocumentClaims, DraftPoint, FolderClaims
from pipelines.review.task_config import TaskConfig

SHORTLIST: Final = 300  # claims that an agent weighs at once, of all documents together…
SHORTLIST_EACH: Final = 6  # …but this many of each document at least
_POINTS: Final = TypeAdapter(list[tuple[Point, ...]])


def synthesize(ctx: StepContext, given: Extraction) -> Digest:
    """Let the agent summarise each document, then digest them all."""
    agent, config = chosen_agent(ctx), task_config.read(ctx)
    known = {claim.id: claim for document in given.documents for claim in document.claims}
    citable = [document for document in given.documents if document.path in config.documents]
    earlier = _kept_summaries(ctx, config)
    loop = ctx.checkpointed(citable, phase="summaries")
    for document in loop:
        points = earlier.get(document.path) or _summary(agent, document, config)
        loop.results.append(points)
        ctx.progress(0.7 * len(loop.results) / len(citable), f"summary of {document.path}")
    said = zip(citable, _POINTS.validate_python(loop.results), strict=True)
    claims = shortlist(citable)
    said_of_all = agent.digest(
        FolderClaims(claims=claims, points=config.points, avoid=config.avoid)
    )
    drafts = _without(config.avoid, said_of_all)[: config.points]
    ctx.progress(1.0, f"{len(drafts)} key points from {len(claims)} claims")
    return Digest(
        agent=agent.name,
        points=with_citations(drafts, known),
        summaries=tuple(
            Summary(document=document.path, points=points) for document, points in said if points
        ),
    )


def shortlist(documents: Sequence[Document]) -> tuple[Claim, ...]:
    """Return the weightiest claims of each document, in the order of documents and lines."""
    each = max(SHORTLIST_EACH, SHORTLIST // max(1, len(documents)))
    chosen: list[Claim] = []
    for document in documents:
        weightiest = sorted(document.claims, key=lambda claim: -claim.weight)[:each]
        chosen += sorted(weightiest, key=document.claims.index)
    return tuple(chosen)


def with_citations(drafts: Sequence[DraftPoint], known: Mapping[str, Claim]) -> tuple[Point, ...]:
    """Give each draft the citations of its claims.

    Raises:
        AgentClientError: a draft names a claim that is not known, or none at all. Retryable.
    """
    wrong = [
        {"point": draft.text, "claims": list(draft.claims)}
        for draft in drafts
        if not draft.claims or any(claim not in known for claim in draft.claims)
    ]
    if wrong:
        raise AgentClientError(
            f"The agent gave {len(wrong)} of {len(drafts)} points without a claim that exists.",
            code="bad_citations",
            details=wrong,
        )
    return tuple(
        Point(text=draft.text, citations=tuple(_citation(known[claim]) for claim in draft.claims))
        for draft in drafts
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
    question = DocumentClaims(
        document=document.path,
        title=document.title or document.path,
        claims=document.claims,
        points=3 if document.words > 1500 else 2,  # noqa: PLR2004
        avoid=config.avoid,
    )
    drafts = _without(config.avoid, agent.summary(question))[: question.points]
    return with_citations(drafts, {claim.id: claim for claim in document.claims})


def _without(avoid: Sequence[str], drafts: Sequence[DraftPoint]) -> list[DraftPoint]:
    """Return the drafts but for those that were refused: an agent may not listen."""
    return [draft for draft in drafts if draft.text not in avoid]


def _citation(claim: Claim) -> Citation:
    return Citation(claim=claim.id, document=claim.document, line=claim.line, quote=claim.text)
