"""Tables for terminals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from leasehold.domain.printable import one_line
from leasehold.presentation.formatting import StyledText


def print_table(columns: Sequence[str], rows: Iterable[Sequence[StyledText]]) -> None:
    """Print a table; the first column is never broken."""
    table = _table()
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == columns[0])
    for row in rows:
        table.add_row(*map(_text, row))
    Console(highlight=False).print(table)


def print_facts(facts: Iterable[tuple[str, StyledText]]) -> None:
    """Print names and values, one a line."""
    table = _table(header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, _text(value))
    Console(highlight=False).print(table)


def _table(*, header: bool = True) -> Table:
    return Table(
        box=None, show_header=header, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0)
    )


def _text(cell: StyledText) -> Text:
    return Text(one_line(cell.on_screen), style=cell.style)
