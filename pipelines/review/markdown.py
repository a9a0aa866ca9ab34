"""A Markdown document, read as CommonMark: its headings, sentences and links, with their lines."""

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, blockquote, reference
from markdown_it.rules_inline import StateInline, backtick
from markdown_it.token import Token

from pipelines.review.models import Section

LONGEST_BLOCK: Final = 100_000  # characters; what is longer is data, and only its words count
LONGEST_SENTENCE: Final = 2000
LONGEST_NAME: Final = 160  # of a title or heading; it stands with all that is below it
LONGEST_TARGET: Final = 1000  # of a link; one definition may serve many links
LOOKED_AHEAD: Final = 20  # lines that a link definition or the end of a quotation may take

#: What is markup on GitHub though not in CommonMark: a task's box, an alert, a footnote.
BEYOND_COMMONMARK: Final = re.compile(r"\A\[[ xX]\](?=\s)|\A\[![A-Za-z]++\]|\[\^[^\[\]\s]++\]:?")
ANCHORS: Final = re.compile(r"\b(?:id|name)=[\"']([^\"'<>\s]+)")  # in HTML
#: What GitHub's rule for anchors calls a word character.
WORD: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Pc"})
#: Stops, what may close after them, and white space before what is not in lower case; or an East
#: Asian full stop. It gives nothing back: a long row of dots is looked at once.
BOUNDARY: Final = re.compile(
    r"(?<![.!?])[.!?]++[\"'\u201d\u2019)\]]*+\s++(?![a-z])"
    r"|[\u3002\uff01\uff1f]++[\u300d\u300f\u201d]?\s*+"
)
#: What a stop follows that ends no sentence: an abbreviation, an initial, a number of a list.
UNENDING: Final = re.compile(
    r"\b(?:e\.g|i\.e|vs|cf|ca|[Ff]igs?|[Dd]r|[Mm]rs?|[Ss]t|[A-Z])\.\Z|\A\s*\d+\.\Z"
)
LOOK_BACK: Final = 60  # characters before a stop


