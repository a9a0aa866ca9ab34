r"""Text escaped for Markdown, so that it reads as it is. Code spans in backticks stay code.

Invisible characters that a terminal or a browser obeys are escaped: `\u001b`, `\u202e`.
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
#: Line breaks, a soft hyphen and the joiners, which some scripts cannot be written without.
HARMLESS: Final = frozenset("\n\u00ad\u200c\u200d")


def on_one_line(text: str) -> str:
    """Return the text on one line, with invisible characters escaped."""
    return escape_controls(" ".join(text.split()))


def escape_controls(text: str) -> str:
    """Return the text with controls, and characters that change its direction, as JSON escapes.

    Line breaks stay, and JSON stays JSON of the same value.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in HARMLESS else _unit_by_unit(c) for c in text)


def prose(text: str) -> str:
    """Return one line of Markdown that shows the text."""
    line = map_text(on_one_line(text), _escaped, lambda code: code)
    return BEGINNING.sub(_escape_beginning, line)


def code(text: str) -> str:
    """Return the text as one code span, whatever backticks are in it."""
    line = on_one_line(text)
    longest = max((len(run) for run in TICKS.findall(line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def row(cells: Sequence[str]) -> str:
    """Return a row of a table; the cells are Markdown, which a bar must not cut, even in code."""
    return "| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", cell) for cell in cells) + " |"


def label(text: str) -> str:
    """Return the text as the label of a reference link."""
    return _escaped(on_one_line(text))


def _escaped(text: str) -> str:
    return MARKUP.sub(r"\\\g<0>", text)


def _unit_by_unit(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


def _escape_beginning(match: re.Match[str]) -> str:
    return f"{match[2]}\\{match[3]}" if match[2] else f"\\{match[1]}"
