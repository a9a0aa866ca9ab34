"""The front matter of a document: settings between two fences at its top."""

from typing import Final

FENCES: Final = ("---", "+++")
BLANKS: Final = " \t"


def front_matter_end(text: str) -> int:
    """Return where the text after the front matter begins; 0 when there is none."""
    fence = text[:3]
    if fence not in FENCES:
        return 0
    begin, number = 0, 0
    while begin < len(text):
        end = text.find("\n", begin)
        end = len(text) if end < 0 else end
        line = text[begin:end].rstrip(BLANKS)
        if number == 0 and line != fence:
            return 0
        if number > 0 and line in {fence, "..."}:
            return min(end + 1, len(text))
        begin, number = end + 1, number + 1
    return 0


def front_matter_title(text: str) -> str | None:
    """Return the title that front matter gives: `title: …`, or `title = …`."""
    for line in text.split("\n"):
        given = line.removeprefix("title").lstrip(BLANKS) if line.startswith("title") else ""
        if given.startswith((":", "=")) and (value := given[1:].strip(BLANKS)):
            return value.strip("\"'") or None
    return None
