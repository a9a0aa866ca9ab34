"""The code spans of a line of text, as CommonMark has them."""

import re
from collections.abc import Callable, Iterator
from typing import Final

_TICKS: Final = re.compile(r"`+")


def code_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each code span: from a run of backticks to the next one as long."""
    runs = [run.span() for run in _TICKS.finditer(text)]
    ends: list[int | None] = [None] * len(runs)  # which run closes each, if it opens a span
    following: dict[int, int] = {}
    for index in range(len(runs) - 1, -1, -1):
        length = runs[index][1] - runs[index][0]
        ends[index] = following.get(length)
        following[length] = index
    index = 0
    while index < len(runs):
        end = ends[index]
        if end is not None:
            yield runs[index][0], runs[end][1]
            index = end
        index += 1


def without_code(text: str, filler: str = "x") -> str:
    """Return the text with every character of its code spans replaced by the filler."""
    return map_text(text, lambda part: part, lambda code: filler * len(code))


def map_text(text: str, prose: Callable[[str], str], code: Callable[[str], str]) -> str:
    """Return the text with its code spans, and all between them, put through these functions."""
    parts: list[str] = []
    done = 0
    for begin, end in code_spans(text):
        parts += [prose(text[done:begin]), code(text[begin:end])]
        done = end
    return "".join([*parts, prose(text[done:])])
