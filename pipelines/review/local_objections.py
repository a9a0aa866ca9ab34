"""What can be known of a digest's points without a model: by their words, beside those they quote.

A point that says word for word what it quotes is never objected to for itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from pipelines.review.checks import TELLING_WORDS
from pipelines.review.questions import Aspect, Inspection, Objection, QuotedPoint
from pipelines.review.salience import fold
from pipelines.review.vocabulary import NUMBER, WORD, numbers, terms

SUPPORT_NEEDED: Final = 0.5  # share of a point's words that its quotations have
STRONG: Final = frozenset(["all", "always", "every", "must", "never", "none", "only", "shall"])
NEGATIONS: Final = frozenset(
    ["cannot", "never", "no", "nobody", "none", "nor", "not", "nothing", "without"]
)

Objections = Iterator[Objection]


def local_objections(given: Inspection) -> Sequence[Objection]:
    """Return the points that are wrong under the aspect, with the reason."""
    return tuple(_RULES[given.aspect](given.points))


def _unsupported(points: Sequence[QuotedPoint]) -> Objections:
    for point in points:
        words, quoted = set(terms(point.text)), set(terms(" ".join(point.quotes)))
        if len(words & quoted) < SUPPORT_NEEDED * len(words):
            missing = ", ".join(sorted(words - quoted)[:3])
            yield Objection(point=point.number, reason=f"It quotes nothing about {missing}.")


def _overstated(points: Sequence[QuotedPoint]) -> Objections:
    for point in points:
        if stronger := sorted(_words(point.text) & STRONG - _words(*point.quotes)):
            reason = f"None of its quotations says “{stronger[0]}”."
            yield Objection(point=point.number, reason=reason)


def _reversed(points: Sequence[QuotedPoint]) -> Objections:
    for point in points:
        denies = bool(_words(point.text) & NEGATIONS)
        if point.quotes and all(bool(_words(each) & NEGATIONS) != denies for each in point.quotes):
            reason = f"It {'denies' if denies else 'affirms'}, and its quotations do not."
            yield Objection(point=point.number, reason=reason)


def _repeated(points: Sequence[QuotedPoint]) -> Objections:
    for first, *others in fold([point.text for point in points]):
        for other in others:
            reason = f"It says what point {points[first].number} says."
            yield Objection(point=points[other].number, reason=reason)


def _contradicted(points: Sequence[QuotedPoint]) -> Objections:
    """Object to what differs from an earlier point by nothing but its numbers."""
    first: dict[str, QuotedPoint] = {}
    for point in points:
        words = terms(NUMBER.sub("", point.text))
        earlier = first.setdefault(" ".join(words), point)
        if len(words) >= TELLING_WORDS and numbers(earlier.text) != numbers(point.text):
            reason = f"It gives another number than point {earlier.number}."
            yield Objection(point=point.number, reason=reason)


def _words(*texts: str) -> frozenset[str]:
    return frozenset(word.lower() for text in texts for word in WORD.findall(text))


_RULES: Final[Mapping[Aspect, Callable[[Sequence[QuotedPoint]], Objections]]] = {
    "support": _unsupported,
    "strength": _overstated,
    "sense": _reversed,
    "repetition": _repeated,
    "contradiction": _contradicted,
}
