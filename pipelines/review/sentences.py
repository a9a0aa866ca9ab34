"""The sentences of a paragraph."""

import re
from collections.abc import Iterator
from typing import Final

from pipelines.review.code_spans import without_code

#: A full stop, what may close after it, and white space; or an East Asian full stop. It begins
#: where the stops begin and gives nothing back: a long row of dots is looked at once.
BOUNDARY: Final = re.compile(
    r"(?<![.!?])[.!?]++[\"'\u201d\u2019)\]]*+\s++"
    r"|[\u3002\uff01\uff1f]++[\u300d\u300f\u201d]?\s*+"
)
OPENING: Final = "([\"'\u201c\u2018"

_ABBREVIATIONS = (
    "e.g i.e eg ie vs cf approx ca fig figs ch vol pp ed eds dr mr mrs ms prof st z.b d.h vgl"
)
_AMBIGUOUS = (
    "no nos sec min max resp incl excl al inc ltd corp dept est etc usw bzw "
    "jan feb mar apr jun jul aug sep sept oct nov dec"
)
ABBREVIATIONS: Final = frozenset(_ABBREVIATIONS.split())  # their full stop ends no sentence
AMBIGUOUS: Final = frozenset(_AMBIGUOUS.split())  # theirs does when a capital follows

LOOK_BACK: Final = 60  # characters before a stop in which the last word is looked for


def split(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of one paragraph as (offset of its first character, sentence)."""
    masked = without_code(text)
    begin = 0
    for boundary in BOUNDARY.finditer(masked):
        if _ends_sentence(masked, begin, boundary):
            yield from _trimmed(text, begin, boundary.end())
            begin = boundary.end()
    yield from _trimmed(text, begin, len(text))


def _ends_sentence(masked: str, begin: int, boundary: re.Match[str]) -> bool:
    if not boundary[0].startswith(".") or boundary[0].startswith(".."):
        return True
    nearest = max(begin, boundary.start() - LOOK_BACK)
    before = masked[nearest : boundary.start()].rsplit(maxsplit=1)
    if not before:
        return nearest > begin  # a stop that follows nothing ends nothing
    written = before[-1].lstrip(OPENING)
    word = written.lower()
    if word in AMBIGUOUS:
        return masked[boundary.end() : boundary.end() + 1].isupper()
    is_list_number = len(before) == 1 and nearest == begin and word.rstrip(".").isdigit()
    is_initial = len(written) == 1 and written.isupper()
    return not (word in ABBREVIATIONS or is_list_number or is_initial)


def _trimmed(text: str, begin: int, end: int) -> Iterator[tuple[int, str]]:
    part = text[begin:end]
    sentence = part.strip()
    if sentence:
        yield begin + len(part) - len(part.lstrip()), sentence