def _reference(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    """Read a link definition, looking at a few lines only; the parser would look at all."""
    if state.src.startswith("[^", state.bMarks[line] + state.tShift[line]):
        return False  # a footnote
    last, state.lineMax = state.lineMax, min(state.lineMax, line + LOOKED_AHEAD)
    try:
        return reference(state, line, end, silent)
    finally:
        state.lineMax = last


def _quotation(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    """Read a quotation up to the first lines without `>`; the parser would take all, each time."""
    lazy = 0
    for number in range(line + 1, end if not silent else line):
        begin = state.bMarks[number] + state.tShift[number]
        lazy += begin < state.eMarks[number] and state.src[begin] != ">"
        if begin >= state.eMarks[number] or lazy > LOOKED_AHEAD:
            return blockquote(state, line, number, silent)
    return blockquote(state, line, end, silent)


def _code(state: StateInline, silent: bool) -> bool:
    """Read a code span, and note the line breaks that its token loses."""
    begin = state.pos
    is_span = backtick(state, silent)
    if is_span and not silent and not state.pending:  # backticks that open nothing stay pending
        state.tokens[-1].meta["breaks"] = state.src.count("\n", begin, state.pos)
    return is_span


def _breaks(token: Token) -> int:
    """Return how many lines end in a token."""
    if token.type in {"softbreak", "hardbreak"}:
        return 1
    return token.content.count("\n") + int(token.meta.get("breaks", 0))


PARSER: Final = MarkdownIt("commonmark").enable(["table", "strikethrough"])
PARSER.block.ruler.at("reference", _reference)
PARSER.block.ruler.at(
    "blockquote", _quotation, {"alt": ["paragraph", "reference", "blockquote", "list"]}
)
PARSER.inline.ruler.at("backticks", _code)
#: Blocks are read one by one, so that the parts of one are gone before the next one is read.
PARSER.core.ruler.disable(["inline", "text_join"])


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of prose, the line it begins on, and the heading path it stands under."""

    text: str
    line: int
    section: tuple[str, ...]


@dataclass(slots=True)
class Page:
    """The parts of one document. `too_long` are the lines of blocks of which words are counted."""

    lines: int
    title: str | None = None
    words: int = 0
    sections: list[Section] = field(default_factory=list)
    sentences: list[Sentence] = field(default_factory=list)
    links: list[tuple[int, str]] = field(default_factory=list)  # line, target
    anchors: set[str] = field(default_factory=set)
    too_long: list[int] = field(default_factory=list)


def read_page(text: str) -> Page:
    """Read a document; any text is Markdown, so this never refuses one."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    page = Page(lines=text.count("\n") + (not text.endswith("\n") and text != ""))
    reader = _Reader(page)
    tokens = PARSER.parse(reader.without_front_matter(text), reader.env)
    for before, token in zip([*tokens[:1], *tokens], tokens, strict=False):
        reader.read(before, token)
    return page


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives a heading: no punctuation, spaces to hyphens."""
    kept = (
        character
        for character in heading.strip().lower()
        if character in "- " or unicodedata.category(character) in WORD
    )
    return "".join(kept).replace(" ", "-")


def split(text: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each sentence of a paragraph."""
    begin = 0
    for boundary in BOUNDARY.finditer(text):
        before = text[max(begin, boundary.start() - LOOK_BACK) : boundary.start() + 1]
        if not UNENDING.search(before):
            yield begin, boundary.end()
            begin = boundary.end()
    yield begin, len(text)


class _Reader:
    def __init__(self, page: Page) -> None:
        self.page = page
        self.env: dict[str, Any] = {}  # where the parser notes the link definitions
        self._open: list[Section] = []  # the last heading and those that it stands under
        self._headings: Counter[str] = Counter()  # by their anchor
        self._line = 1

    def without_front_matter(self, text: str) -> str:
        """Blank front matter out, so that lines keep their numbers; take the title from it."""
        end = text.find("\n---\n", 3) + 5
        if not text.startswith("---\n") or end < 5:  # noqa: PLR2004 - it was not found
            return text
        for line in text[:end].split("\n"):
            if line.startswith("title:"):
                self.page.title = line[6:].strip(" \"'")[:LONGEST_NAME] or None
        return "\n" * text.count("\n", 0, end) + text[end:]

    def read(self, before: Token, token: Token) -> None:
        """Read a token of a block, and the one before it."""
        if token.map:
            self._line = token.map[0] + 1
        if not token.content:
            return
        self.page.words += len(token.content.split())
        if token.type == "html_block":
            self.page.anchors.update(ANCHORS.findall(token.content))
        elif token.type == "inline":
            self._inline(before, token.content)

    def _inline(self, before: Token, source: str) -> None:
        """Read a paragraph, a heading, or a cell of a table."""
        text, masked, lines, line = [""], [""], [(0, self._line)], self._line
        size = 0
        tokens: list[Token] = []
        if len(source) > LONGEST_BLOCK:
            self.page.too_long.append(self._line)
            tokens.append(Token("text", "", 0, content=source))
        else:
            PARSER.inline.parse(source, PARSER, self.env, tokens)
        for token in tokens:
            part = self._part(token, line)
            text.append(part)
            masked.append("x" * len(part) if token.type == "code_inline" else part)
            size += len(part)
            if breaks := _breaks(token):
                line += breaks
                lines.append((size, line))
        if before.type == "heading_open":
            level = int(before.tag[1:])
            self._heading(level, "".join(text), is_section=before.level == 0)
        elif before.type == "paragraph_open" and size <= LONGEST_BLOCK:
            self._sentences("".join(text), "".join(masked), lines)

    def _part(self, token: Token, line: int) -> str:
        """Return the text of a token, and keep what else is in it."""
        if target := token.attrGet("href") or token.attrGet("src"):
            self.page.links.append((line, str(target)[:LONGEST_TARGET]))
        if token.type == "html_inline":
            self.page.anchors.update(ANCHORS.findall(token.content))
        match token.type:
            case "text" | "text_special":
                return BEYOND_COMMONMARK.sub("", token.content)
            case "code_inline":
                return f"`{token.content}`"
            case "softbreak" | "hardbreak":
                return " "
        return ""

    def _heading(self, level: int, text: str, *, is_section: bool) -> None:
        anchor = slug(text)
        times = self._headings[anchor]
        self._headings[anchor] += 1
        self.page.anchors.add(f"{anchor}-{times}" if times else anchor)
        if not is_section:  # in a list or a quotation
            return
        name = " ".join(text.replace("`", "").split())
        name = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
        if level == 1:
            self.page.title = self.page.title or name or None
        while self._open and self._open[-1].level >= level:
            self._open.pop()
        path = (*(section.path[-1] for section in self._open), name)
        self._open.append(Section(path=path, level=level, line=self._line))
        self.page.sections.append(self._open[-1])

    def _sentences(self, text: str, masked: str, lines: list[tuple[int, int]]) -> None:
        section = self._open[-1].path if self._open else ()
        for begin, end in split(masked):
            sentence = text[begin:end].lstrip()
            place = bisect_right(lines, (end - len(sentence), 1 << 60)) - 1
            if sentence and end - begin <= LONGEST_SENTENCE:
                said = " ".join(sentence.split())
                self.page.sentences.append(Sentence(said, lines[place][1], section))
