"""The hash of each package that a function may install, as pip's index has it.

A version alone says which release is meant; its hash says which bytes. They are kept in
`hashes.txt`, in the form of a requirements.txt, and a bundle has them. Only wheels for Linux on
x86-64 count: nothing is built, so no one's set-up script runs while the image of a function is
made. The index is asked that pip is set up with.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from leasehold.deploy.bundle import BundleError
from leasehold.deploy.bundle.requirements import PYTHONS, Closure

#: The newest C library that an image of functions has is 2.39, of Ubuntu 24.04.
_PLATFORMS: Final = (
    *(f"manylinux_2_{minor}_x86_64" for minor in range(39, 4, -1)),
    *("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"),
)
_HEADER: Final = """\
# Made by `leasehold deploy hashes`: all that a function may need, and the hash of each file.
"""


def looked_up(closure: Closure) -> dict[str, set[str]]:
    """Return the hashes of each package, by `name==version`.

    Raises:
        BundleError: pip could not have one of them.
    """
    found: dict[str, set[str]] = {}
    for python in PYTHONS:
        pins = [closure.pin(name) for name, on in closure.pythons.items() if python in on]
        for pin, digest in _asked(pins, python).items():
            found.setdefault(pin, set()).add(digest)
    return found


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
            raise BundleError(f"pip has no wheels for Python {python}: {last}")
        installs = json.loads(report.read_text(encoding="utf-8"))["install"]
    by_name = {pin.partition("==")[0]: pin for pin in pins}
    return {
        by_name[Closure.name_of(one["metadata"]["name"])]: (
            one["download_info"]["archive_info"]["hashes"]["sha256"]
        )
        for one in installs
    }


def text_of(found: Mapping[str, set[str]]) -> str:
    """Return the file."""
    lines = (
        f"{pin} {' '.join(f'--hash=sha256:{digest}' for digest in sorted(found[pin]))}\n"
        for pin in sorted(found)
    )
    return _HEADER + "".join(lines)
