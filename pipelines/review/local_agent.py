"""An agent that works on this machine, without a model and without a key.

It is extractive: it says nothing that does not stand in the documents, word for word, and the
same documents always give the same answers.
"""

from collections.abc import Callable, Sequence
from typing import Final

from pipelines.review.cues import cue, lead
from pipelines.review.local_objections import local_objections
from pipelines.review.models import Claim
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
from pipelines.review.salience import centrality, fold, pick_diverse, vectors
from pipelines.review.vocabulary import notable

TERMS: Final = 12
LEAD_BONUS: Final = 0.4  # what opens a document says most about it
DIGEST_ANSWERS: Final = 8  # a digest is over all documents; it takes the time of so many answers


class LocalAgent:
    """Picks claims by cue words, and condenses by centrality and diversity of their terms.

    Args:
        think: called before each answer, with the number of answers whose time it takes.
    """

    name = "local extractive agent"

    def __init__(self, think: Callable[[int], None] = lambda _: None) -> None:
        self._think = think

    def claims(self, excerpt: Excerpt) -> Sequence[Pick]:
        """Pick the sentences with a cue, and the first whole sentence of the document."""
        self._think(1)
        picks: list[Pick] = []
        opened = any(sentence.number > 0 for sentence in excerpt.sentences[:1])
        for sentence in excerpt.sentences:
            claim = cue(sentence.text)
            opening = None if opened else lead(sentence.text)
            if opening is not None:
                opened = True
                weight = max(opening, claim[1] if claim else 0.0)
                picks.append(Pick(number=sentence.number, kind="lead", weight=weight))
            elif claim is not None:
                picks.append(Pick(number=sentence.number, kind=claim[0], weight=claim[1]))
        return picks

    def summary(self, given: DocumentClaims) -> Sequence[DraftPoint]:
        """Return the document's most central and weighty claims, in its own order."""
        self._think(1)
        groups = _fold(given.claims, given.avoid)
        texts = [group[0].text for group in groups]
        every_vector = vectors(texts)
        scores = [
            0.5 * central + 0.5 * group[0].weight + LEAD_BONUS * (group[0].kind == "lead")
            for central, group in zip(centrality(every_vector), groups, strict=True)
        ]
        picked = pick_diverse(scores, every_vector, given.points)
        return [_point(groups[index]) for index in sorted(picked)]

    def digest(self, given: FolderClaims) -> DigestDraft:
        """Return the claims that are central, weighty, in many documents, and unlike each other."""
        self._think(DIGEST_ANSWERS)
        groups = _fold(given.claims, given.avoid)
        texts = [group[0].text for group in groups]
        every_vector = vectors(texts)
        scores = [
            0.4 * central + 0.4 * group[0].weight + 0.1 * _spread(group) + 0.1 * _opens(group)
            for central, group in zip(centrality(every_vector), groups, strict=True)
        ]
        sources = [group[0].document for group in groups]
        picked = pick_diverse(scores, every_vector, given.points, sources=sources)
        return DigestDraft(
            points=tuple(_point(groups[index]) for index in picked),
            terms=tuple(notable(texts, TERMS)),
        )

    def objections(self, given: Inspection) -> Sequence[Objection]:
        """Return what the words of the points and of their quotations give away."""
        self._think(1)
        return local_objections(given)


def _fold(claims: Sequence[Claim], avoid: Sequence[str]) -> list[list[Claim]]:
    """Group the claims that say the same, without those that are to be avoided."""
    said = [claim for claim in claims if claim.text not in avoid]
    return [[said[index] for index in group] for group in fold([claim.text for claim in said])]


def _spread(group: Sequence[Claim]) -> float:
    """Return 0 for a claim of one document, 0.5 for one of two, and so on towards 1."""
    return 1 - 1 / len({claim.document for claim in group})


def _opens(group: Sequence[Claim]) -> bool:
    return any(claim.kind == "lead" for claim in group)


def _point(group: Sequence[Claim]) -> DraftPoint:
    return DraftPoint(text=group[0].text, claims=tuple(claim.id for claim in group))
