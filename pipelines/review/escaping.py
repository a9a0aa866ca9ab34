"""Writes text into Markdown so that it reads as it is. Code spans in backticks stay code."""

import re
from collections.abc import Sequence
from typing import Final

from pipelines.review.sentences import CODE_SPAN

#: What has a meaning anywhere; `_` only where a word begins or ends, `&` only in an entity.
MARKUP: Final = re.compile(r"[\\`*\[\]<~|]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)")
#: What has a meaning at the beginning of a line.
BEGINNING: Final = re.compile(r"\A(?:([#>+=-])|(\d{1,9})([.)])(?=\s|\Z))")


def prose(text: str) -> str:
    """Return one line of Markdown that shows the text."""
    text = " ".join(text.split())
    parts: list[str] = []
    end = 0
    for span in CODE_SPAN.finditer(text):
        parts += [MARKUP.sub(r"\\\g<0>", text[end : span.start()]), span[0]]
        end = span.end()
    parts.append(MARKUP.sub(r"\\\g<0>", text[end:]))
    return BEGINNING.sub(_escape_beginning, "".join(parts))


def row(cells: Sequence[str]) -> str:
    """Return a row of a table; the cells are Markdown, which a bar must not cut, even in code."""
    return "| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", cell) for cell in cells) + " |"


def label(text: str) -> str:
    """Return the text as the label of a reference link."""
    return MARKUP.sub(r"\\\g<0>", " ".join(text.split()))


def _escape_beginning(match: re.Match[str]) -> str:
    return f"{match[2]}\\{match[3]}" if match[2] else f"\\{match[1]}"
