"""The answer of a command, on stdout: JSON for machines, tables for terminals, lines for pipes."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
import pydantic_core

from leasehold.cli.streams import forget_stdout
from leasehold.domain.printable import one_line, printable_json
from leasehold.errors import LeaseholdError, ServerRefusedError
from leasehold.presentation.formatting import StyledText

if TYPE_CHECKING:
    from leasehold.api.errors import ErrorInfo

Cell = str | StyledText
Row = Sequence[Cell]
Fact = tuple[str, Cell]


@contextlib.contextmanager
def print_to_stderr() -> Iterator[None]:
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


def print_json(value: Any) -> None:
    """Print the value as JSON."""
    click.echo(printable_json(_json_text(value, indent=2)))


def print_json_line(value: Any) -> None:
    """Print the value as JSON in one line, at once: more of them follow."""
    click.echo(printable_json(_json_text(value)))
    sys.stdout.flush()


def print_line(line: Cell) -> None:
    """Print one line; a terminal shows it in its style."""
    styled = _styled(line)
    words = set(styled.style.split())
    colour = next(iter(words - {"bold", "dim"}), None)
    click.secho(one_line(styled.text), fg=colour, bold="bold" in words, dim="dim" in words)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines that are safe for a terminal as they are, at once: more of them follow."""
    for line in lines:
        click.echo(line)
    sys.stdout.flush()


def print_facts(facts: Iterable[Fact]) -> None:
    """Print names and values, one a line."""
    if sys.stdout.isatty():
        from leasehold.cli import tables  # noqa: PLC0415 - rich, for people only

        tables.print_facts((name, _styled(value)) for name, value in facts)
        return
    for name, value in facts:
        click.echo(f"{name}: {one_line(_styled(value).text)}")


def print_block(heading: str, lines: Iterable[str]) -> None:
    """Print lines under a heading; they are safe for a terminal, and keep their indents."""
    click.echo()
    print_line(heading)
    for line in lines:
        click.echo(line)


def print_table(columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Print a table with its column names first."""
    if sys.stdout.isatty():
        from leasehold.cli import tables  # noqa: PLC0415 - rich, for people only

        tables.print_table(columns, ([_styled(cell) for cell in row] for row in rows))
        return
    click.echo("\t".join(columns))
    for row in rows:
        click.echo("\t".join(one_line(_styled(cell).text) for cell in row))


def _json_text(value: Any, indent: int | None = None) -> str:
    """Return the value as JSON text; null where a model of a server's has NaN or infinity."""
    plain = pydantic_core.to_jsonable_python(value, bytes_mode="base64", fallback=str)
    try:
        return json.dumps(plain, indent=indent, ensure_ascii=False, allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(plain), parse_constant=lambda _: None)
        return json.dumps(finite, indent=indent, ensure_ascii=False)


def _styled(cell: Cell) -> StyledText:
    return cell if isinstance(cell, StyledText) else StyledText(cell)


# An error as the answer of a command with `--json`: on stdout, in the shape of the API.


def answer_with_error(error: Exception, message: str) -> None:
    """Print the error, if it can be written: the line on stderr says it, too.

    Args:
        error: what the command raised.
        message: the sentence of that line.
    """
    from leasehold.api.errors import ErrorResponse  # noqa: PLC0415 - for errors alone

    try:
        print_json(ErrorResponse(error=_error_info(error, message)))
        sys.stdout.flush()
    except (OSError, AttributeError):  # the reader of stdout is gone, or it is closed
        forget_stdout()


def _error_info(error: Exception, message: str) -> ErrorInfo:
    from leasehold.api.errors import ErrorInfo  # noqa: PLC0415 - as above

    if isinstance(error, ServerRefusedError) and error.details.get("code"):
        details = error.details.get("details", {})
        return ErrorInfo(code=error.details["code"], message=message, details=details)
    if isinstance(error, LeaseholdError):
        return ErrorInfo(code=error.code, message=message, details=error.details)
    code = "usage" if isinstance(error, click.ClickException) else "internal"
    return ErrorInfo(code=code, message=message)
