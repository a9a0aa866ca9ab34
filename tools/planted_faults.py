"""Plant faults in a copy of this tree, one at a time, and see that a test of the gate finds each.

A test that passes says little until it has failed. Each file of `tests/planted/` lists faults of
one story, as tables `[[fault]]` of TOML with the fields of `Fault`.

First the tests of the chosen faults run as they are, and have to pass.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TREE: Final = Path(__file__).parent.parent
_LISTS: Final = _TREE / "tests/planted"
_PASSED, _FAILED = 0, 1  # exit codes of pytest; any other one says that no test ran
_TOO_LONG_S: Final = 300.0
_FIRST_STAMP: Final = 1_000_000_000  # in 2001, before any file of the tree was written


class NotPlantedError(Exception):
    """A fault cannot be planted, or its tests say nothing."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and the tests that have to find it.

    Args:
        story: the name of the list.
        breaks: what goes wrong, as its user would say it.
        file: where it is planted, from the top of the tree on.
        old: text that stands there exactly once.
        new: what comes in its place.
        tests: files or single tests that have to fail, none of them nightly. Those of agent
            libraries run in the environment of the library; where several share a test, the path
            names one: `tests/integrations/adk/../test_kills.py`.
    """

    story: str
    breaks: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @contextmanager
    def planted(self, tree: Path, stamp: int) -> Iterator[None]:
        """Have it in the tree for the time of the block.

        Args:
            tree: where.
            stamp: a time of change, in seconds, that no file of this name had before: Python takes
                what it compiled where the time and the size are the same.

        Raises:
            NotPlantedError: the text is not there, or stands there twice.
        """
        path = tree / self.file
        before = path.read_text()
        if (found := before.count(self.old)) != 1:
            raise NotPlantedError(f"its text stands {found} times in {self.file}, not once")
        try:
            path.write_text(before.replace(self.old, self.new))
            os.utime(path, (stamp, stamp))
            yield
        finally:
            path.write_text(before)
            os.utime(path, (stamp + 1, stamp + 1))


def read(stories: Sequence[str]) -> list[Fault]:
    """Return the faults of the stories, or of all of them if none is named.

    Raises:
        NotPlantedError: there is no such story, or a table has other fields.
    """
    files = {path.stem: path for path in sorted(_LISTS.glob("*.toml"))}
    if unknown := set(stories) - set(files):
        raise NotPlantedError(f"no story {min(unknown)!r}; there are {', '.join(files)}")
    faults = []
    for story in stories or files:
        for table in tomllib.loads(files[story].read_text())["fault"]:
            try:
                faults.append(Fault(story=story, **{**table, "tests": tuple(table["tests"])}))
            except (KeyError, TypeError) as error:
                raise NotPlantedError(f"{story}: {error} in the fault {table}") from error
    return faults


def verdict(fault: Fault, tree: Path, stamp: int) -> str:
    """Return `found`, or why the fault was not."""
    try:
        with fault.planted(tree, stamp):
            code = _tested(tree, fault.tests, "-x")
    except NotPlantedError as error:
        return f"STALE: {error}"
    if code is None:
        return f"TOOK TOO LONG: more than {_TOO_LONG_S:.0f} s, which a busy machine may do as well"
    return {_FAILED: "found", _PASSED: "NOT FOUND"}.get(code, f"NO TEST RAN (pytest ended {code})")


def _tested(tree: Path, tests: Iterable[str], *options: str) -> int | None:
    """Return pytest's exit code: of several environments, that of the first with a failure."""
    by_environment: dict[str, list[str]] = {}
    for test in sorted(tests):
        by_environment.setdefault(_environment_of(test), []).append(test)
    codes = (_tested_in(tree, where, *options, *its) for where, its in by_environment.items())
    return next((code for code in codes if code != _PASSED), _PASSED)


def _environment_of(test: str) -> str:
    """Return the environment in which a test runs."""
    of_library = re.match(r"tests/integrations/(\w+)(/|$)", test)
    return f".venv/integrations/{of_library[1]}" if of_library else ".venv"


def _tested_in(tree: Path, environment: str, *options: str) -> int | None:
    """Return pytest's exit code, or None where it takes too long; `planted.log` has its output."""
    command = [str(tree / environment / "bin/python"), "-m", "pytest", "-q", "-m", "not nightly"]
    command += [*(() if environment == ".venv" else ("--disable-plugin-autoload",)), *options]
    with (tree / "planted.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=tree, stdout=log, stderr=subprocess.STDOUT)
        try:
            return process.wait(None if "--forks" in options else _TOO_LONG_S)
        except subprocess.TimeoutExpired:
            return None
        finally:
            process.kill()
            process.wait()


@contextmanager
def _copied(environments: Iterable[str]) -> Iterator[Path]:
    """Copy the tree, with changes that are not committed yet, and install it there."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listed, cwd=_TREE, check=True, capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        tree = Path(folder)
        for name in names.split("\0"):
            if name and (_TREE / name).exists():  # it may be deleted, and not yet committed
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(_TREE / name, tree / name, follow_symlinks=False)
        made = [f"{each}/.made" for each in environments if each != ".venv"]
        for command in (("git", "init", "-q"), ("make", "-s", ".venv/.dev", *made)):
            subprocess.run(command, cwd=tree, check=True)
        yield tree


def main() -> None:
    """Plant them, say of each whether it was found, and exit with 1 if one was not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stories", nargs="*", metavar="STORY", help="by default all of them")
    parser.add_argument("--only", default="", metavar="TEXT", help="faults that break such a thing")
    arguments = parser.parse_args()
    try:
        faults = [fault for fault in read(arguments.stories) if arguments.only in fault.breaks]
    except NotPlantedError as error:
        parser.error(str(error))
    # A shell has its background commands ignore Ctrl-C, and so would the commands under test.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tests = {test for fault in faults for test in fault.tests}
    with _copied(sorted({_environment_of(test) for test in tests})) as tree:
        if _tested(tree, tests, "--forks", "2"):
            sys.stdout.write((tree / "planted.log").read_text())
            sys.exit("error: the tests of these faults fail without them")
        missed = 0
        for number, fault in enumerate(faults):
            began = time.monotonic()
            said = verdict(fault, tree, _FIRST_STAMP + 2 * number)
            missed += not said.startswith("found")
            took = time.monotonic() - began
            print(f"{took:5.1f} s  {fault.story}: {fault.breaks}: {said}", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} planted faults were found")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
