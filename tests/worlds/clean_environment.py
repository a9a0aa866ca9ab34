"""Virtual environments that have the wheel, what it declares to need, and nothing else.

Nothing is downloaded: the packages of the gate are linked into them, those that the wheel names
and those that these need, one by one. So a requirement that is not declared is missed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from importlib.util import cache_from_source
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import Specifier

ROOT = Path(__file__).parents[2]
DEADLINE_S = 240.0  # of a command that hangs: mypy takes a minute on a machine that is busy

_BUILD = """
import os, tarfile
from setuptools import build_meta

sdist = build_meta.build_sdist({out!r})
with tarfile.open(os.path.join({out!r}, sdist)) as archive:
    archive.extractall({folder!r}, filter="data")
os.chdir(os.path.join({folder!r}, sdist.removesuffix(".tar.gz")))
build_meta.build_wheel({out!r})
"""

Done = subprocess.CompletedProcess[str]


def build(folder: Path) -> None:
    """Build the sdist of this repository, and the wheel from that sdist alone."""
    source, out = folder / "source", folder / "dist"
    out.mkdir()
    for name in ("shared",):
        junk = shutil.ignore_patterns("*.egg-info", "__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=junk)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    program = _BUILD.format(out=str(out), folder=str(folder))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def built_in(folder: Path) -> tuple[Path, Path]:
    """Return the sdist and the wheel that were built in the folder."""
    (sdist,), (wheel,) = folder.glob("dist/*.tar.gz"), folder.glob("dist/*.whl")
    return sdist, wheel


@dataclass(frozen=True)
class CleanEnvironment:
    """A virtual environment, as a user has it without anything else of Leasehold.

    Args:
        folder: where it is.
        first: a folder of programs that are found before its own.
    """

    folder: Path
    first: Path | None = None

    @property
    def programs(self) -> Path:
        """The folder where `leasehold` is found."""
        return self.first or self.folder / "bin"

    @property
    def environ(self) -> dict[str, str]:
        places = (self.programs, self.folder / "bin", os.defpath)
        return {
            "PATH": os.pathsep.join(map(str, places)),
            "HOME": str(self.folder),
            "PYTHONUTF8": "1",
        }

    def run(self, *command: str, cwd: Path, **settings: str) -> Done:
        """Run a command line in a folder."""
        return subprocess.run(
            self._found(command),
            cwd=cwd,
            env=self.environ | settings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def begin(self, *command: str, cwd: Path) -> subprocess.Popen[str]:
        """Begin a command line in a folder."""
        return subprocess.Popen(
            self._found(command),
            cwd=cwd,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _found(self, command: tuple[str, ...]) -> list[str]:
        """Return the command with its program, as the shell of this environment finds it."""
        program = shutil.which(command[0], path=self.environ["PATH"])
        assert program, command
        return [program, *command[1:]]


def unpack(wheel: Path, folder: Path) -> None:
    """Install the wheel alone, for all environments: pip takes a second for it."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    options = ["--no-index", "--no-deps", "--no-compile", "--ignore-installed"]
    subprocess.run([*pip, *options, "--prefix", str(folder), str(wheel)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for file in site.rglob("*.py"):
        _compile_as(ROOT / "shared" / file.relative_to(site), file)


def _compile_as(source: Path, file: Path) -> None:
    """Compile a file by a copy of what its source was compiled to, where that is the same text."""
    compiled, own = (Path(cache_from_source(str(one))) for one in (source, file))
    if compiled.exists() and source.read_bytes() == file.read_bytes():
        shutil.copystat(source, file)  # Python compares the time of the file
        own.parent.mkdir(exist_ok=True)
        shutil.copy(compiled, own)


def install(
    unpacked: Path, folder: Path, extras: tuple[str, ...] = (), tools: tuple[str, ...] = ()
) -> None:
    """Make an environment with the wheel, those extras of it, and those tools of the gate."""
    site = _empty(folder)
    (metadata,) = unpacked.glob("lib/python*/site-packages/leasehold-*.dist-info")
    needed = {"leasehold": Distribution.at(metadata)}
    _collect(needed["leasehold"], extras, needed)
    for tool in tools:
        _collect_one(Requirement(tool), needed)
    for package in needed.values():
        _link(package, site)
    _, program = (unpacked / "bin/leasehold").read_text().split("\n", 1)
    script = folder / "bin/leasehold"
    script.write_text(f"#!{folder}/bin/python\n{program}")
    script.chmod(0o755)


def install_requirements(requirements: Path, folder: Path) -> None:
    """Make an environment with the packages of a requirements.txt, and nothing that they need."""
    site = _empty(folder)
    for line in requirements.read_text().splitlines():
        if not line.startswith("#"):
            requirement = Requirement(line.partition(" --hash=")[0])
            package = distribution(requirement.name)
            assert list(requirement.specifier) == [Specifier(f"=={package.version}")]
            _link(package, site)


def _empty(folder: Path) -> Path:
    """Make an environment that has nothing; return the folder of its packages."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    return site


def _collect(package: Distribution, extras: tuple[str, ...], into: dict[str, Distribution]) -> None:
    """Add what the package needs, and what that needs in turn."""
    for line in package.requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            if requirement.name == package.name:  # an extra that brings others
                _collect(package, tuple(requirement.extras), into)
            else:
                _collect_one(requirement, into)


def _collect_one(requirement: Requirement, into: dict[str, Distribution]) -> None:
    key = f"{requirement.name.lower()}[{','.join(sorted(requirement.extras))}]"
    if key not in into:
        into[key] = distribution(requirement.name)
        _collect(into[key], tuple(requirement.extras), into)


def _link(package: Distribution, site: Path) -> None:
    """Link the files of a package; of a folder that packages share, only those of this one."""
    gate = Path(str(package.locate_file("")))
    for name in {_linked_name(gate, Path(str(file))) for file in _files(package)}:
        target = site / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_symlink():
            target.symlink_to(gate / name)


def _files(package: Distribution) -> Iterator[str]:
    for file in package.files or ():
        if ".." not in file.parts and "__pycache__" not in file.parts:
            yield str(file)


def _linked_name(gate: Path, file: Path) -> Path:
    """Return the outermost folder around the file that is a package, or else the file."""
    for folder in reversed(file.parents[:-1]):
        if (gate / folder / "__init__.py").is_file():
            return folder
    return file
