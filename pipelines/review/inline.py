"""The inside of one paragraph or heading: its text, its links, and the line of each."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline, backtick
from markdown_it.token import Token

from pipelines.review.html_fragments import read_html
from pipelines.review.size_budget import LONGEST_TARGET

#: What is markup on GitHub though not in CommonMark: a task's box, an alert, a footnote.
BEYOND_COMMONMARK: Final = re.compile(r"\A\[[ xX]\](?=\s)|\A\[![A-Za-z]++\]|\[\^[^\[\]\s]++\]:?")
LONGEST_BLOCK: Final = 100_000  # characters; what is longer is data, and only its words count
BREAKS: Final = "breaks"  # of a code span: how many lines end in it


def count_breaks(state: StateInline, silent: bool) -> bool:
    """Read a code span as CommonMark does, and note the line breaks that its token loses."""
    begin = state.pos
    is_span = backtick(state, silent)
    if is_span and not silent and not state.pending:  # backticks that open nothing stay pending
        state.tokens[-1].meta[BREAKS] = state.src.count("\n", begin, state.pos)
    return is_span


@dataclass(slots=True)
class Inline:
    """`text` keeps code spans in backticks and loses all other markup; `plain` loses these too.

    `links` are (line, target, is an image). Of a block that is not `read` there are words alone.
    """

    text: str = ""
    plain: str = ""
    links: list[tuple[int, str, bool]] = field(default_factory=list)
    anchors: list[str] = field(default_factory=list)
    lines: list[tuple[int, int]] = field(default_factory=list)  # offset in text, line from there
    read: bool = True

    def line_at(self, offset: int) -> int:
        """Return the line of the character at `offset` of the text."""
        return self.lines[bisect_right(self.lines, (offset, 1 << 60)) - 1][1]


def read_inline(parser: MarkdownIt, source: str, line: int, env: dict[str, Any]) -> Inline:
    """Read the source of a block whose first line is `line`; `env` has the link definitions."""
    if len(source) > LONGEST_BLOCK:
        return Inline(plain=source, lines=[(0, line)], read=False)
    tokens: list[Token] = []
    parser.inline.parse(source, parser, env, tokens)
    reader = _Reader(line)
    reader.read(tokens)
    inline = reader.inline
    text = "".join(reader.text)
    inline.text = BEYOND_COMMONMARK.sub(lambda markup: " " * len(markup[0]), text)
    inline.plain = "".join(reader.plain)
    return inline


class _Reader:
    def __init__(self, line: int) -> None:
        self.inline = Inline(lines=[(0, line)])
        self.text: list[str] = []
        self.plain: list[str] = []
        self._length = 0  # of the text so far
        self._line = line

    def read(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            match token.type:
                case "text" | "text_special":
                    self._add(token.content, token.content)
                case "code_inline":
                    self._code(token)
                case "softbreak" | "hardbreak":
                    self._add(" ", " ")
                    self._next_line(1)
                case "link_open":
                    self._link(str(token.attrGet("href") or ""), image=False)
                case "image":
                    self._link(str(token.attrGet("src") or ""), image=True)
                case "html_inline":
                    self._html(token.content)

    def _add(self, text: str, plain: str) -> None:
        self.text.append(text)
        self.plain.append(plain)
        self._length += len(text)

    def _next_line(self, count: int) -> None:
        self._line += count
        self.inline.lines.append((self._length, self._line))

    def _link(self, target: str, *, image: bool) -> None:
        self.inline.links.append((self._line, target[:LONGEST_TARGET], image))

    def _code(self, token: Token) -> None:
        pad = " " if token.content.startswith("`") or token.content.endswith("`") else ""
        self._add(f"{token.markup}{pad}{token.content}{pad}{token.markup}", token.content)
        if breaks := token.meta.get(BREAKS, 0):
            self._next_line(breaks)

    def _html(self, html: str) -> None:
        fragment = read_html(html, self._line)
        self.inline.links += fragment.links
        self.inline.anchors += fragment.anchors
        if html.lower().startswith("<br"):
            self._add(" ", " ")
        if breaks := html.count("\n"):
            self._next_line(breaks)
