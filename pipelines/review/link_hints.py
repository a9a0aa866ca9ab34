"""Targets that a broken link may have meant, if they are cheap to find."""

import posixpath
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cached_property
from itertools import takewhile
from typing import Final

from pipelines.review.anchors import slug
from pipelines.review.folder_tree import SUFFIXES

ALIKE: Final = 0.75  # of difflib's ratio, from which an anchor may be meant…
TYPO: Final = 0.88  # …and a file's name
LONGEST: Final = 120  # characters of texts that are compared letter by letter

#: The work for all hints of a review: each name that is looked at is one unit, and each that is
#: compared letter by letter one more for each so many pairs of letters. Then hints are left out.
WORK: Final = 1_000_000
PAIRS_A_UNIT: Final = 100


class LinkHints:
    """What links may have meant that lead to no document or anchor of these.

    Args:
        anchors: those of each document, by its path.
        work: how much may be done for all hints together.
    """

    def __init__(self, anchors: Mapping[str, frozenset[str]], work: int = WORK) -> None:
        self._anchors = anchors
        self._left = work
        self._sorted: dict[str, Sequence[str]] = {}
        self._cache: dict[tuple[str, ...], str] = {}

    def path(self, document: str, path: str, anchor: str) -> str:
        """Return the document that a link from `document` may have meant, or nothing."""
        key = (document, path, anchor)
        if key not in self._cache:
            self._cache[key] = self._path(document, path, anchor)
        return self._cache[key]

    def anchor(self, document: str, target: str, anchor: str) -> str:
        """Return the anchor that a link from `document` to `target` may have meant, or nothing."""
        key = (document, target, "#", anchor)
        if key not in self._cache:
            self._cache[key] = self._anchor(document, target, anchor)
        return self._cache[key]

    def _path(self, document: str, path: str, anchor: str) -> str:
        if posixpath.splitext(path)[1].lower() not in {"", *SUFFIXES}:
            return ""
        name = stem(path)
        if name not in self._by_stem:
            name = self._closest(name, self._by_stem, TYPO)
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(document), path.lstrip("/")))
        others = (each for each in self._by_stem.get(name, ()) if each != document)
        best = self._nearest(wanted, others, 0.0)
        if not best:
            return ""
        return _relative(best, document) + (f"#{anchor}" if anchor in self._anchors[best] else "")

    def _anchor(self, document: str, target: str, anchor: str) -> str:
        if target not in self._sorted:
            self._sorted[target] = sorted(self._anchors[target])
        known, wanted = self._sorted[target], slug(anchor)
        close = wanted if wanted in self._anchors[target] else self._closest(anchor, known, ALIKE)
        if meant := close or _only_one_with(wanted, known):
            return f"#{meant}"
        for other in self._homes.get(anchor, ()):
            if other != target:
                return f"{_relative(other, document)}#{anchor}"
        return ""

    @cached_property
    def _by_stem(self) -> Mapping[str, Sequence[str]]:
        by_stem: dict[str, list[str]] = {}
        for path in self._anchors:
            by_stem.setdefault(stem(path), []).append(path)
        return by_stem

    @cached_property
    def _homes(self) -> Mapping[str, Sequence[str]]:
        """The first two documents that have an anchor: one of them is not the target."""
        homes: dict[str, list[str]] = {}
        for path in sorted(self._anchors):
            for anchor in self._anchors[path]:
                having = homes.setdefault(anchor, [])
                if len(having) < 2:  # noqa: PLR2004
                    having.append(path)
        return homes

    def _closest(self, wanted: str, known: Iterable[str], likeness: float) -> str:
        """Return the one nearest in spelling, if any is near; it begins or ends the same."""
        ends = {wanted[:1], wanted[-1:]}
        looked_at = takewhile(lambda _: self._spend(1), known)
        same_end = (each for each in looked_at if not ends.isdisjoint({each[:1], each[-1:]}))
        return self._nearest(wanted, same_end, likeness)

    def _nearest(self, wanted: str, known: Iterable[str], likeness: float) -> str:
        wanted = wanted[:LONGEST]
        matcher = SequenceMatcher(b=wanted, autojunk=False)
        best = (likeness, "")
        for each in known:
            letters = each[:LONGEST]
            if not self._spend(1 + len(letters) * len(wanted) // PAIRS_A_UNIT):
                break
            matcher.set_seq1(letters)
            if matcher.real_quick_ratio() >= best[0] and matcher.quick_ratio() >= best[0]:
                best = max(best, (matcher.ratio(), each))
        return best[1] if self._left >= 0 else ""

    def _spend(self, work: int) -> bool:
        """Return whether so much may still be done, and count it."""
        self._left -= work
        return self._left >= 0


def stem(path: str) -> str:
    """Return the last part of a path without its ending, in lower case; a folder's own name."""
    return posixpath.splitext(posixpath.basename(path.rstrip("/")))[0].lower()


def _only_one_with(beginning: str, known: Sequence[str]) -> str:
    """Return the only one of these sorted names that begins like this, if it is the only one."""
    first = bisect_left(known, beginning)
    begins = [each for each in known[first : first + 2] if each.startswith(beginning)]
    return begins[0] if beginning and len(begins) == 1 else ""


def _relative(path: str, document: str) -> str:
    return posixpath.relpath(path, posixpath.dirname(document) or ".")
