r"""Text escaped for Markdown, so that it reads as it is.

Invisible characters that a terminal or a browser obeys are escaped: `\u001b`, `\u202e`.
"""

import re
from typing import Final

#: What has a meaning anywhere; `_` only where a word begins or ends, `&` only in an entity.
MARKUP: Final = re.compile(r"[\\`*\[\]<~|]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)")
#: What has a meaning at the beginning of a line.
BEGINNING: Final = re.compile(r"\A(?:([#>+=-])|(\d{1,9})([.)])(?=\s|\Z))")
#: Line breaks, a soft hyphen and the joiners, which some scripts cannot be written without.
HARMLESS: Final = frozenset("\n\u00ad\u200c\u200d")


def escape_controls(text: str) -> str:
    """Return the text with controls, and characters that change its direction, as JSON escapes.

    Line breaks stay, and JSON stays JSON of the same value.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in HARMLESS else _unit_by_unit(c) for c in text)


def prose(text: str) -> str:
    """Return one line of Markdown that shows the text."""
    line = MARKUP.sub(r"\\\g<0>", escape_controls(" ".join(text.split())))
    return BEGINNING.sub(
        lambda match: f"{match[2]}\\{match[3]}" if match[2] else f"\\{match[1]}", line
    )


def _unit_by_unit(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
