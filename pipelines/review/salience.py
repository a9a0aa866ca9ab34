"""What matters in a set of sentences: centrality, diversity, duplicates."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Final

from pipelines.review.vocabulary import numbers, terms

Vector = Mapping[str, float]  # of length 1, or empty
Key = tuple[str, frozenset[str]]  # a word and the numbers of a text

COMPARED: Final = 100  # groups that share a rare word with a text, and may say the same
ROUNDING: Final = 1e-9
NEAR: Final = 0.8  # share of common words from which two sentences say the same
RELEVANCE: Final = 0.7  # of a pick, against its being unlike the earlier ones (MMR's lambda)
SAME_SOURCE: Final = 0.4  # likeness at least of two sentences of one document


def vectors(texts: Sequence[str]) -> list[Vector]:
    """Return a vector of length 1 for each text: how often a term is in it, and how rare it is."""
    counts = [Counter(terms(text)) for text in texts]
    spread = Counter(term for count in counts for term in count)
    return [_unit({term: (1 + math.log(n)) * math.log(1 + len(texts) / spread[term])
                   for term, n in count.items()}) for count in counts]  # fmt: skip


def likeness(one: Vector, other: Vector) -> float:
    """Return the cosine of two vectors, 0 to 1."""
    if len(other) < len(one):
        one, other = other, one
    return sum(weight * other.get(term, 0.0) for term, weight in one.items())


def centrality(all_vectors: Sequence[Vector]) -> list[float]:
    """Return for each vector how near it is to the middle of them all; the nearest has 1.

    Source:
        Radev et al., "Centroid-based summarization of multiple documents" (2004).
    """
    middle: defaultdict[str, float] = defaultdict(float)
    for vector in all_vectors:
        for term, weight in vector.items():
            middle[term] += weight
    center = _unit(middle)
    near = [likeness(vector, center) for vector in all_vectors]
    most = max(near, default=0.0) or 1.0
    return [value / most for value in near]


def pick_diverse(
    scores: Sequence[float],
    all_vectors: Sequence[Vector],
    count: int,
    *,
    sources: Sequence[str] = (),
) -> list[int]:
    """Return the indices of `count` items at most: high in score, and unlike those before them.

    Where `sources` are given, two items of one source are alike to some degree.

    Source:
        Carbonell and Goldstein, "The use of MMR" (1998).
    """
    nearest = [0.0] * len(scores)
    left = set(range(len(scores)))
    picked: list[int] = []
    while left and len(picked) < count:
        best = max(left, key=lambda i: (RELEVANCE * scores[i] - (1 - RELEVANCE) * nearest[i], -i))
        left.remove(best)
        picked.append(best)
        for index in left:
            alike = likeness(all_vectors[index], all_vectors[best])
            if sources and sources[index] == sources[best]:
                alike = max(alike, SAME_SOURCE)
            nearest[index] = max(nearest[index], alike)
    return picked


def fold(texts: Sequence[str]) -> list[list[int]]:
    """Group the indices of texts that say the same in nearly the same words and equal numbers.

    Each group begins with its first text, and the groups stand in the order of these.
    """
    groups: list[list[int]] = []
    first_words: list[frozenset[str]] = []  # of each group
    having: defaultdict[Key, list[int]] = defaultdict(list)  # the groups with a word, and figures
    for index, text in enumerate(texts):
        words, figures = frozenset(terms(text)), numbers(text)
        keys = [(word, figures) for word in words]
        group = _group_like(words, [having[key] for key in keys], first_words)
        if group is None:
            group = len(groups)
            groups.append([])
            first_words.append(words)
            for key in keys:
                having[key].append(group)
        groups[group].append(index)
    return groups


def _group_like(
    words: frozenset[str], having: Iterable[list[int]], first_words: Sequence[frozenset[str]]
) -> int | None:
    """Return the first group that says the same as these words; `having` are the groups of each.

    A text that says the same lacks at most a fifth of the words, so one more than a fifth of them
    lead to it: the rarest. Of the groups that they lead to, only a limited number is compared.
    """
    lacking = math.floor((1 - NEAR) * len(words) + ROUNDING)
    rarest = sorted(having, key=len)[: lacking + 1]
    likely = islice(chain.from_iterable(rarest), COMPARED)
    return next((group for group in sorted(likely) if _same(words, first_words[group])), None)


def _same(words: frozenset[str], other: frozenset[str]) -> bool:
    return bool(words) and len(words & other) >= NEAR * len(words | other)


def _unit(weights: Mapping[str, float]) -> Vector:
    length = math.sqrt(sum(weight * weight for weight in weights.values()))
    return {term: weight / length for term, weight in weights.items()} if length else {}
