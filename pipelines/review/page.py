"""A Markdown document, read as CommonMark: its outline, sentences, links and front matter."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final, TypeVar

from markdown_it import MarkdownIt
from markdown_it.token import Token

from pipelines.review.anchors import Anchors
from pipelines.review.block_rules import short_quotation, short_reference
from pipelines.review.front_matter import front_matter_end, front_matter_title
from pipelines.review.html_fragments import read_html
from pipelines.review.inline import Inline, count_breaks, read_inline
from pipelines.review.models import Section
from pipelines.review.sentences import split
from pipelines.review.size_budget import SizeBudget, shortened

PARSER: Final = MarkdownIt("commonmark").enable(["table", "strikethrough"])
PARSER.block.ruler.at("reference", short_reference)
PARSER.block.ruler.at(
    "blockquote", short_quotation, {"alt": ["paragraph", "reference", "blockquote", "list"]}
)
PARSER.inline.ruler.at("backticks", count_breaks)
#: Blocks are read one by one, so that the parts of one are gone before the next one is read.
PARSER.core.ruler.disable(["inline", "text_join"])

T = TypeVar("T")

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
    """The parts of one document. `links` are (line, target, is an image).

    `too_long` are the lines of blocks of which only the words were counted. `left_out`
    counts what was over the budget, by kind.
    """

    lines: int
    title: str | None = None
    words: int = 0
    sections: tuple[Section, ...] = ()
    sentences: list[Sentence] = field(default_factory=list)
    links: list[tuple[int, str, bool]] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    too_long: list[int] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def read_page(text: str, budget: SizeBudget | None = None) -> Page:
    """Read a document; any text is Markdown, so this never refuses one.

    Args:
        text: the document.
        budget: how much is kept of this document and the next ones; by default, of this one alone.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    page = Page(lines=text.count("\n") + (not text.endswith("\n") and text != ""))
    reader = _Reader(page, budget or SizeBudget())
    reader.read(PARSER.parse(reader.without_front_matter(text), reader.env))
    return page


class _Reader:
    def __init__(self, page: Page, budget: SizeBudget) -> None:
        self.page = page
        self.env: dict[str, Any] = {}  # where the parser notes the link definitions
        self._budget = budget
        self._path: tuple[str, ...] = ()
        self._headings: list[Outline] = []
        self._open: list[Outline] = []  # the last one and those it stands under
        self._anchors = Anchors()

    def without_front_matter(self, text: str) -> str:
        """Take the title from front matter, and blank it out so that lines keep their numbers."""
        end = front_matter_end(text)
        if title := front_matter_title(text[:end]):
            self.page.title = shortened(title)
        return "\n" * text.count("\n", 0, end) + text[end:]

    def read(self, tokens: Sequence[Token]) -> None:
        for before, token, line in _with_lines(tokens):
            if token.type == "inline":
                self._inline(before, read_inline(PARSER, token.content, line, self.env))
            elif token.type == "html_block":
                self._html(token.content, line)
            elif token.type in CONTENT:
                self._count_content()
            if token.type in {"fence", "code_block"}:
                self.page.words += len(token.content.split())
        self.page.sections = tuple(_sections(self._headings))

    def _inline(self, before: Token, inline: Inline) -> None:
        self._keep("links", self.page.links, inline.links)
        self.page.anchors.update(inline.anchors)
        self.page.words += len(inline.plain.split())
        if not inline.read:
            self.page.too_long.append(inline.line_at(0))
        if before.type == "heading_open":
            level, line = int(before.tag[1:]), inline.line_at(0)
            self._heading(level, line, inline.plain, is_section=before.level == 0)
        elif before.type == "paragraph_open":
            sentences = [
                Sentence(" ".join(text.split()), inline.line_at(offset), self._path)
                for offset, text in split(inline.text)
                if len(text) <= LONGEST
            ]
            self._keep("sentences", self.page.sentences, sentences)

    def _heading(self, level: int, line: int, text: str, *, is_section: bool) -> None:
        anchor = self._anchors.take(text)
        self.page.anchors.add(anchor)
        if not is_section:  # in a list or a quotation: an anchor, but no part of the outline
            self._count_content()
            return
        name = shortened(" ".join(text.split()))
        if level == 1 and self.page.title is None and name:
            self.page.title = name
        while self._open and self._open[-1].level >= level:
            self._open.pop()
        self._path = (*(heading.path[-1] for heading in self._open), name)
        self._open.append(Outline(path=self._path, level=level, line=line, anchor=anchor))
        if not self._keep("sections", self._headings, self._open[-1:]):
            self._count_content()

    def _html(self, html: str, line: int) -> None:
        fragment = read_html(html, line)
        self._keep("links", self.page.links, fragment.links)
        self.page.anchors.update(fragment.anchors)
        for heading_line, level, text in fragment.headings:
            self._heading(level, heading_line, text, is_section=True)
        if fragment.visible:
            self._count_content()

    def _keep(self, kind: str, kept: list[T], parts: Sequence[T]) -> bool:
        """Keep the parts, unless the budget is used up; return whether all were kept."""
        taken = self._budget.take(kind, parts)
        kept += taken
        if len(taken) < len(parts):
            self.page.left_out[kind] += len(parts) - len(taken)
        return len(taken) == len(parts)

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
