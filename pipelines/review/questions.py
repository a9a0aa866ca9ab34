"""The questions to an agent and its answers. Each fits one call of a model.

An agent names sentences and claims by number and id instead of quoting them, so a citation is
word for word from the document.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from pipelines.review.models import Claim, ClaimKind, Record


class Numbered(Record):
    """A sentence, its number in the excerpt, and the heading path it stands under."""

    number: int
    section: str
    text: str


class Excerpt(Record):
    """Sentences of one document in reading order: which of them state something checkable?"""

    document: str
    title: str
    sentences: tuple[Numbered, ...]


class Pick(Record):
    """A sentence that states something checkable. `weight`, 0 to 1: how much it states."""

    number: int
    kind: ClaimKind
    weight: float = Field(ge=0, le=1)


class DocumentClaims(Record):
    """The claims of one document: what does it say, in at most `points` points?

    `avoid` was refused before, and must not come again.
    """

    document: str
    title: str
    claims: tuple[Claim, ...]
    points: int
    avoid: tuple[str, ...] = ()


class FolderClaims(Record):
    """The weightiest claims of all documents: what matters most, in at most `points` points?

    `avoid` was refused before, and must not come again.
    """

    claims: tuple[Claim, ...]
    points: int
    avoid: tuple[str, ...] = ()


def _on_one_line(text: Any) -> Any:
    return " ".join(text.split()) if isinstance(text, str) else text


class DraftPoint(Record):
    """A statement and the ids of the claims it rests on, the best first."""

    text: Annotated[str, BeforeValidator(_on_one_line), Field(min_length=1)]
    claims: tuple[str, ...]


Aspect = Literal["support", "strength", "sense", "repetition", "contradiction"]


class QuotedPoint(Record):
    """A key point of a digest, its number, and what it quotes."""

    number: int
    text: str
    quotes: tuple[str, ...]


class Inspection(Record):
    """The key points of a digest: which of them are wrong under this one aspect?

    `support`: its quotations do not say it. `strength`: it says more than they do. `sense`: it says
    the opposite. `repetition`, `contradiction`: of another point.
    """

    aspect: Aspect
    points: tuple[QuotedPoint, ...]


class Objection(Record):
    """The problem of a point, by its number."""

    point: int
    reason: Annotated[str, BeforeValidator(_on_one_line)]
