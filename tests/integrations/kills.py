"""Runs of agents whose processes are killed, each time at a place that the test names."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from leasehold.bootstrap import boot, load_catalog
from leasehold.domain.manifest import Manifest
from leasehold.ports.documents import Documents
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run
from tests.worlds.waiting import until

_PATIENCE_S: Final = 60.0


class Deeds:
    """The deeds of an agent, in whichever process, and the places where that is to be killed.

    Args:
        folder: of the test; the handler gets it as a part of its input.
    """

    def __init__(self, folder: Path | str) -> None:
        self._folder = Path(folder)

    def kill_at(self, *places: str) -> None:
        """Have the process that comes to a place be killed there, once."""
        for place in places:
            self._kill(place).touch()

    def at(self, place: str) -> None:
        """Be killed, where that is ordered; never twice at one place."""
        try:
            self._kill(place).unlink()
        except FileNotFoundError:
            return
        self.did(f"killed at {place}")
        os.kill(os.getpid(), signal.SIGKILL)

    def did(self, deed: str) -> None:
        """Note a deed; what several processes and threads note is kept whole."""
        with (self._folder / "deeds").open("a") as lines:
            lines.write(f"{deed}\n")

    @property
    def done(self) -> list[str]:
        """All deeds, in order."""
        path = self._folder / "deeds"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def prompt(self) -> str:
        """The prompt of the agent, which a deploy may change: the file of that name."""
        path = self._folder / "prompt"
        return path.read_text() if path.exists() else "Be brief"

    def _kill(self, place: str) -> Path:
        return self._folder / f"kill at {place}"


@contextmanager
def engine_of(catalog: ModuleType | str, documents: Documents, folder: Path) -> Iterator[Engine]:
    """Open an engine on a store, whose handlers run in processes of their own."""
    name = catalog if isinstance(catalog, str) else catalog.__name__
    settings = {"LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts"}
    bundle = boot(settings, catalog=load_catalog(name), documents=documents)
    try:
        yield bundle.engine
    finally:
        bundle.processes.close()
        bundle.engine.leases.close()


def start(engine: Engine, pipeline: str, given: dict[str, Any]) -> str:
    """Start a run; return its id."""
    return start_run(engine, StartRequest(pipeline, given)).manifest.run_id


def attempt(engine: Engine, run_id: str) -> Manifest:
    """Have an attempt made, if one is due; return the run."""
    run = get_run(engine, run_id)
    execute_step(engine, Hint(run_id, run.position.dispatch.generation))
    return get_run(engine, run_id)


def settled(engine: Engine, run_id: str) -> Manifest:
    """Have attempts made until the run is terminal; return it."""
    until(lambda: attempt(engine, run_id).is_terminal, _PATIENCE_S)
    return get_run(engine, run_id)
