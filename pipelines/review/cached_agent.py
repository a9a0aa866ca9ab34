"""An agent whose answers are kept, so that an attempt that failed is not paid for again."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from leasehold import StepContext
from pipelines.review.agent import Agent
from pipelines.review.models import Record
from pipelines.review.questions import (
    DigestDraft,
    DocumentClaims,
    DraftPoint,
    Excerpt,
    FolderClaims,
    Inspection,
    Objection,
    Pick,
)

Q = TypeVar("Q", bound=Record)
A = TypeVar("A")

PICKS: Final[TypeAdapter[Sequence[Pick]]] = TypeAdapter(tuple[Pick, ...])
POINTS: Final[TypeAdapter[Sequence[DraftPoint]]] = TypeAdapter(tuple[DraftPoint, ...])
DRAFT: Final[TypeAdapter[DigestDraft]] = TypeAdapter(DigestDraft)

#: That of the checkpoints with answers; a step that asks through here keeps no other.
PHASE: Final = "answers"

#: A checkpoint holds all answers, so one is written for each such share of them that is new.
NEW_SHARE: Final = 8


class CachedAgent:
    """Asks an agent each question once, over all attempts of a step.

    An answer counts once the step asks about something else: it has looked at it then, and one
    that it refuses is asked for again.

    Args:
        ctx: the attempt, whose checkpoint holds the answers.
        agent: answers what was not asked before.
    """

    def __init__(self, ctx: StepContext, agent: Agent) -> None:
        self._ctx = ctx
        self._agent = agent
        kept = ctx.resume if ctx.resume and ctx.resume.phase == PHASE else None
        self._kept: dict[str, Any] = dict(kept.partial_results) if kept else {}
        self._stored = len(self._kept)
        self._pending: dict[str, Any] = {}
        self._about: str | None = None  # what the pending answers are about

    @property
    def name(self) -> str:
        """Who answers."""
        return self._agent.name

    def claims(self, excerpt: Excerpt) -> Sequence[Pick]:
        """Have the agent pick sentences, unless it did already."""
        return self._once(excerpt.document, excerpt, self._agent.claims, PICKS)

    def summary(self, given: DocumentClaims) -> Sequence[DraftPoint]:
        """Have the agent say what a document says, unless it did."""
        return self._once(given.document, given, self._agent.summary, POINTS)

    def digest(self, given: FolderClaims) -> DigestDraft:
        """Have the agent say what matters most, unless it did."""
        return self._once("", given, self._agent.digest, DRAFT)

    def objections(self, given: Inspection) -> Sequence[Objection]:
        """Have the agent look at a digest; the step keeps each answer itself."""
        return self._agent.objections(given)

    def _once(self, about: str, question: Q, ask: Callable[[Q], A], answers: TypeAdapter[A]) -> A:
        if about != self._about:
            self._about = about
            self._kept |= self._pending
            self._pending = {}
            if (len(self._kept) - self._stored) * NEW_SHARE >= len(self._kept):
                self._store()
        key = self._key(question)
        if key in self._kept:
            try:
                return answers.validate_python(self._kept[key])
            except ValidationError:  # an older version kept it
                del self._kept[key]
        try:
            answer = ask(question)
        except Exception:
            self._store()  # all that was accepted, for the next attempt
            raise
        self._pending[key] = answers.dump_python(answer, mode="json")
        return answer

    def _key(self, question: Record) -> str:
        text = f"{self._agent.name}\n{type(question).__name__}\n{question.model_dump_json()}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _store(self) -> None:
        if len(self._kept) > self._stored:
            self._ctx.checkpoint(len(self._kept), self._kept, PHASE)
            self._stored = len(self._kept)
