"""Secrets in a table whose header names them: CSV, Markdown, and what databases and tools print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Final, NamedTuple

from leasehold.domain.secret_names import hides, may_name
from leasehold.domain.secret_shapes import Span

_WORD: Final = r"[\w.-]{1,60}"
_WORDS: Final = rf"{_WORD}(?:[ ]{_WORD}){{0,3}}"
_BAR: Final = r"\|"  # also before the first cell, and behind the last one
_QUOTED: Final = r"\"[^\"\n]{1,60}\"|'[^'\n]{1,60}'"


class _Kind(NamedTuple):
    """How a line is cut into cells.

    Attributes:
        mark: what a line has to have.
        cell: a cell of any line.
        header: a line of names alone.
        is_ruled: whether a line of dashes stands below the header.
    """

    mark: str
    cell: re.Pattern[str]
    header: re.Pattern[str]
    is_ruled: bool = False


def _between(mark: str, name: str) -> _Kind:
    """Return how cells stand between marks, where a name is written so."""
    cell = rf"(?:^|{mark})(?P<cell>[ ]?\"(?:[^\"]|\"\")*+\"[ ]?|[^{mark}]*+)"
    name = rf"[ ]{{0,60}}+(?>{name}{'|' if mark == _BAR else ''})[ ]{{0,60}}+"
    header = re.compile(rf"{name}(?:{mark}{name})+")
    return _Kind(mark[-1], re.compile(cell), header, is_ruled=mark == _BAR)


_KINDS: Final = (
    _between(",", f"{_QUOTED}|{_WORD}"),
    _between(";", f"{_QUOTED}|{_WORD}"),
    _between("\t", f"{_QUOTED}|{_WORDS}"),
    _between(_BAR, _WORDS),
    # NAME   TOKEN
    _Kind(
        "  ",
        re.compile(r"(?P<cell>\S++(?:[ ]\S++)*+)"),
        re.compile(r"[A-Z][A-Z_-]*+(?:[ ]{1,60}[A-Z][A-Z_-]*+)+[ ]{0,60}"),
    ),
)
_QUOTES: Final = re.compile("[\"'`]")
_RULER: Final = re.compile(r"[\s|+:=-]{3,}")


class _Table(NamedTuple):
    """What a header says of the lines below it: how they are cut, and what hides what."""

    kind: _Kind
    names: tuple[str, ...]


class SecretColumns:
    """Finds the secrets in the lines of a table, which come one by one."""

    def __init__(self) -> None:
        self._above: _Table | None = None
        self._is_ruled = False

    def spans(self, line: str) -> Iterator[Span]:
        """Yield where a secret stands in this line."""
        table = self._above
        if table is not None and _RULER.fullmatch(line):
            self._is_ruled = True
            return
        if table is not None and (self._is_ruled or not table.kind.is_ruled):
            cells = [*table.kind.cell.finditer(line)]
            if len(cells) == len(table.names):
                for name, cell in zip(table.names, cells, strict=True):
                    if cell["cell"].strip() and hides(name, cell["cell"].strip(' "')):
                        yield _trimmed(cell)
                return
        self._above, self._is_ruled = _header(line), False


def spans_in_columns(text: str) -> Iterator[Span]:
    """Yield where a secret stands in the tables of a text."""
    if "\n" not in text:
        return
    columns, place = SecretColumns(), 0
    for line in text.split("\n"):
        for start, end in columns.spans(line):
            yield place + start, place + end
        place += len(line) + 1


def _header(line: str) -> _Table | None:
    line = line.rstrip("\r")
    behind = _QUOTES.split(line)[-1]  # of a table that is shown as a literal
    for kind, text in product(_KINDS, {line, behind}):
        if kind.mark in text and kind.header.fullmatch(text) and may_name(text):
            names = tuple(found["cell"] for found in kind.cell.finditer(text))
            if any(hides(name, "") for name in names):
                return _Table(kind, names)
    return None


def _trimmed(cell: re.Match[str]) -> Span:
    start, text = cell.start("cell"), cell["cell"]
    return start + len(text) - len(text.lstrip()), start + len(text.rstrip())
