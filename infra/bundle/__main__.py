"""`python -m infra.bundle`: make the folder that is uploaded as the source of every function."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from infra.bundle.assemble import Bundle, assemble
from infra.bundle.bundle_error import BundleError
from infra.bundle.contents import user_modules
from infra.bundle.folder import Changes, write
from leasehold.cli.exit_codes import exit_code_of
from leasehold.cli.stdout import print_line
from leasehold.domain.printable import counted
from leasehold.errors import LeaseholdError
from leasehold.presentation.formatting import one_line
from leasehold.registry.settings import SETTINGS

_ROOT: Final = Path(__file__).parents[2]
_CATALOG: Final = "LEASEHOLD_CATALOG"
_REFUSED: Final = 2


def main() -> int:
    """Make the bundle; return the exit code."""
    return exit_code_of(_main)


def _main() -> int:
    options = _parser().parse_args()
    try:
        bundle, changes = _made(options.out, options.catalog, options.extra)
    except BundleError as error:
        return _refused(str(error))
    except LeaseholdError as error:  # a row of the table
        return _refused(error.message)
    except OSError as error:
        return _refused(f"{error.filename}: {error.strerror}")
    for line in bundle.warnings:
        print(one_line(f"warning: {line}"), file=sys.stderr)
    print_line(_summary(options.out, bundle, changes))
    return 0


def _made(out: Path, catalog: str, extras: Sequence[str]) -> tuple[Bundle, Changes]:
    from infra.functions import FUNCTIONS  # noqa: PLC0415 - a row that is wrong is told in one line

    for name in ("functions", "infra", "shared", *user_modules(catalog)):
        if out.resolve().is_relative_to(_ROOT / name):
            raise BundleError(f"--out {out} is in {name}/, which is read; name another folder")
    bundle = assemble(_ROOT, FUNCTIONS.keys(), catalog, extras)
    return bundle, write(out, bundle.contents)


def _refused(problem: str) -> int:
    print(one_line(f"error: {problem}"), file=sys.stderr)
    return _REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infra.bundle", description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/bundle"),
        help="the folder; what is in it of an earlier bundle is replaced (%(default)s)",
    )
    parser.add_argument(
        "--extra",
        action="append",
        default=[],
        help="a further extra of pyproject.toml that the pipelines need; may be repeated",
    )
    parser.add_argument(
        "--catalog",
        default=os.environ.get(_CATALOG) or SETTINGS[_CATALOG].default,
        help="the module of the catalog (%(default)s)",
    )
    return parser


def _summary(out: Path, bundle: Bundle, changes: Changes) -> str:
    size = sum(map(len, bundle.contents.values()))
    counts = {"new": changes.added, "changed": changes.changed, "gone": changes.removed}
    differs = ", ".join(f"{len(names)} {word}" for word, names in counts.items() if names)
    return (
        f"{out}: {counted(len(bundle.contents), 'file')}, {size / 1e6:.1f} MB, "
        f"{counted(bundle.requirements, 'requirement')}; {differs or 'nothing changed'}"
    )


if __name__ == "__main__":
    sys.exit(main())
