"""Raw HTML in Markdown: the links, anchors and headings it adds to a document."""

from contextlib import suppress
from dataclasses import dataclass, field
from html.parser import HTMLParser

from pipelines.review.size_budget import LONGEST_TARGET

HEADINGS = {f"h{level}": level for level in range(1, 7)}
TARGETS = {"a": "href", "img": "src"}


@dataclass(slots=True)
class Fragment:
    """`links` are (line, target, is an image); `headings` are (line, level, text)."""

    links: list[tuple[int, str, bool]] = field(default_factory=list)
    anchors: list[str] = field(default_factory=list)
    headings: list[tuple[int, int, str]] = field(default_factory=list)
    visible: bool = False  # there is more than comments


def read_html(html: str, line: int) -> Fragment:
    """Read HTML that begins at `line` of the document; broken HTML is read as far as it goes."""
    reader = _Reader(line)
    with suppress(AssertionError):  # how html.parser refuses a malformed declaration
        reader.feed(html)
    unread = reader.rawdata.strip()  # a last text, or a tag without an end: no close(), which
    if unread and not unread.startswith("<!--"):  # tries it at every `<`, in quadratic time
        reader.fragment.visible = True
    return reader.fragment


class _Reader(HTMLParser):
    def __init__(self, first_line: int) -> None:
        super().__init__(convert_charrefs=True)
        self.fragment = Fragment()
        self._first_line = first_line
        self._heading: tuple[int, int] | None = None
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fragment.visible = True
        given = {name: value for name, value in attrs if value}
        line = self._first_line + self.getpos()[0] - 1
        if tag in TARGETS and TARGETS[tag] in given:
            target = given[TARGETS[tag]][:LONGEST_TARGET]
            self.fragment.links.append((line, target, tag == "img"))
        self.fragment.anchors += [given[name] for name in ("id", "name") if name in given]
        if tag in HEADINGS:
            self._heading = (line, HEADINGS[tag])
            self._text = []

    def handle_data(self, data: str) -> None:
        self.fragment.visible = self.fragment.visible or bool(data.strip())
        self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag in HEADINGS and self._heading is not None:
            line, level = self._heading
            self.fragment.headings.append((line, level, " ".join("".join(self._text).split())))
            self._heading = None
