"""An agent that works on this machine, without a model and without a key.

It is extractive: it says nothing that does not stand in the documents, word for word, and the
same documents always give the same answers.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from pipelines.review.models import Claim, ClaimKind
from pipelines.review.questions import (
    Aspect,
    DocumentClaims,
    DraftPoint,
    Excerpt,
    FolderClaims,
    Inspection,
    Objection,
    Pick,
    QuotedPoint,
)
from pipelines.review.words import numbers, same_words, terms, words

LONGEST_CLAIM: Final = 500  # characters; what is longer states too much to be checked
LEAD: Final = 0.65  # weight of the sentence that opens a document…
LEAD_BONUS: Final = 0.4  # …and what it gains in a summary
COMMON_BONUS: Final = 0.5  # in a digest, for words that many claims have…
SPREAD_BONUS: Final = 0.2  # …and for what many documents say
ALIKE: Final = 0.5  # share of common words from which a claim adds too little to another
DIGEST_ANSWERS: Final = 8  # a digest is over all documents; it takes the time of so many answers
SUPPORT_NEEDED: Final = 0.5  # share of a point's words that its quotations have

#: What shows that a sentence states something checkable: the first that fits gives its kind, and
#: how much it states.
CUES: Final[Sequence[tuple[ClaimKind, float, re.Pattern[str]]]] = (
    ("number", 0.8, re.compile(r"(?<![\w.])\d[\d.,]*\s?(?:%|°|[a-zµ])")),
    (
        "rule",
        0.75,
        re.compile(
            r"\b(?:must|shall|never|always|requires?|required|forbidden|cannot|not allowed"
            r"|at most once|exactly one|guaranteed?|by default|only (?:if|when|after|once|one))\b"
        ),
    ),
    (
        "comparison",
        0.7,
        re.compile(r"\b\w+er than\b|\b(?:more|less|rather) than\b|\bat (?:least|most)\b|\bup to\b"),
    ),
    ("definition", 0.7, re.compile(r"\b(?:is|are) (?:an?|the)\b|\b(?:means|stands for)\b")),
    ("number", 0.55, re.compile(r"(?<![\w.#-])\d[\d.,]*(?![\w-])")),
)
#: What a sentence begins with that leans on the sentence before it.
LEANING: Final = re.compile(r"(?:th(?:is|at|ese|ose|en|ey)|it|its|so|but|and|or|also|such|both)\b")

STRONG: Final = words("all always every must never none only shall")
NEGATIONS: Final = words("cannot never no none nor not nothing without")


class LocalAgent:
    """Picks claims by cue words, and condenses by their weight and the difference of their words.

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
            if not _is_statement(sentence.text):
                continue
            kind, weight = _cue(sentence.text)
            if not opened:
                opened, kind, weight = True, "lead", max(LEAD, weight)
            if kind is not None:
                weight *= _form(sentence.text)
                picks.append(Pick(number=sentence.number, kind=kind, weight=round(weight, 3)))
        return picks

    def summary(self, given: DocumentClaims) -> Sequence[DraftPoint]:
        """Return the document's weightiest claims, in its own order."""
        self._think(1)
        picked = _pick(given, lambda group: LEAD_BONUS * (group[0].kind == "lead"))
        order = {claim.id: number for number, claim in enumerate(given.claims)}
        return [_point(group) for group in sorted(picked, key=lambda group: order[group[0].id])]

    def digest(self, given: FolderClaims) -> Sequence[DraftPoint]:
        """Return the claims that are weighty, in many documents, and unlike each other."""
        self._think(DIGEST_ANSWERS)
        said = Counter(term for claim in given.claims for term in set(terms(claim.text)))
        most = max(said.values(), default=1)

        def bonus(group: Sequence[Claim]) -> float:
            its = terms(group[0].text) or [""]
            common = sum(said[term] for term in its) / len(its) / most
            return COMMON_BONUS * common + SPREAD_BONUS * _spread(group)

        return [_point(group) for group in _pick(given, bonus)]

    def objections(self, given: Inspection) -> Sequence[Objection]:
        """Return what the words of the points and of their quotations give away.

        A point that says word for word what it quotes is never objected to for itself.
        """
        self._think(1)
        return tuple(_RULES[given.aspect](given.points))


