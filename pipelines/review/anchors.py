"""The anchors that GitHub gives to headings."""

import unicodedata

#: What Ruby calls a word character, which GitHub's rule is written with.
WORD = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Pc"})


def slug(heading: str) -> str:
    """Return the anchor of a heading's text: lower case, no punctuation, spaces to hyphens.

    Source:
        gjtorikian/html-pipeline, `table_of_contents_filter.rb`.
    """
    kept = (
        character
        for character in heading.strip().lower()
        if character in "- " or unicodedata.category(character) in WORD
    )
    return "".join(kept).replace(" ", "-")


class Anchors:
    """The anchors of one document; a heading that repeats gets `-1`, `-2` and so on."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def take(self, heading: str) -> str:
        """Return the anchor of the next heading."""
        base = anchor = slug(heading)
        while anchor in self._taken:
            self._taken[base] += 1
            anchor = f"{base}-{self._taken[base]}"
        self._taken[anchor] = 0
        return anchor
