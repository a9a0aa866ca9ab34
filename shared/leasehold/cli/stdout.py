"""Answers on stdout: JSON for machines, tables for terminals, tab-separated lines for pipes."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click
import pydantic_core

from leasehold.cli.formatting import Styled, one_line
from leasehold.domain.printable import printable_json

Cell = str | Styled
Row = Sequence[Cell]


@contextlib.contextmanager
def stdout_kept_for_the_answer() -> Iterator[None]:
    """Send to stderr what is printed inside, by this process and by those it starts."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def answer_json(value: Any) -> None:
    """Print the value as JSON."""
    plain = pydantic_core.to_jsonable_python(
        value, bytes_mode="base64", inf_nan_mode="null", fallback=str
    )
    text = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)
    click.echo(printable_json(text))


def answer_line(line: Cell) -> None:
    """Print one line; a terminal shows it in its style."""
    styled = as_styled(line)
    words = set(styled.style.split())
    colour = next(iter(words - {"bold", "dim"}), None)
    click.secho(one_line(styled.text), fg=colour, bold="bold" in words, dim="dim" in words)


def answer_facts(facts: Iterable[tuple[str, Cell]]) -> None:
    """Print names and values, one a line."""
    if sys.stdout.isatty():
        from leasehold.cli.tables import print_facts  # noqa: PLC0415 - rich, for people only

        print_facts((name, as_styled(value)) for name, value in facts)
        return
    for name, value in facts:
        click.echo(f"{name}: {one_line(as_styled(value).text)}")


def answer_table(columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Print a table with its column names first."""
    if sys.stdout.isatty():
        from leasehold.cli.tables import print_table  # noqa: PLC0415 - rich, for people only

        print_table(columns, ([as_styled(cell) for cell in row] for row in rows))
        return
    click.echo("\t".join(columns))
    for row in rows:
        click.echo("\t".join(one_line(as_styled(cell).text) for cell in row))


def as_styled(cell: Cell) -> Styled:
    """Return the cell with its style."""
    return cell if isinstance(cell, Styled) else Styled(cell)
