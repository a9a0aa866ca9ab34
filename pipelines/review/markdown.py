"""Reads one Markdown document as CommonMark does, with tables and front matter."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, reference
from markdown_it.token import Token

from pipelines.review.anchors import Anchors
from pipelines.review.html_fragments import read_html
from pipelines.review.inline import Inline, read_inline
from pipelines.review.models import Section
from pipelines.review.sentences import split


def _reference_but_no_footnote(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    begin = state.bMarks[line] + state.tShift[line]
    return not state.src.startswith("[^", begin) and reference(state, line, end, silent)


PARSER: Final = MarkdownIt("commonmark").enable(["table", "strikethrough"])
PARSER.block.ruler.at("reference", _reference_but_no_footnote)

FRONT_MATTER: Final = re.compile(
    r"\A(---|\+\+\+)[ \t]*\n(.*?\n)?(\1|\.\.\.)[ \t]*(\n|\Z)", re.DOTALL
)
FRONT_MATTER_TITLE: Final = re.compile(r"^title[ \t]*[:=][ \t]*(.+?)[ \t]*$", re.MULTILINE)
LONGEST: Final = 2000  # characters of a sentence; what is longer is data, not prose
CONTENT: Final = frozenset({"paragraph_open", "fence", "code_block", "table_open"})


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of prose, the line it begins on, and the heading path it stands under."""

    text: str
    line: int
    section: tuple[str, ...]


@dataclass(slots=True)
class Outline:
    """A heading while the document is read."""

    path: tuple[str, ...]
    level: int
    line: int
    anchor: str
    content: int = 0  # blocks that stand right under it


@dataclass(slots=True)
class Page:
    """What stands in one document. `links` are (line, target, is an image)."""

    lines: int
    title: str | None = None
    words: int = 0
    sections: tuple[Section, ...] = ()
    sentences: list[Sentence] = field(default_factory=list)
    links: list[tuple[int, str, bool]] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)


def read_page(text: str) -> Page:
    """Read a document; any text is Markdown, so this never refuses one."""
    text = re.sub(r"\r\n?", "\n", text.removeprefix("\ufeff"))
    reader = _Reader(Page(lines=text.count("\n") + (not text.endswith("\n") and text != "")))
    reader.read(PARSER.parse(reader.without_front_matter(text)))
    return reader.page


class _Reader:
    def __init__(self, page: Page) -> None:
        self.page = page
        self._headings: list[Outline] = []
        self._open: list[Outline] = []  # the last one and those it stands under
        self._anchors = Anchors()

    def without_front_matter(self, text: str) -> str:
        """Take the title from front matter, and blank it out so that lines keep their numbers."""
        front = FRONT_MATTER.match(text)
        if front is None:
            return text
        if title := FRONT_MATTER_TITLE.search(front[2] or ""):
            self.page.title = title[1].strip("\"'") or None
        return "\n" * front[0].count("\n") + text[front.end() :]

    def read(self, tokens: Sequence[Token]) -> None:
        for before, token, line in _with_lines(tokens):
            if token.type == "inline":
                self._inline(before, read_inline(token, line))
            elif token.type == "html_block":
                self._html(token.content, line)
            elif token.type in CONTENT:
                self._count_content()
            if token.type in {"fence", "code_block"}:
                self.page.words += len(token.content.split())
        self.page.sections = tuple(_sections(self._headings))

    def _inline(self, before: Token, inline: Inline) -> None:
        self.page.links += inline.links
        self.page.anchors.update(inline.anchors)
        self.page.words += len(inline.plain.split())
        if before.type == "heading_open":
            level, line = int(before.tag[1:]), inline.line_at(0)
            self._heading(level, line, inline.plain, is_section=before.level == 0)
        elif before.type == "paragraph_open":
            path = self._headings[-1].path if self._headings else ()
            self.page.sentences += [
                Sentence(text=" ".join(text.split()), line=inline.line_at(offset), section=path)
                for offset, text in split(inline.text)
                if len(text) <= LONGEST
            ]

    def _heading(self, level: int, line: int, text: str, *, is_section: bool) -> None:
        anchor = self._anchors.take(text)
        self.page.anchors.add(anchor)
        if not is_section:  # in a list or a quotation: an anchor, but no part of the outline
            self._count_content()
            return
        name = " ".join(text.split())
        if level == 1 and self.page.title is None and name:
            self.page.title = name
        while self._open and self._open[-1].level >= level:
            self._open.pop()
        path = (*(heading.path[-1] for heading in self._open), name)
        self._open.append(Outline(path=path, level=level, line=line, anchor=anchor))
        self._headings.append(self._open[-1])

    def _html(self, html: str, line: int) -> None:
        fragment = read_html(html, line)
        self.page.links += fragment.links
        self.page.anchors.update(fragment.anchors)
        for heading_line, level, text in fragment.headings:
            self._heading(level, heading_line, text, is_section=True)
        if fragment.visible:
            self._count_content()

    def _count_content(self) -> None:
        if self._headings:
            self._headings[-1].content += 1


def _with_lines(tokens: Sequence[Token]) -> Iterator[tuple[Token, Token, int]]:
    """Yield each token with the one before it and its line; inner tokens keep the last known."""
    before, line = tokens[0] if tokens else None, 1
    for token in tokens:
        line = token.map[0] + 1 if token.map else line
        yield before or token, token, line
        before = token


def _sections(headings: Sequence[Outline]) -> Iterator[Section]:
    """Yield the sections; one is empty when nothing stands under it, a deeper heading included."""
    for heading, following in zip_longest(headings, headings[1:]):
        has_parts = following is not None and following.level > heading.level
        yield Section(
            path=heading.path,
            level=heading.level,
            line=heading.line,
            anchor=heading.anchor,
            empty=heading.content == 0 and not has_parts,
        )
