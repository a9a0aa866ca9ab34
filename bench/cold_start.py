"""What Leasehold adds to the import of what it stands on: a function, and a user's own module.

Each round starts fresh interpreters, one after the other: one imports the framework, Flask,
pydantic and the Google clients that the function needs with Google's stores; one imports the
framework and the function as `main.py` of the bundle does, then the same clients and Leasehold's
adapters over them, which it loads when it opens its stores. A program that imports `leasehold`,
and a catalog, are measured beside pydantic alone. All is compiled before. What is measured is the
time of the processor: that of a clock has the other programs of the machine in it, and an import
waits for nothing.
"""

from __future__ import annotations

import argparse
import compileall
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from bench.measuring import Figure, figure, report
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import Trigger, Use

ROOT: Final = Path(__file__).parents[1]
#: Where `main.py` of the bundle lies here.
FILES: Final = ROOT / "shared/leasehold/deploy/bundle/files"
#: `import pydantic` alone loads nothing of it; a model of one field does.
_PYDANTIC: Final = """
from pydantic import AwareDatetime, BaseModel, ConfigDict, TypeAdapter, ValidationError
class Model(BaseModel):
    at: AwareDatetime
"""
_FRAMEWORK: Final = f"import functions_framework, flask{_PYDANTIC}"
#: As an image of the bundle serves a function: the framework first, then this.
_PATHS: Final = [str(FILES), str(ROOT / "shared/leasehold")]  # whose functions/ a bundle has
_MAIN: Final = f"import sys, functions_framework\nsys.path += {_PATHS!r}\nimport main"
_FIRESTORE: Final = "import google.cloud.firestore"
_TASKS: Final = "import google.cloud.tasks_v2"

_TRIES: Final = "import tenacity"

#: The adapter over each client that has one, and what that loads with its first call.
_ADAPTERS: Final[Mapping[str, str]] = {
    _FIRESTORE: "from leasehold.adapters.firestore import "
    "connection, document_change, documents, structured_query",
    _TASKS: "import leasehold.adapters.cloud_tasks",
}

#: What each function of the table needs for what it mostly does: runs are kept in Firestore, and
#: the next task is created. An announcement creates none, nor does a budget.
NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    entry.name: (
        _FIRESTORE,
        *([_TRIES] if entry.trigger is Trigger.EVENTS else []),
        *([_TASKS] if Use.TASKS in entry.uses else []),
    )
    for entry in FUNCTIONS
}

#: What a user's own modules begin with.
IMPORTS: Final[Mapping[str, str]] = {
    "import leasehold": "import leasehold",
    "import of what a catalog needs": (
        "from leasehold import GateEntry, PipelineEntry, Registry, StepDispatchEntry"
    ),
}


def milliseconds(*lines: str) -> float:
    """Return how long a processor is busy with a fresh interpreter that runs these lines."""
    compiled = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # as everything is in an image
    process = subprocess.Popen(  # noqa: S603 - our own
        [sys.executable, "-c", "\n".join(lines)], cwd=ROOT, env=compiled
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, lines)
    return (usage.ru_utime + usage.ru_stime) * 1000


def measure(rounds: int, entries: Collection[str] = NEEDS.keys()) -> list[Figure]:
    """Return a figure for each of the entries."""
    for folder in ("shared", "pipelines"):
        compileall.compile_dir(str(ROOT / folder), quiet=2)
    figures = []
    for entry in entries:
        clients = NEEDS[entry]
        adapters = [_ADAPTERS[client] for client in clients if client in _ADAPTERS]
        with_entry = (_MAIN, f"main.{entry}", *clients, *adapters)
        floor = (_FRAMEWORK, *clients)
        milliseconds(*with_entry), milliseconds(*floor)  # the caches of disk and bytecode
        measured = [(milliseconds(*with_entry), milliseconds(*floor)) for _ in range(rounds)]
        figures.append(figure(f"cold start of {entry}", "ms", measured, at_most=1.15))
    return figures


def measure_imports(rounds: int) -> list[Figure]:
    """Return a figure for each of the imports, beside that of pydantic with a model built."""
    compileall.compile_dir(str(ROOT / "shared"), quiet=2)
    figures = []
    for name, line in IMPORTS.items():
        milliseconds(line), milliseconds(_PYDANTIC)  # as above
        measured = [(milliseconds(line), milliseconds(_PYDANTIC)) for _ in range(rounds)]
        figures.append(figure(name, "ms", measured, at_most=1.2))
    return figures


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    report("cold_start", [*measure(rounds), *measure_imports(rounds)])


if __name__ == "__main__":
    main()
