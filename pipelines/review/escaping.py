r"""Writes text into Markdown so that it reads as it is. Code spans in backticks stay code.

What nobody sees, but a terminal or a browser obeys, is written out: `\x1b`, `\u202e`.
"""

import re
from collections.abc import Sequence
from typing import Final

from pipelines.review.code_spans import map_text

#: What has a meaning anywhere; `_` only where a word begins or ends, `&` only in an entity.
MARKUP: Final = re.compile(r"[\\`*\[\]<~|]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)")
#: What has a meaning at the beginning of a line.
BEGINNING: Final = re.compile(r"\A(?:([#>+=-])|(\d{1,9})([.)])(?=\s|\Z))")
TICKS: Final = re.compile(r"`+")
#: A soft hyphen and the joiners, which some scripts cannot be written without.
HARMLESS: Final = frozenset("\u00ad\u200c\u200d")


def visible(text: str) -> str:
    """Return one line that shows the text: controls, and what turns its direction, written out."""
    line = " ".join(text.split())
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() or c in HARMLESS else _written_out(c) for c in line)


def prose(text: str) -> str:
    """Return one line of Markdown that shows the text."""
    line = map_text(visible(text), _escaped, lambda code: code)
    return BEGINNING.sub(_escape_beginning, line)


def code(text: str) -> str:
    """Return the text as one code span, whatever backticks are in it."""
    line = visible(text)
    longest = max((len(run) for run in TICKS.findall(line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def row(cells: Sequence[str]) -> str:
    """Return a row of a table; the cells are Markdown, which a bar must not cut, even in code."""
    return "| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", cell) for cell in cells) + " |"


def label(text: str) -> str:
    """Return the text as the label of a reference link."""
    return _escaped(visible(text))


def _escaped(text: str) -> str:
    return MARKUP.sub(r"\\\g<0>", text)


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _escape_beginning(match: re.Match[str]) -> str:
    return f"{match[2]}\\{match[3]}" if match[2] else f"\\{match[1]}"
