"""`leasehold deploy init`: the files that a project is deployed with."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import distribution
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

import click

from leasehold.cli.deploy.cloudbuild import FILE, GATE_FILE, HEADER, REQUIREMENTS, build, text
from leasehold.cli.deploy.options import catalog_name, unusable_files_named
from leasehold.cli.exit_codes import DONE, FOUND
from leasehold.cli.stdout import print_line
from leasehold.cli.streams import note, print_error, warn
from leasehold.deploy.bundle import BundleError
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
from leasehold.deploy.tables import FILE as TABLES
from leasehold.deploy.tables import read_tables
from leasehold.registry import function_table

#: Where the wheel is that a build installs.
_WHEELS: Final = "wheels"
#: As `_leasehold` writes it.
_WHEEL_LINE: Final = re.compile(
    rf"^\./(?P<path>{_WHEELS}/leasehold-(?P<version>[^-/\s]+)-[^/\s]*\.whl)\[deploy\](?=\r?$)",
    re.MULTILINE,
)
#: How a file of the project's own is opened.
_AS_IT_IS: Final[Mapping[str, Any]] = {"encoding": "utf-8", "errors": "surrogateescape"}
#: What `gcloud builds submit` leaves out of what it uploads.
_NOT_UPLOADED: Final = """\
.git
.venv/
.leasehold/
/build/
__pycache__/
*.egg-info/
.mypy_cache/
.ruff_cache/
.pytest_cache/
.env
.env.*
*.env
*.pem
*.key
*.p12
*.pfx
"""


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a file is missing or stale.")
@unusable_files_named()
def init(*, check: bool) -> int:
    """Write what a project in this folder is deployed with.

    deployment.py has the tables, which are yours to change; requirements.txt what a build installs,
    constraints.txt the version of each package, as it is installed here, and hashes.txt its bytes.
    What is there is left alone, but for cloudbuild.yaml, which follows from deployment.py, for a
    package that constraints.txt or hashes.txt lacks: it is added, and for the wheel of Leasehold,
    which is the one that is installed here. Give the command again when you have changed
    deployment.py or your requirements, or have installed another version of Leasehold.

    \b
    Examples:
      leasehold deploy init
      leasehold deploy init --check
    """  # noqa: D301
    folder = Path.cwd()
    _need_catalog(folder)
    build_file = folder / FILE
    wanted = _build_text(folder)
    before = _own_text(build_file).replace("\r\n", "\n")
    if check:
        problems = [f"there is no {name}" for name in (*_missing(folder), *_unpinned(folder))]
        problems += _problems_of_wheel(folder)
        if before != wanted:
            problems.append(f"{FILE} is stale")
        for problem in problems:
            print_error(f"{problem}; type: leasehold deploy init")
        return FOUND if problems else DONE
    if before and not before.startswith(HEADER):
        raise click.ClickException(
            f"{FILE} is there, and is not one that this command wrote: move it away, as "
            f"another build of yours may have any other name"
        )
    written = [name for name, make in _missing(folder).items() if _write(folder / name, make())]
    written += _renew_wheel(folder)
    written += _pin(folder)
    if before != wanted:
        build_file.write_text(wanted, encoding="utf-8")
        written.append(FILE)
    print_line(f"written: {', '.join(written)}" if written else "nothing to write: all is there")
    note("next:", "leasehold deploy plan --project PROJECT --region REGION")
    return DONE


def _need_catalog(folder: Path) -> None:
    """Refuse a folder without a catalog, before anything is written into a wrong one."""
    stem = catalog_name().replace(".", "/")
    if not any((folder / name).is_file() for name in (f"{stem}.py", f"{stem}/__init__.py")):
        raise click.ClickException(
            f"there is no catalog {catalog_name()}: {stem}.py is missing in {folder}. Work in the "
            "folder of your project, set LEASEHOLD_CATALOG, or begin one: leasehold init"
        )


def _build_text(folder: Path) -> str:
    tables = read_tables(folder)
    return text(build(tables, has_gate=(folder / GATE_FILE).is_file()))


def _missing(folder: Path) -> Mapping[str, Callable[[], str]]:
    """Return what makes each file of the project's own that is not there."""
    files: dict[str, Callable[[], str]] = {
        TABLES: partial(inspect.getsource, function_table),
        ".gcloudignore": lambda: _NOT_UPLOADED,
        REQUIREMENTS: lambda: "".join(f"{line}\n" for line in _requirements(folder)),
    }
    return {name: make for name, make in files.items() if not (folder / name).exists()}


def _unpinned(folder: Path) -> Iterator[str]:
    return (name for name in (CONSTRAINTS, HASHES) if not (folder / name).is_file())


