"""What Leasehold adds to the import of what it stands on: a function, and a user's own module.

Each round starts fresh interpreters, one after the other: one imports the framework, Flask,
pydantic and the Google clients that the function needs with Google's stores; one imports the
entry file, then the same clients and Leasehold's adapters over them, which it loads when it opens
its stores. A program that imports `leasehold`, and a catalog, are measured beside pydantic alone.
All is compiled before.
"""

from __future__ import annotations

import argparse
import compileall
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from bench.measuring import Figure, figure, report

ROOT: Final = Path(__file__).parents[1]
#: `import pydantic` alone loads nothing of it; a model of one field does.
_PYDANTIC: Final = """
from pydantic import AwareDatetime, BaseModel, ConfigDict, TypeAdapter, ValidationError
class Model(BaseModel):
    at: AwareDatetime
"""
_FRAMEWORK: Final = f"import functions_framework, flask{_PYDANTIC}"
_FIRESTORE: Final = "import google.cloud.firestore"
_TASKS: Final = "import google.cloud.tasks_v2"

_ADAPTERS: Final = "import leasehold.adapters.cloud_tasks, leasehold.adapters.firestore.documents"

#: The clients that each entry needs: runs are kept in Firestore, the next task is created.
NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "execute_step": (_FIRESTORE, _TASKS),
    "serve_api": (_FIRESTORE, _TASKS),
    "sweep_dead_letters": (_FIRESTORE, _TASKS),
    "deliver_notification": (_FIRESTORE, _TASKS, "import tenacity"),
}

#: What a user's own modules begin with.
IMPORTS: Final[Mapping[str, str]] = {
    "import leasehold": "import leasehold",
    "import of what a catalog needs": (
        "from leasehold import GateEntry, PipelineEntry, Registry, StepDispatchEntry"
    ),
}


def milliseconds(*lines: str) -> float:
    """Return how long a fresh interpreter takes to start and run these lines."""
    began = time.perf_counter()
    subprocess.run(  # noqa: S603 - our own lines
        [sys.executable, "-c", "\n".join(lines)], check=True, cwd=ROOT
    )
    return (time.perf_counter() - began) * 1000


def measure(rounds: int, entries: Collection[str] = NEEDS.keys()) -> list[Figure]:
    """Return a figure for each of the entries."""
    for folder in ("functions", "shared", "pipelines"):
        compileall.compile_dir(str(ROOT / folder), quiet=2)
    figures = []
    for entry in entries:
        clients = NEEDS[entry]
        with_entry = (f"import functions.{entry}", *clients, _ADAPTERS)
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
