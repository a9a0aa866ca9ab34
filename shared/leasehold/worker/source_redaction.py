"""Secrets in a line of source code: what stands there as text is cut, and the code stays."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from leasehold.worker.redaction import Redaction, hides, spans_by_name
from leasehold.worker.secret_shapes import Span, shapes

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


def redacted_source(line: str, redaction: Redaction) -> str:
    """Return the line without the secrets that stand in it as texts or numbers."""
    return redaction.without(line, [*shapes(line), *_spans(line)])


def _spans(line: str) -> Iterator[Span]:
    for found in _LITERAL.finditer(line):
        named = _NAMED.search(line, max(0, found.start() - _BEFORE), found.start())
        if named and hides(named["name"], found[0]):
            yield found.span()
            continue
        for start, end in spans_by_name(found[0]):
            is_expression = "f" in (found["prefix"] or "").lower() and found[0][start] == "{"
            if not is_expression:
                yield found.start() + start, found.start() + end
