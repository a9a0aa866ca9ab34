"""Which command runs a run that was moved here, where no queue delivers its task."""

from __future__ import annotations

import json

from leasehold.bootstrap import delivers_tasks
from leasehold.console.program import shown
from leasehold.console.says import say
from leasehold.console.start_asked import Start
from leasehold.domain.change import owed_tasks
from leasehold.domain.manifest import Manifest
from leasehold.services.engine import Engine
from leasehold.services.start_run import StartRequest


def tell_who_runs_it(engine: Engine, run: Manifest) -> None:
    """Say that the run waits for a worker, if it does and none will come by itself."""
    if owed_tasks(run) and not delivers_tasks(engine):
        said = "It waits for a worker. Unless a server of this store runs it, do so with:"
        say(said, command_for(run))


def tell_who_runs_them() -> None:
    """Say that runs wait for a worker, and that none will come by itself."""
    said = "They wait for a worker. Unless a server of this store runs them, do so with:"
    say(said, shown("dev"))


def command_for(run: Manifest) -> str:
    """Return what runs the run: its own start again where it has a key, or a server."""
    if run.idempotency_key is None or run.input is None:
        return shown("dev")
    given = json.loads(run.input)
    request = StartRequest(run.pipeline, given, run.idempotency_key)
    return Start(request, run.input).command
