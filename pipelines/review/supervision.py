"""Supervision: an agent looks at a digest five times, each time under another aspect.

Each look is one iteration: it is kept as a checkpoint, and the call to the agent, which costs time
and money, is made once, however often the step is begun again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol, get_args

from leasehold import AgentClientError, StepContext
from pipelines.review.findings import finding
from pipelines.review.models import Digest, Finding, Record, Supervision
from pipelines.review.questions import Aspect, Inspection, Objection, QuotedPoint

#: What is looked at, in this order.
ASPECTS: Final[Sequence[Aspect]] = get_args(Aspect)

#: That of its checkpoints.
PHASE: Final = "supervision"

_CODES: Final[Mapping[Aspect, str]] = {
    "support": "point_unsupported",
    "strength": "point_overstated",
    "sense": "point_reversed",
    "repetition": "point_repeated",
    "contradiction": "points_contradict",
}
_LONGEST_REASON: Final = 300  # characters, whatever an agent says


class Inspector(Protocol):
    """An agent, as far as it looks at digests."""

    def objections(self, given: Inspection) -> Sequence[Objection]:
        """See `Agent`."""
        ...


class Look(Record):
    """The objections of the agent under one aspect, and the attempt that asked for them."""

    aspect: Aspect
    attempt: int
    objections: tuple[Objection, ...]


def looks_at(ctx: StepContext, agent: Inspector, digest: Digest) -> Sequence[Look]:
    """Have the agent look at the digest under each aspect; not at all, where it has no points.

    Raises:
        AgentClientError: it fails, or objects to a point that there is not. Retryable.
    """
    points = _quoted(digest)
    looks = ctx.checkpointed(ASPECTS if points else (), every=1, phase=PHASE)
    for aspect in looks:
        question = Inspection(aspect=aspect, points=points)
        looks.results.append(ctx.once(f"{PHASE}:{aspect}", _look, agent, question, ctx.attempt))
        ctx.progress(len(looks.results) / len(ASPECTS), f"supervised for {aspect}")
    return [Look.model_validate(each) for each in looks.results]


def objected(looks: Sequence[Look], digest: Digest) -> Iterator[Finding]:
    """Yield a finding for each objection."""
    for look in looks:
        for objection in look.objections:
            point = digest.points[objection.point - 1]
            cited = point.citations[0] if point.citations else None
            yield finding(
                _CODES[look.aspect],
                f"The digest says “{point.text}”. {objection.reason[:_LONGEST_REASON]}",
                document=cited.document if cited else None,
                line=cited.line if cited else None,
                point=point.text,
            )


def account(ctx: StepContext, looks: Sequence[Look]) -> Supervision:
    """Return what the supervision took over all attempts."""
    return Supervision(
        trial=ctx.trial,
        attempts=ctx.attempt,
        iterations=len(looks),
        calls=len(looks),
        calls_before=sum(look.attempt < ctx.attempt for look in looks),
    )


def _look(agent: Inspector, question: Inspection, attempt: int) -> Look:
    """Ask the agent: the expensive call. An answer that does not fit is not kept."""
    objections = {each.point: each for each in agent.objections(question)}
    known = {point.number for point in question.points}
    if unknown := sorted(objections.keys() - known):
        raise AgentClientError(
            f"The agent objects to {len(unknown)} points that the digest does not have.",
            code="bad_objections",
            details={"aspect": question.aspect, "unknown": unknown[:20], "points": len(known)},
        )
    return Look(aspect=question.aspect, attempt=attempt, objections=tuple(objections.values()))


def _quoted(digest: Digest) -> tuple[QuotedPoint, ...]:
    return tuple(
        QuotedPoint(
            number=number, text=point.text, quotes=tuple(each.quote for each in point.citations)
        )
        for number, point in enumerate(digest.points, start=1)
    )