def _is_statement(sentence: str) -> bool:
    """Say whether it is prose and whole: no fragment, question or announcement, not all code."""
    if len(sentence) > LONGEST_CLAIM:
        return False
    bare = re.sub(r"`[^`]*`", " ", sentence)
    letters = sum(character.isalpha() for character in bare)
    return (
        len(bare.split()) >= 4  # noqa: PLR2004
        and letters >= 0.6 * len(sentence)
        and not sentence.endswith(("?", ":", "…", "..."))
    )


def _cue(sentence: str) -> tuple[ClaimKind | None, float]:
    bare = re.sub(r"`[^`]*`", "x", sentence).lower()
    return next(
        ((kind, weight) for kind, weight, pattern in CUES if pattern.search(bare)), (None, 0.0)
    )


def _form(sentence: str) -> float:
    """Return a factor from 0 to 1: how well the sentence stands alone."""
    count = len(sentence.split())
    length = min(1.0, count / 8) * min(1.0, 35 / count)
    return length * (0.6 if LEANING.match(sentence.lower()) else 1.0)


def _pick(
    given: DocumentClaims | FolderClaims, bonus: Callable[[Sequence[Claim]], float]
) -> list[list[Claim]]:
    """Return the best groups of claims that say the same, each unlike the others."""
    groups: dict[object, list[Claim]] = {}
    for claim in given.claims:
        if claim.text not in given.avoid:
            groups.setdefault(same_words(claim.text), []).append(claim)
    picked: list[list[Claim]] = []
    said: list[tuple[frozenset[str], frozenset[str]]] = []
    for group in sorted(groups.values(), key=lambda group: -(group[0].weight + bonus(group))):
        if len(picked) == given.points:
            break
        its, figures = same_words(group[0].text)
        if not any(
            figures == others and len(its & each) >= ALIKE * len(its | each)
            for each, others in said
        ):
            picked.append(group)
            said.append((its, figures))
    return picked


def _spread(group: Sequence[Claim]) -> float:
    """Return 0 for a claim of one document, 0.5 for one of two, and so on towards 1."""
    return 1 - 1 / len({claim.document for claim in group})


def _point(group: Sequence[Claim]) -> DraftPoint:
    return DraftPoint(text=group[0].text, claims=tuple(claim.id for claim in group))


def _unsupported(points: Sequence[QuotedPoint]) -> Iterator[Objection]:
    for point in points:
        said, quoted = set(terms(point.text)), set(terms(" ".join(point.quotes)))
        if len(said & quoted) < SUPPORT_NEEDED * len(said):
            missing = ", ".join(sorted(said - quoted)[:3])
            yield Objection(point=point.number, reason=f"It quotes nothing about {missing}.")


def _overstated(points: Sequence[QuotedPoint]) -> Iterator[Objection]:
    for point in points:
        if stronger := sorted(words(point.text) & STRONG - words(" ".join(point.quotes))):
            reason = f"None of its quotations says “{stronger[0]}”."
            yield Objection(point=point.number, reason=reason)


def _reversed(points: Sequence[QuotedPoint]) -> Iterator[Objection]:
    for point in points:
        denies = bool(words(point.text) & NEGATIONS)
        if point.quotes and all(bool(words(each) & NEGATIONS) != denies for each in point.quotes):
            reason = f"It {'denies' if denies else 'affirms'}, and its quotations do not."
            yield Objection(point=point.number, reason=reason)


def _repeated(points: Sequence[QuotedPoint]) -> Iterator[Objection]:
    first: dict[object, int] = {}
    for point in points:
        earlier = first.setdefault(same_words(point.text), point.number)
        if earlier != point.number:
            yield Objection(point=point.number, reason=f"It says what point {earlier} says.")


def _contradicted(points: Sequence[QuotedPoint]) -> Iterator[Objection]:
    """Object to what differs from an earlier point by nothing but its numbers."""
    first: dict[object, QuotedPoint] = {}
    for point in points:
        said, _ = same_words(point.text)
        earlier = first.setdefault(said, point)
        if numbers(earlier.text) != numbers(point.text):
            reason = f"It gives another number than point {earlier.number}."
            yield Objection(point=point.number, reason=reason)


_RULES: Final[Mapping[Aspect, Callable[[Sequence[QuotedPoint]], Iterator[Objection]]]] = {
    "support": _unsupported,
    "strength": _overstated,
    "sense": _reversed,
    "repetition": _repeated,
    "contradiction": _contradicted,
}
