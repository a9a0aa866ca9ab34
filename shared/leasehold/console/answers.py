"""Answers on stdout: JSON for machines, tables for terminals, tab-separated lines for pipes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
import pydantic_core

from leasehold.console.words import Styled, one_line

Cell = str | Styled
Row = Sequence[Cell]


def answer_json(value: Any) -> None:
    """Print the value as JSON."""
    click.echo(pydantic_core.to_json(value, indent=2).decode())


def answer_line(line: Cell) -> None:
    """Print one line; a terminal shows it in its style."""
    text, style = _styled(line)
    bold, _, colour = style.rpartition(" ")
    click.secho(text, fg=colour or None, bold=bool(bold))


def answer_facts(facts: Iterable[tuple[str, Cell]]) -> None:
    """Print names and values, one a line."""
    if not sys.stdout.isatty():
        for name, value in facts:
            click.echo(f"{name}: {one_line(_styled(value).text)}")
        return
    grid = _rich_table(("", ""), header=False)
    grid.columns[0].style = "dim"
    for name, value in facts:
        grid.add_row(name, _rich_text(_styled(value)))
    _print(grid)


def answer_table(columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Print a table with its column names first."""
    if not sys.stdout.isatty():
        click.echo("\t".join(columns))
        for row in rows:
            click.echo("\t".join(one_line(_styled(cell).text) for cell in row))
        return
    table = _rich_table(columns, header=True)
    for row in rows:
        table.add_row(*map(_rich_text, map(_styled, row)))
    _print(table)


def _styled(cell: Cell) -> Styled:
    return cell if isinstance(cell, Styled) else Styled(cell)


def _rich_table(columns: Sequence[str], *, header: bool) -> Any:
    from rich.table import Table

    table = Table(box=None, show_header=header, header_style="bold", pad_edge=False, padding=(0, 2))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _rich_text(cell: Styled) -> Any:
    from rich.text import Text

    return Text("\n".join(map(one_line, cell.text.split("\n"))), style=cell.style)


def _print(*renderables: Any) -> None:
    from rich.console import Console

    Console(highlight=False).print(*renderables)
