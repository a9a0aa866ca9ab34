"""A bundle, checked: what is in it, and what is worth saying about it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from leasehold.deploy.bundle import BundleError, folder
from leasehold.deploy.bundle.contents import (
    OWN,
    REQUIREMENTS,
    Contents,
    sources,
    suspicions,
    user_modules,
)
from leasehold.deploy.bundle.import_check import check_imports
from leasehold.deploy.bundle.missing_imports import missing_imports
from leasehold.deploy.bundle.modules import Modules
from leasehold.deploy.bundle.requirements import Closure, closure_of, hashes_of


@dataclass(frozen=True, slots=True)
class Bundle:
    """What is uploaded.

    Args:
        contents: path → content, sorted.
        requirements: how many packages it needs.
        warnings: what may be wrong with it, a line each.
    """

    contents: Contents
    requirements: int
    warnings: tuple[str, ...]


def assemble(
    root: Path,
    functions: Iterable[str],
    catalog: str,
    extras: Sequence[str] = (),
) -> Bundle:
    """Read the bundle of a project, and check that functions can work with it.

    Args:
        root: the folder of the project.
        functions: the names of the entries.
        catalog: the name of the catalog's module.
        extras: further ones of leasehold.

    Raises:
        BundleError: no function could be deployed with it.
    """
    contents = sources(root, functions, catalog)
    modules = user_modules(catalog)
    closure = closure_of(root, modules, extras)
    hashes = hashes_of(root)
    contents[REQUIREMENTS] = closure.text(hashes).encode()
    contents = dict(sorted(contents.items()))
    packages = Modules(_files_of(closure))
    for name in (*OWN, *modules):
        if packages.have(name):
            raise BundleError(f"{name} is a module of a requirement too, which would come first")
    _check_imports(contents, catalog, closure)
    user_files = tuple(f"{module}{end}" for module in modules for end in ("/", ".py"))
    user_files += ("functions/",)
    everything = Modules([*contents, *_files_of(closure)])
    warnings = missing_imports(contents, user_files, everything)
    warnings = [*_without_hash(closure.without(hashes)), *warnings]
    return Bundle(contents, len(closure.installed), (*warnings, *suspicions(contents, user_files)))


def _without_hash(pins: Sequence[str]) -> Iterator[str]:
    if pins:
        yield (
            f"no hash is known of {', '.join(pins)}: a build takes whatever the index has by that "
            "name and version, of all packages; type: leasehold deploy hashes"
        )


def _files_of(closure: Closure) -> list[str]:
    return [str(file) for package in closure.installed.values() for file in package.files or ()]


def _check_imports(contents: Contents, catalog: str, closure: Closure) -> None:
    places = {str(package.locate_file("")): None for package in closure.installed.values()}
    with tempfile.TemporaryDirectory() as made:
        folder.write(Path(made), contents)
        check_imports(Path(made), catalog, [*contents, *_files_of(closure)], [*places])
