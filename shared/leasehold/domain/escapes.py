"""How a character is written where it may not stand itself: in addresses, markup and literals."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

#: `%3D` and `%253D`; `&#61;`, `&#x3D;` and `&quot;`, also with an `&amp;` for the `&`; `\u003d`,
#: `\x3d` and `\n`, also within another literal.
_ESCAPE: Final = re.compile(
    r"%(?:25){0,2}(?P<percent>[2-7][0-9A-Fa-f])"
    r"|&(?:amp;){0,2}(?:#(?P<number>\d{2,3})|#[xX](?P<hex>[2-7][0-9A-Fa-f])"
    r"|(?P<word>amp|apos|colon|equals|gt|lt|nbsp|quot));"
    r"|\\{1,4}(?:(?:u00|x)(?P<code>[2-7][0-9A-Fa-f])|(?P<blank>[nrt])(?![\w\\]*[:\\]))"
)
_CHARACTERS: Final = {
    "amp": "&",
    "apos": "'",
    "colon": ":",
    "equals": "=",
    "gt": ">",
    "lt": "<",
    "nbsp": " ",
    "quot": '"',
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
#: Signs that people and their programs put in the place of plain ones, each for one.
_SIGNS: Final = str.maketrans(
    "\u201c\u201d\u201e\u201f\u00ab\u00bb\u2018\u2019\uff1a\uff1d\u00a0\u202f", '""""""\'\':=  '
)


class Unescaped:
    """A text with each character as itself.

    Attributes:
        text: it.
    """

    def __init__(self, text: str) -> None:
        parts: list[str] = []
        self._starts: list[int] = []  # of each part, in the text
        self._origins: list[int] = []  # of each part, in what the text was made of
        place = size = 0
        for found in _ESCAPE.finditer(text):
            for part, origin in (
                (text[place : found.start()], place),
                (_character(found), found.start()),
            ):
                parts.append(part)
                self._starts.append(size)
                self._origins.append(origin)
                size += len(part)
            place = found.end()
        self._starts.append(size)
        self._origins.append(place)
        self.text: Final = "".join([*parts, text[place:]]).translate(_SIGNS)

    def origin(self, place: int) -> int:
        """Return where the character at this place began in what the text was made of."""
        part = bisect_right(self._starts, place) - 1
        return self._origins[part] + place - self._starts[part]


def has_escapes(text: str) -> bool:
    """Return whether a character in it may stand for another one."""
    return not text.isascii() or _ESCAPE.search(text) is not None


def _character(found: re.Match[str]) -> str:
    if word := found["word"] or found["blank"]:
        return _CHARACTERS[word]
    code = int(found["number"] or 0) or int(found["percent"] or found["hex"] or found["code"], 16)
    return chr(code)
