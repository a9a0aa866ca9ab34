"""Text of strangers, safe to display: what would steer a terminal is spelled out."""

from __future__ import annotations

from typing import Final

#: Joiners within words and emoji: they move nothing.
_HARMLESS: Final = "\u200c\u200d"


def printable(text: str) -> str:
    """Return the text with blanks as spaces, and other characters that are not seen as escapes.

    Those are control characters (escape and the 8-bit ones of U+0080 to U+009F among them), marks
    that turn the direction of writing, and halves of characters.
    """
    if text.isprintable():
        return text
    return "".join(map(_displayed, text))


def one_line(text: str, most: int | None = None) -> str:
    """Return the text in one line that is safe to display, cut at so many characters.

    All text of strangers goes through here before it is shown.
    """
    line = " ".join(printable(text).split())
    return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def counted(count: int, one: str, more: str = "") -> str:
    """Return how many there are: `1 run`, `2 runs`, `0 tries`.

    Args:
        count: how many.
        one: what one of them is called.
        more: what several are; empty: the same with an `s`.
    """
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def printable_json(text: str) -> str:
    """Return JSON text with all that is not seen as JSON's own escapes; it means the same."""
    lines = text.split("\n")  # those within its strings are escaped already
    return "\n".join(line if line.isprintable() else "".join(map(_escaped, line)) for line in lines)


def _displayed(character: str) -> str:
    if character.isspace():
        return " "
    if character.isprintable() or character in _HARMLESS:
        return character
    return character.encode("unicode_escape").decode()


def _escaped(character: str) -> str:
    if character.isprintable() or character in _HARMLESS:
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
