"""Runs of agents whose processes are killed, each time at a place that the test names.

The agent of each library does the same, so that one test kills them all: its model asks for the
tools a, b and c at once, then for d, and then answers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from leasehold import PipelineEntry, Registry, RetryPolicy, StepDispatchEntry
from leasehold.domain.manifest import Manifest
from leasehold.integrations.prices import Price
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run

_LOOKS_S: Final = 0.01
#: The tools of a batch that are recorded before another one is killed, or ends: so it is known
#: which were under way.
_AFTER: Final = {"b": "a", "c": "b"}


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

    def asked(self, turn: int) -> None:
        """Be asked, as a model, for the answer of a turn, from 1 on; or be killed."""
        self.did(f"model {turn}")
        self.at(f"model {turn}")

    async def work(self, tool: str, of: str) -> str:
        """Do what a tool does, or be killed."""
        self.did(tool)
        while not self._is_next(tool):  # noqa: ASYNC110 - other processes do it too
            await asyncio.sleep(_LOOKS_S)
        self.at(tool)
        return f"{tool} of {of}"

    def work_in_thread(self, tool: str, of: str) -> str:
        """Do the same, for a library that calls tools in threads."""
        self.did(tool)
        while not self._is_next(tool):
            time.sleep(_LOOKS_S)
        self.at(tool)
        return f"{tool} of {of}"

    def recorded(self, tool: str) -> None:
        """Note that the result of a tool is recorded."""
        self.did(f"recorded {tool}")

    def _is_next(self, tool: str) -> bool:
        return tool not in _AFTER or f"recorded {_AFTER[tool]}" in self.done

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
    def made(self) -> list[str]:
        """The calls of models and tools that were made, in order."""
        return [each for each in self.done if each.partition(" ")[0] not in ("recorded", "killed")]

    @property
    def prompt(self) -> str:
        """The prompt of the agent, which a deploy may change: the file of that name."""
        path = self._folder / "prompt"
        return path.read_text() if path.exists() else "Be brief"

    def _kill(self, place: str) -> Path:
        return self._folder / f"kill at {place}"


def price_of(given: dict[str, Any]) -> Price | None:
    """Return a price that a test gives for each response; None: it gives none."""
    usd: float | None = given.get("usd")
    return None if usd is None else lambda _: usd


def steps_of(module: str, *handlers: str) -> Registry[StepDispatchEntry]:
    """Return the steps of a module, whose names are those of their handlers."""
    return Registry(
        "dispatch",
        [
            StepDispatchEntry(
                step_type=name,
                handler=f"{module}:{name}",
                agent_timeout=timedelta(
                    minutes=5
                ),  # for one that hangs; a kill is no matter of time
                dispatch_deadline=timedelta(minutes=10),
                max_retries=20,
                retry=RetryPolicy(first=timedelta(seconds=0.01), factor=1),
            )
            for name in handlers
        ],
    )


def pipelines_of(steps: Registry[StepDispatchEntry]) -> Registry[PipelineEntry]:
    """Return a pipeline of each step, of the same name."""
    names = [step.step_type for step in steps]
    return Registry("pipelines", [PipelineEntry(name=name, steps=(name,)) for name in names])


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
    return after_attempts(engine, run_id, lambda run: run.is_terminal)


def blocked(engine: Engine, run_id: str) -> Manifest:
    """Have attempts made until the run is blocked; return it."""
    return after_attempts(engine, run_id, lambda run: run.status == "BLOCKED")


def after_attempts(engine: Engine, run_id: str, is_enough: Callable[[Manifest], bool]) -> Manifest:
    """Have attempts made until that is enough; return the run.

    No clock is asked: each attempt has its limits, and a run its retries. The first attempt imports
    the library, which takes most of a minute on a loaded machine.
    """
    while not is_enough(run := attempt(engine, run_id)):
        assert run.block is None, run.block
        assert not run.is_terminal, run.error
        assert run.error is None or run.error.code != "agent_timeout_exceeded", run.error
        time.sleep(_LOOKS_S)
    return run