def _problems_of_wheel(folder: Path) -> Iterator[str]:
    """Yield what keeps a build from installing the Leasehold that is installed here."""
    here = package_version("leasehold")
    for named in _wheel_lines(folder):
        if named["version"] != here:
            yield f"{REQUIREMENTS} installs Leasehold {named['version']}, and {here} is here"
        elif not (folder / named["path"]).is_file():
            yield f"there is no {named['path']}, which {REQUIREMENTS} installs"
        elif not _is_installed(folder / named["path"]):
            yield f"{named['path']} is another build of Leasehold {here} than the one here"


def _renew_wheel(folder: Path) -> Iterator[str]:
    """Put the wheel of the Leasehold here where an earlier call put one; yield changed files."""
    for named in _wheel_lines(folder) if any(_problems_of_wheel(folder)) else ():
        line, file = _leasehold(folder), folder / REQUIREMENTS
        yield f"{_WHEELS}/"
        if line != named[0]:
            renewed = _own_text(file).replace(named[0], line)
            with file.open("w", newline="", **_AS_IT_IS) as text:
                text.write(renewed)
            yield REQUIREMENTS


def _wheel_lines(folder: Path) -> Iterator[re.Match[str]]:
    """Return the lines of requirements.txt by which a build installs a wheel of Leasehold."""
    return _WHEEL_LINE.finditer(_own_text(folder / REQUIREMENTS))


def _own_text(file: Path) -> str:
    """Return what is in a file of the project; of one that is not there, nothing.

    Its ends of lines are kept, and its bytes: pip reads other encodings, too.
    """
    if not file.exists():
        return ""
    if not file.is_file():
        raise click.ClickException(f"{file.name} is no file: move it away")
    with file.open(newline="", **_AS_IT_IS) as text:
        content: str = text.read()
    return content


def _pin(folder: Path) -> Iterator[str]:
    """Write the version and the hashes of each package where they are not known; yield the files.

    Two builds of one commit install the same: they take what is installed here.
    """
    try:
        modules, extras = user_modules(catalog_name()), read_tables(folder).extras
        closure = closure_of(folder, modules, ("deploy", *extras))
        if add_pins(folder, closure):
            yield CONSTRAINTS
        known, deployed = hashes_of(folder), closure_of(folder, modules, extras)
        if deployed.without(known):
            note(ASKS_PIP)
            found = text_of(known | looked_up(deployed, note))
            (folder / HASHES).write_text(found, encoding="utf-8")
            yield HASHES
    except BundleError as error:
        warn(f"{error}; then type: leasehold deploy init")


def _requirements(folder: Path) -> Iterator[str]:
    yield f"-c {CONSTRAINTS}"
    yield _leasehold(folder)


def _leasehold(folder: Path) -> str:
    """Return what a build installs: leasehold as it is installed here, and never another one.

    It is on no index, so its wheel is kept in the folder.
    """
    package = distribution("leasehold")
    wheels = folder / _WHEELS
    builds = sorted(wheels.glob(f"leasehold-{package.version}-*.whl"))
    for found in filter(_is_installed, builds):
        return f"./{_WHEELS}/{found.name}[deploy]"
    origin = package.read_text("direct_url.json")
    if origin is None:  # of an index that pip is set up with
        return f"leasehold[deploy]=={package.version}"
    url = str(json.loads(origin)["url"])
    source = Path(url2pathname(urlsplit(url).path))
    if urlsplit(url).scheme != "file":
        return f"leasehold[deploy] @ {url}"
    if source.suffix == ".whl" and not source.is_file():
        raise click.ClickException(
            f"a build installs leasehold from a wheel in this folder, and {source}, from which it "
            f"was installed here, is gone: put it into {_WHEELS}/"
        )
    if source.suffix != ".whl":
        raise click.ClickException(
            f"a build installs leasehold from a wheel in this folder. Type: pip wheel --no-deps "
            f"--wheel-dir {_WHEELS} {shlex.quote(str(source))}"
        )
    wheels.mkdir(exist_ok=True)
    shutil.copy(source, wheels)
    return f"./{_WHEELS}/{source.name}[deploy]"


def _is_installed(wheel: Path) -> bool:
    """Return whether a wheel is the one that is installed here, as far as pip has noted that."""
    if not wheel.is_file():
        return False
    origin = json.loads(distribution("leasehold").read_text("direct_url.json") or "{}")
    noted = origin.get("archive_info", {}).get("hashes", {}).get("sha256")
    return noted in (None, hashlib.sha256(wheel.read_bytes()).hexdigest())


def _write(path: Path, content: str) -> bool:
    """Write a file that is not there; return whether it was not."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(content)
    except FileExistsError:
        return False
    return True
