"""Input that a stranger may give to what reads texts: for each pattern and loop, its worst.

Each case is a text, or texts, of so many characters or parts, and the function that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from leasehold import AgentClientError
from leasehold.domain.redaction import MAX_SEARCHED_CHARS, Redaction
from leasehold.worker.failures.failures import record_of
from pipelines.review.checks import check_document
from pipelines.review.extraction import document, excerpts
from pipelines.review.local_agent import LocalAgent
from pipelines.review.markdown import read_page, split
from pipelines.review.markdown_escapes import escape_controls, prose
from pipelines.review.models import Claim, Document
from pipelines.review.questions import Excerpt, FolderClaims, Numbered
from pipelines.review.words import numbers, terms


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of hostile input.

    Args:
        name: what it is made of.
        read: what has to bear it.
        make: returns it, of the size that is given.
        size: the least size at which time is measured.
        most: twice the greatest; what is longer is not looked at, or takes long for other reasons.
    """

    name: str
    read: Callable[[Any], object]
    make: Callable[[int], Any]
    size: int
    most: int = 500_000


def repeated(part: str, before: str = "", after: str = "") -> Callable[[int], str]:
    """Return what makes a text of so many characters out of one part."""
    return lambda size: before + part * (size // len(part)) + after


def growing(mark: str) -> Callable[[int], str]:
    """Return what makes a text out of rows of a mark, each longer than the one before."""
    return lambda size: " ".join(mark * length for length in range(1, int((2 * size) ** 0.5)))


def review(text: str) -> Document:
    """Read a document all the way that extraction does, and check it."""
    page = read_page(text)
    picks = [pick for each in excerpts("a.md", page) for pick in LocalAgent().claims(each)]
    found = document(Path("/nonexistent"), "a.md", {"a.md": page}, picks)
    list(check_document(found))
    found.model_dump_json()
    return found


def near_misses(size: int) -> str:
    """Return headings, and as many links that lead to none of them by a letter."""
    names = [f"the-name-of-heading-{number:06d}" for number in range(size)]
    headings = "\n\n".join(f"## {name}" for name in names)
    return headings + "\n\n" + "\n\n".join(f"[a](#{name[:-2]}x{name[-2:]})" for name in names)


def sub_headings(size: int) -> str:
    """Return one long heading with many below it."""
    return "# " + "a" * size + "\n" + "## b\n" * (size // 5)


def long_target(size: int) -> str:
    """Return one long link target, and many links to it."""
    return "[a]: " + "b" * size + "\n\n" + "[a]\n\n" * (size // 5)


def claims(texts: Sequence[str]) -> tuple[Claim, ...]:
    """Return claims that say these texts."""
    return tuple(
        Claim(id=f"{number}", document=f"{number}.md", section="", line=1, kind="rule", weight=0.5,
              text=text)
        for number, text in enumerate(texts)
    )  # fmt: skip


def condense(texts: Sequence[str]) -> object:
    """Digest claims that say these texts."""
    return LocalAgent().digest(FolderClaims(claims=claims(texts), points=12))


def pick(text: str) -> object:
    """Pick a claim out of one sentence."""
    sentences = (Numbered(number=0, section="", text=text),)
    return LocalAgent().claims(Excerpt(document="a.md", title="a", sentences=sentences))


def redact(text: str) -> object:
    """Cut secrets out of a text, and out of values that hold it."""
    return Redaction().text(text), Redaction().value({"a": [text]})


def fail(text: str) -> object:
    """Keep an error with these words."""
    return record_of(AgentClientError(text, details=[{"said": text}]))


def different(size: int) -> list[str]:
    """Return sentences that share most of their words, and are not the same."""
    return [f"all of these words stand in w{n} x{n} y{n} z{n} of it" for n in range(size)]


_MARKDOWN: Final[dict[str, Callable[[int], str]]] = {
    "dots": repeated("."),
    "stops and quotes": repeated('."'),
    "stops that end nothing": repeated("e.g. "),
    "[^": repeated("[^"),
    "[": repeated("["),
    "![": repeated("!["),
    "[](": repeated("[]("),
    "[a](<b": repeated("[a](<b"),
    "backticks": growing("`"),
    "backticks that open nothing": repeated("`a``"),
    "code spans over lines": repeated("`a\nb` "),
    "emphasis": repeated("*a_ "),
    "emphasis that ends": repeated("a**b*"),
    "<": repeated("<", "a"),
    "<!--": repeated("<!--", "a"),
    "<a b=": repeated(' b="', "a<a"),
    "<![CDATA[": repeated("<![CDATA[", "a"),
    "blocks of HTML": repeated("<div>\n"),
    "tags in a block": repeated("<a ", "<div>"),
    "comments in a block": repeated("<!-- ", "<div>"),
    "entities": repeated("&#1"),
    "&": repeated("&a"),
    "quotations": repeated("> a\n"),
    "quotations that no paragraph ends": repeated("> # a\nx\n"),
    "quotations in quotations that no paragraph ends": repeated("> > # a\n> x\ny\n"),
    "quotations in quotations": repeated(">" * 40 + "a\n"),
    "lists": repeated("- a\n"),
    "lists in lists": lambda size: "".join(
        " " * (2 * deep) + "- a\n" for deep in range(int(size**0.5))
    ),
    "definitions": repeated("[a]: b\n"),
    "a definition whose title never ends": repeated("x\n", "[a]: b '"),
    "a definition of many lines": repeated("[\n"),
    "tables": repeated("|a|\n|-|\n\n"),
    "rows of a wide table": lambda size: "|a" * size + "\n" + "|-" * size + "\n" + "|\n" * size,
    "headings": repeated("# a\n"),
    "one heading, many below it": sub_headings,
    "one long target, many links": long_target,
    "spaces in a title": repeated(" ", "---\ntitle: a", "b\n---\n"),
    "spaces in a heading": repeated(" ", "# a", "b\n"),
    "front matter that never ends": repeated("---   x\n", "---\n"),
    "words": repeated("word "),
    "short sentences": repeated("A is. "),
    "hyphens": repeated("a-"),
}
#: Where it takes more input, or less, until the loop in question is most of the time.
_SIZES: Final = {
    "rows of a wide table": 400,
    "[^": 16_000,
    "one heading, many below it": 30_000,
    "stops that end nothing": 200_000,
}
#: Where more of it takes three times as long a character, on some machines: what a pattern notes of
#: so long a match is more than they have cache.
_MOST: Final = {"tags in a block": 250_000}

_REDACTED: Final[dict[str, Callable[[int], str]]] = {
    "names": repeated("token="),
    "names and brackets": repeated("token=("),
    "names and quotes": repeated("token=\\'"),
    "names and backslashes": repeated("a\\"),
    "authorization": repeated("authorization=a "),
    "authorization of many parts": repeated("authorization=a b=c, "),
    "parameters": repeated('a="b", ', "authorization: digest "),
    "cookies": repeated("cookie: a; "),
    "private keys": repeated("-----BEGIN PRIVATE KEY"),
    "private keys that end": repeated("-----END "),
    "marks of keys": repeated("sk-."),
    "long keys": repeated("gsk_a"),
    "other long keys": repeated("secret_dp.pt.tskey-auth-"),
    "numbers and keys": repeated("123456:AA"),
    "login": repeated("login password "),
    "hvs.": repeated("hvs.-"),
    "SG.": repeated("SG.-"),
    "addresses": repeated("://a:"),
    "queries": repeated("?key="),
    "curl": repeated("curl -u a:b "),
    "-u": repeated("-u a"),
    "bearer": repeated("bearer auth"),
    "basic": repeated("basic a"),
    "secrets": repeated('secret "'),
    "tags": repeated("<secret"),
    "upper case": repeated("A", after="a=b"),
    "spaces": repeated(" ", "token:"),
    "api": repeated("api "),
    "brackets": repeated("token=[("),
    "brackets and quotes": repeated("token=('"),
    "elements": repeated("<secret>a</"),
    "names with values": repeated('{"name": "token", "value": "a"}, '),
    "lines of YAML": repeated("token: |\n"),
    "blocks of YAML": repeated("  a\n", "token: |\n"),
    "indented blocks": repeated("   token: |\n    a\n"),
    "forms": repeated("password=a&"),
    "identified by": repeated("identified by 'a' "),
    "auth": repeated('auth=("u", "a"), '),
    "titles": repeated("name=value:", "token "),
    "values": repeated("value=", "token "),
    "values before names": repeated('value="a" name=', "token "),
    "parts of forms": repeated('name="token"\n\n'),
    "names alone on a line": repeated("token:\n   "),
    "parts of texts": repeated("\n 'a'", "token='a'"),
    "escapes": repeated("%3D&#61;\\u003d", "token="),
    "escaped names": repeated("token%3D"),
    "tags beside tags": repeated("<td>token</td> "),
    "tags with names": repeated(' name="token">'),
    "rows": repeated("token|a\n"),
    "headers of tables": repeated("a,token\n"),
    "empty cells": repeated("  ,", "token\n", "!\n"),
    "cells of blanks": repeated("  |", "token\n", "!\n"),
    "cells of a table": repeated('"a",', "a,token\n"),
    "words of a header": repeated("TOKEN   "),
    "set variables": repeated("ENV TOKEN "),
    "arrows": repeated("token -> "),
    "calls": repeated('token("a"'),
    "names for somebody": repeated("token for user a"),
    "options of tools": repeated("unzip -p redis-cli -a "),
    "said to be": repeated("password is a"),
}

CASES: Final[Sequence[Case]] = (
    *(
        Case(
            f"document of {name}",
            review,
            make,
            _SIZES.get(name, 4000),
            _MOST.get(name, 500_000),
        )
        for name, make in _MARKDOWN.items()
    ),
    *(
        Case(f"error of {name}", redact, make, MAX_SEARCHED_CHARS // 8, MAX_SEARCHED_CHARS)
        for name, make in _REDACTED.items()
    ),
    Case("error of quotes", fail, repeated('"'), 40_000),
    Case("error of characters that JSON escapes", fail, repeated("\x01"), 40_000),
    Case("links that miss a heading by a letter", review, near_misses, 2000),
    Case("claims that are nearly the same", condense, different, 600),
    Case("claims that contradict each other", condense,
         lambda size: [f"the `limit` of these calls is {n} by default" for n in range(size)], 400),
    Case("sentences of stops", lambda text: list(split(text)), repeated(".!?"), 40_000),
    Case("sentences of East Asian stops", lambda text: list(split(text)), repeated("。」"), 20_000),
    Case("claim of digits", pick, repeated("1,"), 40_000),
    Case("claim of backticks", pick, growing("`"), 40_000),
    Case("numbers", numbers, repeated("1,"), 40_000),
    Case("terms", terms, repeated("a--"), 20_000),
    Case("prose of backticks", prose, growing("`"), 100_000),
    Case("prose of underscores", prose, repeated("_a"), 20_000),
    Case("controls", escape_controls, repeated("\x1b"), 20_000),
)  # fmt: skip
