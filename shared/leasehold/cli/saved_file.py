"""A file that a command writes for its user: whole or not at all, and over nothing unasked."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import click

from leasehold.ports.artifacts import ArtifactContent


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
