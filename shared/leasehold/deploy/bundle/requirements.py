"""Exact versions of all that a deployed function needs: the requirements.txt of a bundle.

Which packages need which is read from what is installed; that is also what was tested, so it has
to be what constraints.txt says.
"""

from __future__ import annotations

import functools
import json
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from types import MappingProxyType
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from leasehold.deploy.bundle import BundleError
from leasehold.deploy.bundle.contents import REQUIREMENTS
from leasehold.frozen import dataclass

#: The extras of what every bundle needs. Channels depend on settings, which come after the bundle.
EXTRAS: Final = ("channels", "functions", "google")
_OURS: Final = "leasehold"
#: Where a function may run; a package that only some of them need gets a marker.
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
_LINUX: Final = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "sys_platform": "linux",
}
#: The hashes of all that a function may need, as `leasehold deploy hashes` writes them.
HASHES: Final = "hashes.txt"
#: The version of each package; one that is installed in another is refused.
CONSTRAINTS: Final = "constraints.txt"
_HEADER: Final = """\
# Made by `leasehold deploy bundle` of what is installed, which constraints.txt may pin.
"""


@dataclass(frozen=True, slots=True)
class Closure:
    """Packages with all that they need.

    Args:
        installed: the package of each name.
        pythons: the versions of Python that need it.
    """

    installed: dict[str, Distribution] = field(default_factory=dict)
    pythons: dict[str, list[str]] = field(default_factory=dict)

    def text(self, hashes: Mapping[str, Sequence[str]] = MappingProxyType({})) -> str:
        """Return the lines of a requirements.txt, sorted.

        Args:
            hashes: of each package, by its pin. pip asks for all of them or for none, so where one
                is not known no line has any.
        """
        known = {} if self.without(hashes) else hashes
        return _HEADER + "".join(f"{self._line(name, known)}\n" for name in sorted(self.installed))

    def without(self, hashes: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the pins of which no hash is known."""
        return [pin for pin in self.pins() if pin not in hashes]

    def pins(self) -> list[str]:
        """Return the name of each package with its version, sorted."""
        return list(map(self.pin, sorted(self.installed)))

    def pin(self, name: str) -> str:
        """Return the name of a package with its version."""
        return f"{name}=={_version(self.installed[name])}"

    @staticmethod
    def name_of(package: str) -> str:
        """Return the name that a package is found by, however it is written."""
        return canonicalize_name(package)

    def _line(self, name: str, hashes: Mapping[str, Sequence[str]]) -> str:
        line = pin = self.pin(name)
        if len(self.pythons[name]) < len(PYTHONS):
            where = " or ".join(f"python_version == {it!r}" for it in self.pythons[name])
            line = f"{line}; {where}"
        return " ".join([line, *(f"--hash=sha256:{digest}" for digest in hashes.get(pin, ()))])


def hashes_of(root: Path) -> dict[str, tuple[str, ...]]:
    """Return the hashes of `hashes.txt`, by the pin of the package.

    Raises:
        BundleError: it is no text.
    """
    parts = (line.split() for line in _lines_of(root / HASHES) if "==" in line)
    return {pin: tuple(it.removeprefix("--hash=sha256:") for it in its) for pin, *its in parts}


def closure_of(root: Path, folders: Sequence[str], extras: Sequence[str] = ()) -> Closure:
    """Return all that the functions need.

    Args:
        root: the folder of the project; it may have a constraints.txt.
        folders: of the user; each may have a requirements.txt.
        extras: further ones of leasehold.

    Raises:
        BundleError: an extra or a requirement that is not known, not installed, or not the version
            of constraints.txt.
    """
    package = _distribution(_OURS)
    wanted = _extras_of(package, extras)
    roots = [(_OURS, needed) for needed in _needs(package) if needed.name != _OURS]
    for folder in folders:
        roots += _of_the_user(root / folder / REQUIREMENTS)
    pins = _pins(root / CONSTRAINTS)
    closure = Closure()
    for python in PYTHONS:
        seen: set[str] = set()
        for source, requirement in roots:
            if _applies(requirement, python, ("", *wanted)):
                _add(closure, requirement, source, python, seen)
    for name, found in closure.installed.items():
        version = _version(found)
        if pins.get(name, version) != version:
            raise BundleError(
                f"{name} {version} is installed, and constraints.txt has {pins[name]}; type: "
                f"pip install {name}=={pins[name]}"
            )
    return closure


def _extras_of(package: Distribution, extras: Sequence[str]) -> Sequence[str]:
    """Return the extras that a bundle needs, with those that they bring."""
    known = package.metadata.get_all("Provides-Extra") or []
    wanted = sorted({*EXTRAS, *extras})
    for extra in wanted:
        if extra not in known:
            there = ", ".join(sorted(known))
            raise BundleError(f"--extra {extra}: there is none of that name; there are {there}")
        for needed in _needs(package):
            if needed.name == _OURS and _applies(needed, PYTHONS[0], (extra,)):
                wanted += sorted(needed.extras - {*wanted})
    return wanted


def _of_the_user(path: Path) -> Iterator[tuple[str, Requirement]]:
    """Yield the requirements of a file: names, versions and markers, and nothing else."""
    if not path.is_file():
        return
    source = f"{path.parent.name}/{path.name}"
    for number, line in enumerate(
        path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1
    ):
        text = line.partition(" #")[0].strip()
        if not text or text.startswith("#"):
            continue
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            requirement = None
        if requirement is None or requirement.url:
            allowed = "the name of a package, with its version if you like: httpx>=0.28"
            raise BundleError(f"{source}:{number}: {text!r} cannot be used; allowed: {allowed}")
        if canonicalize_name(requirement.name) == _OURS:
            raise BundleError(
                f"{source}:{number}: the bundle has leasehold itself; delete the line"
            )
        yield source, requirement


def _lines_of(path: Path) -> Sequence[str]:
    """Return the lines of a file of the project's; of one that is not there, none."""
    if not path.exists():
        return ()
    if not path.is_file():
        raise BundleError(f"{path.name} is no file; move it away")
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise BundleError(f"{path.name} is no text in UTF-8; move it away") from None


def _pins(path: Path) -> dict[str, str]:
    pairs = (line.partition("==") for line in _lines_of(path) if "==" in line)
    return {canonicalize_name(name): version.strip() for name, _, version in pairs}


def add_pins(root: Path, closure: Closure) -> bool:
    """Give constraints.txt each package that it lacks; return whether there was one."""
    path = root / CONSTRAINTS
    known = _pins(path)
    lacking = [closure.pin(name) for name in sorted(closure.installed) if name not in known]
    if lacking:
        lines = (*_lines_of(path), *lacking)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return bool(lacking)


def _add(
    closure: Closure, requirement: Requirement, source: str, python: str, seen: set[str]
) -> None:
    """Add a package, and what it needs with that Python on Linux."""
    name = canonicalize_name(requirement.name)
    found = closure.installed[name] = _installed(requirement, source)
    key = f"{name}[{','.join(sorted(requirement.extras))}]"
    if key in seen:
        return
    seen.add(key)
    if python not in closure.pythons.setdefault(name, []):
        closure.pythons[name].append(python)
    for needed in _needs(found):
        if _applies(needed, python, ("", *requirement.extras)):
            _add(closure, needed, name, python, seen)


@functools.cache
def _version(package: Distribution) -> str:
    """Return the version: to read it is to parse all that the package says of itself."""
    return package.version


@functools.cache
def _needs(package: Distribution) -> tuple[Requirement, ...]:
    return tuple(map(Requirement, package.requires or ()))


def _applies(requirement: Requirement, python: str, extras: Sequence[str]) -> bool:
    marker = requirement.marker
    where = {**_LINUX, "python_version": python, "python_full_version": f"{python}.0"}
    return marker is None or any(marker.evaluate({**where, "extra": extra}) for extra in extras)


def _installed(requirement: Requirement, source: str) -> Distribution:
    wanted = f"{requirement.name}{requirement.specifier}"
    try:
        found = _distribution(canonicalize_name(requirement.name))
    except PackageNotFoundError:
        raise BundleError(
            f"{source} needs {wanted}, which is not installed; type: pip install '{wanted}'"
        ) from None
    version = _version(found)
    if not requirement.specifier.contains(version, prereleases=True):
        raise BundleError(
            f"{source} needs {wanted}, and {version} is installed; type: pip install '{wanted}'"
        )
    if found.read_text("direct_url.json") is not None:  # of PEP 610: not from an index
        raise BundleError(
            f"{source} needs {wanted}, which is installed from a folder or a repository: a build "
            "would take what an index has by that name; give it to an index, or put its code into "
            "your pipelines"
        )
    return found


@functools.cache
def _distribution(name: str) -> Distribution:
    return distribution(name)


# The hash of each package that a function may install, as pip's index has it.
#
# A version alone says which release is meant; its hash says which bytes. They are kept in
# `hashes.txt`, in the form of a requirements.txt, and a bundle has them. Only wheels for Linux on
# x86-64 count: nothing is built, so no set-up script of a package runs in the build of an image.
# The index is that of pip's configuration.


#: The newest C library that an image of functions has is 2.39, of Ubuntu 24.04.
_PLATFORMS: Final = (
    *(f"manylinux_2_{minor}_x86_64" for minor in range(39, 4, -1)),
    *("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"),
)
_HASHES_HEADER: Final = """\
# Made by `leasehold deploy hashes`: all that a function may need, and the hash of each file.
"""


#: What a person waits for meanwhile.
ASKS_PIP: Final = "pip is asked for the hash of each package, which can take some minutes"


#: What Python says where an environment was made without it, as some tools do.
_NO_PIP: Final = "No module named pip"
#: Pip is asked for so many packages at a time, and it is said how far that is.
_AT_A_TIME: Final = 20


def looked_up(closure: Closure, tell: Callable[[str], None]) -> dict[str, Collection[str]]:
    """Return the hashes of each package, by `name==version`.

    Args:
        closure: the packages.
        tell: is told how far it is, in words.

    Raises:
        BundleError: pip could not have one of them.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for python in PYTHONS:
        pins = [closure.pin(name) for name, on in closure.pythons.items() if python in on]
        for start in range(0, len(pins), _AT_A_TIME):
            some = pins[start : start + _AT_A_TIME]
            for pin, digest in _asked(some, python).items():
                found[pin].add(digest)
            tell(f"Python {python}: {start + len(some)} of {len(pins)} packages")
    return {**found}


def _asked(pins: Sequence[str], python: str) -> Mapping[str, str]:
    """Return the hash of the wheel that pip takes for each, with that Python."""
    with tempfile.TemporaryDirectory() as made:
        report = Path(made) / "report.json"
        words = ["install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
        words += ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp"]
        words += [f"--platform={platform}" for platform in _PLATFORMS]
        words += [f"--target={made}/target", f"--report={report}", *pins]
        done = subprocess.run(  # noqa: S603 - pip, with names from constraints.txt
            [sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False
        )
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            if last.endswith(_NO_PIP):
                command = f"{shlex.quote(sys.executable)} -m ensurepip"
                raise BundleError(f"pip is not installed beside Leasehold; type: {command}")
            raise BundleError(f"pip has no wheels for Python {python}: {last}")
        installs = json.loads(report.read_text(encoding="utf-8"))["install"]
    by_name = {pin.partition("==")[0]: pin for pin in pins}
    return {
        by_name[Closure.name_of(one["metadata"]["name"])]: (
            one["download_info"]["archive_info"]["hashes"]["sha256"]
        )
        for one in installs
    }


def text_of(found: Mapping[str, Collection[str]]) -> str:
    """Return the file."""
    lines = (
        f"{pin} {' '.join(f'--hash=sha256:{digest}' for digest in sorted(found[pin]))}\n"
        for pin in sorted(found)
    )
    return _HASHES_HEADER + "".join(lines)
