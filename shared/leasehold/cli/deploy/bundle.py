"""`leasehold deploy bundle` and `hashes`: the folder that is deployed, and what it pins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from leasehold.cli.deploy.options import catalog_name, project_tables, unusable_files_named
from leasehold.cli.stdout import print_line
from leasehold.cli.streams import note, warn
from leasehold.deploy.bundle import BundleError
from leasehold.deploy.bundle.assemble import Bundle, Changes, assemble, write
from leasehold.deploy.bundle.contents import user_modules
from leasehold.deploy.bundle.requirements import (
    ASKS_PIP,
    CONSTRAINTS,
    HASHES,
    add_pins,
    closure_of,
    hashes_of,
    looked_up,
    text_of,
)
from leasehold.domain.printable import counted, one_line

_catalog_option = click.option(
    "--catalog",
    default=catalog_name,
    help="The module of the catalog; by default that of LEASEHOLD_CATALOG.",
)
_extra_option = click.option(
    "--extra",
    "extras",
    multiple=True,
    help="A further extra of leasehold that the pipelines need; may be repeated.",
)


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("build/bundle"),
    show_default=True,
    help="The folder; what is in it of an earlier bundle is replaced.",
)
@_extra_option
@_catalog_option
@unusable_files_named()
def bundle(*, out: Path, extras: Sequence[str], catalog: str) -> None:
    """Make the folder that is uploaded as the source of every function.

    It is imported as a function imports it, with its requirements alone, before it is written.

    \b
    Example:
      leasehold deploy bundle
    """  # noqa: D301
    try:
        made, changes = _made(out, catalog, extras)
    except BundleError as error:
        raise click.ClickException(str(error)) from error
    for line in made.warnings:
        warn(one_line(line))
    print_line(_summary(out, made, changes))


@click.command()
@_extra_option
@_catalog_option
@unusable_files_named()
def hashes(*, extras: Sequence[str], catalog: str) -> None:
    """Look up the hash of each package that a function may need, and write hashes.txt.

    A package that constraints.txt lacks is written into that, so that a build installs its version.

    \b
    Example:
      leasehold deploy hashes
    """  # noqa: D301
    root = Path.cwd()
    extras = (*project_tables().extras, *extras)
    try:
        closure, before = closure_of(root, user_modules(catalog), extras), hashes_of(root)
        note(ASKS_PIP)
        found = looked_up(closure, note)
    except BundleError as error:
        raise click.ClickException(str(error)) from error
    if (root / CONSTRAINTS).is_file() and add_pins(root, closure):
        note(f"{CONSTRAINTS}: the packages that it lacked are added")
    (root / HASHES).write_text(text_of(found), encoding="utf-8")
    changed = sum(tuple(sorted(found[pin])) != before.get(pin) for pin in found)
    print_line(f"{HASHES}: {len(found)} packages, {changed} new or changed")


def _made(out: Path, catalog: str, extras: Sequence[str]) -> tuple[Bundle, Changes]:
    root, tables = Path.cwd(), project_tables()
    for name in ("functions", *user_modules(catalog)):
        if out.resolve().is_relative_to(root / name):
            raise BundleError(f"--out {out} is in {name}/, which is read; name another folder")
    made = assemble(root, tables.functions.keys(), catalog, (*tables.extras, *extras))
    return made, write(out, made.contents)


def _summary(out: Path, made: Bundle, changes: Changes) -> str:
    size = sum(map(len, made.contents.values()))
    counts = {"new": changes.added, "changed": changes.changed, "gone": changes.removed}
    differs = ", ".join(f"{len(names)} {word}" for word, names in counts.items() if names)
    return (
        f"{out}: {counted(len(made.contents), 'file')}, {size / 1e6:.1f} MB, "
        f"{counted(made.requirements, 'requirement')}; {differs or 'nothing changed'}"
    )
