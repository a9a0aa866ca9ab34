"""Secrets in a line of source code: what stands there as text is cut, and the code stays."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from leasehold.domain.redaction import Redaction
from leasehold.domain.secret_names import hides, spans_by_name
from leasehold.domain.secret_shapes import Span, shapes

_LITERAL: Final = re.compile(
    r"""(?P<prefix>[rbfuRBFU]{0,2})(?:"(?:[^"\\]|\\.)*+(?:"|\Z)|'(?:[^'\\]|\\.)*+(?:'|\Z))"""
    r"|(?<![\w.])\d[\d_]{3,}+(?![\w.])"
)
#: The name of what follows: a variable and its annotation, an argument, a key, or a call.
_NAMED: Final = re.compile(
    r"""(?P<name>[\w.-]+)"""
    r"""(?:["']\s{0,3},|["']?\]?\s{0,3}(?::[\w.\[\], |]{1,60})?(?::=|[=!]=|[=:(]))"""
    r"""\s{0,3}[\[({]?\s{0,3}\Z"""
)
_BEFORE: Final = 120  # characters before a literal

#: What begins and ends a text of several lines.
_MARKS: Final = ('"""', "'''")


def redacted_source(line: str, redaction: Redaction, before: Sequence[str] = ()) -> str:
    """Return the line without the secrets that stand in it as texts or numbers.

    Args:
        line: the line.
        redaction: knows the secrets of the error.
        before: the lines before it: a name may stand there, or the text begin that it is part of.
    """
    spans = _spans_of_text(line) if _is_within_text(before) else _spans(line, before)
    return redaction.without(line, [*shapes(line), *spans])


def _is_within_text(before: Sequence[str]) -> bool:
    """Return whether a text of several lines has begun, and not ended."""
    return any(sum(line.count(mark) for line in before) % 2 for mark in _MARKS)


def _spans_of_text(line: str) -> Iterator[Span]:
    """Yield the secrets of a line that is text, but for the expressions within it."""
    return (span for span in spans_by_name(line) if line[span[0]] != "{")


def _spans(line: str, before: Sequence[str]) -> Iterator[Span]:
    named_before = before[-1].rstrip()[-_BEFORE:] + " " if before else ""
    text, at = named_before + line, len(named_before)
    for found in _LITERAL.finditer(text, at):
        start_of_literal = found.start() - at
        named = _NAMED.search(text, max(0, found.start() - _BEFORE), found.start())
        if named and hides(named["name"], found[0]):
            yield start_of_literal, found.end() - at
            continue
        for start, end in spans_by_name(found[0]):
            is_expression = "f" in (found["prefix"] or "").lower() and found[0][start] == "{"
            if not is_expression:
                yield start_of_literal + start, start_of_literal + end
