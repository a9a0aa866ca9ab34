"""`leasehold output`, `files` and `calls`: what a run has made so far."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final, TextIO

import click
import pydantic_core

from leasehold.api import calls as api
from leasehold.api.results import CallReport, FileEntry
from leasehold.cli.opened import client_at
from leasehold.cli.options import json_option, run_argument, url_option
from leasehold.cli.stdout import Row, print_json, print_table
from leasehold.cli.streams import note
from leasehold.domain.printable import counted, one_line, printable
from leasehold.ports.artifacts import ArtifactContent
from leasehold.presentation.formatting import duration

_COLUMNS: Final = ("FILE", "BYTES")

#: A terminal is shown no larger file.
_MAX_TERMINAL_BYTES: Final = 1024 * 1024


@click.command()
@run_argument
@click.argument("name", required=False)
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE",
    help="Write the file NAME there, completely or not at all.",
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@url_option
@json_option
def files(
    *,
    run_id: str,
    name: str | None,
    target: str | None,
    force: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """List the files of RUN, or print the bytes of the file NAME.

    Handlers store files with ctx.artifacts.put; outputs are not among them.

    \b
    Examples:
      leasehold files r-0123456789abcdef
      leasehold files r-0123456789abcdef report.pdf -o report.pdf
    """  # noqa: D301
    if name is None:
        if target is not None or force:
            raise click.UsageError("-o and --force are for one file; allowed: with its NAME.")
        with client_at(url) as client:
            found = client.files(run_id)
        _print_list(found, as_json=as_json)
        return
    if as_json:
        raise click.UsageError("--json lists the files; allowed: without NAME.")
    place = None if target is None else check_target(Path(target), replace=force)
    answer = sys.stdout  # whatever else is printed meanwhile, as by a catalog, is no answer
    with client_at(url) as client, client.call(api.file, None, run_id, name=name) as content:
        if place is not None:
            save(content, place, replace=force)
            note(f"{counted(content.size, 'byte')} written to {place}")
        elif answer.isatty():
            _print_text(name, content, answer)
        else:
            _print_bytes(content, answer)


def _print_list(found: list[FileEntry], *, as_json: bool) -> None:
    if as_json:
        print_json({"files": found})
    elif found:
        print_table(_COLUMNS, [(entry.name, str(entry.size)) for entry in found])
    else:
        note("no files")


def _print_bytes(content: ArtifactContent, answer: TextIO) -> None:
    answer.flush()
    for block in content.blocks:
        answer.buffer.write(block)


def _print_text(name: str, content: ArtifactContent, answer: TextIO) -> None:
    """Print a file to a terminal: only text, or it could steer the terminal."""
    problem = f"it has {counted(content.size, 'byte')}"
    if content.size <= _MAX_TERMINAL_BYTES:
        text = _plain_text(b"".join(content.blocks))
        if text is not None:
            click.echo(text, answer, nl=not text.endswith("\n"))
            return
        problem = "it is not plain text"
    raise click.ClickException(
        f"{name} is not shown on a terminal: {problem}. Write it to a file with -o FILE, or send "
        "it on with | or >."
    )


def _plain_text(data: bytes) -> str | None:
    """Return the text that a terminal shows as it is, or None."""
    try:
        text = data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None
    lines = text.replace("\t", " ").split("\n")
    return text if all(printable(line) == line for line in lines) else None


# A file that a command writes for its user: whole or not at all, and over nothing unasked.


def check_target(target: Path, *, replace: bool) -> Path:
    """Return where a file can be written, or refuse it before anything is read.

    Args:
        target: what was given; a link leads to its file.
        replace: whether a file that is there may be replaced.
    """
    with _explained(target):
        place = target.resolve()
        if place.exists():
            if not place.is_file():
                raise click.ClickException(f"{target} is not a file; name a file with -o.")
            if not replace:
                raise click.ClickException(f"{target} exists; --force replaces it.")
        elif not place.parent.is_dir():
            raise click.ClickException(f"the folder {place.parent} does not exist; make it first.")
    return place


def save(content: ArtifactContent, target: Path, *, replace: bool) -> None:
    """Write the file beside its place, and give it its name once all of it is there."""
    unfinished = target.with_name(f".leasehold-{secrets.token_hex(8)}.part")
    try:
        with _explained(target), unfinished.open("xb") as file:
            for block in content.blocks:
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        with _explained(target):
            _name(unfinished, target, replace=replace)
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _name(unfinished: Path, target: Path, *, replace: bool) -> None:
    if replace:
        unfinished.replace(target)
        return
    try:
        os.link(unfinished, target)  # unlike a rename, it replaces nothing
    except FileExistsError:
        raise click.ClickException(f"{target} exists; --force replaces it.") from None
    except OSError:  # a file system without links
        check_target(target, replace=False)
        unfinished.rename(target)


@contextlib.contextmanager
def _explained(target: Path) -> Iterator[None]:
    """Say in one line why the system does not write the file."""
    try:
        yield
    except OSError as error:
        raise click.ClickException(
            f"{target} cannot be written: {error.strerror or error}."
        ) from None


# `leasehold output`: what a run or a step of it gave, as JSON.


@click.command()
@run_argument
@click.argument("step", required=False)
@url_option
@json_option
def output(*, run_id: str, step: str | None, url: str | None, as_json: bool) -> None:  # noqa: ARG001 - it is JSON anyway
    """Print the output of a completed RUN, or that of one STEP.

    The output is JSON, complete, however large it is. To see an output that a gate refused, name
    its STEP.

    \b
    Examples:
      leasehold output r-0123456789abcdef
      leasehold output r-0123456789abcdef extraction > extraction.json
    """  # noqa: D301
    with client_at(url) as client:
        value = client.output(run_id, step)
    print_json(value)


# `leasehold calls`: the recorded results that a run has.


_CALL_COLUMNS: Final = ("STEP", "TRIAL", "KEY", "TYPE", "ATTEMPT", "TOOK", "BYTES", "RESULT")
_MAX_RESULT_CHARS: Final = 80


@click.command()
@run_argument
@url_option
@json_option
def calls(*, run_id: str, url: str | None, as_json: bool) -> None:
    """List the recorded results of RUN: no attempt makes these calls again.

    \b
    Example:
      leasehold calls r-0123456789abcdef
    """  # noqa: D301
    with client_at(url) as client:
        found = client.calls(run_id)
    if as_json:
        print_json({"calls": found})
    elif found and any(one.spend for one in found):
        spent = ("" if one.spend is None else one.spend.words for one in found)
        rows = ((*row, words) for row, words in zip(_rows(found), spent, strict=True))
        print_table((*_CALL_COLUMNS, "SPENT"), rows)
    elif found:
        print_table(_CALL_COLUMNS, _rows(found))
    else:
        note(f"no results of calls in run {run_id}: they end with their step, unless kept")


def _rows(found: list[CallReport]) -> Iterator[Row]:
    for one in found:
        result = "no result so far" if one.is_open else "a file" if one.is_large else _short(one)
        attempt = "" if one.attempt is None else str(one.attempt)
        took = "" if one.took_s is None else duration(timedelta(seconds=one.took_s))
        size = "" if one.bytes is None else f"{one.bytes:,}"
        yield one.step, str(one.trial), one.key, one.type, attempt, took, size, result


def _short(one: CallReport) -> str:
    return one_line(pydantic_core.to_json(one.result).decode(), _MAX_RESULT_CHARS)
