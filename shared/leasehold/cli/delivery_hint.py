"""Which command runs a run that was changed here, where no queue delivers its task."""

from __future__ import annotations

import json
from typing import Final

from leasehold.cli.invocation import command_line, start_command
from leasehold.cli.stderr import note
from leasehold.domain.effect import owed_tasks
from leasehold.domain.manifest import Manifest
from leasehold.services.start_run import StartRequest

#: Characters of an input that a person who reads a hint still takes in.
_LONGEST_INPUT: Final = 200


def hint_for_run(run: Manifest) -> None:
    """Print that the run waits for a worker, if it does; none will come by itself."""
    if owed_tasks(run):
        line = "It waits for a worker. Unless a server of this store runs it, do so with:"
        note(line, command_to_run(run))


def hint_for_runs() -> None:
    """Print that runs wait for a worker, and that none will come by itself."""
    line = "They wait for a worker. Unless a server of this store runs them, do so with:"
    note(line, command_line("serve"))


def command_to_run(run: Manifest) -> str:
    """Return what runs the run: its own start again where it has a key, or a server."""
    has_start = run.idempotency_key is not None and run.max_retries in (None, 0)
    if not has_start or run.input is None or len(run.input) > _LONGEST_INPUT:
        return command_line("serve")  # no `start` here would say the same, or none that is read
    labels = dict(label.split(":", 1) for label in run.labels)
    given, key = json.loads(run.input), run.idempotency_key
    request = StartRequest(run.pipeline, given, key, labels, run.max_retries)
    return start_command(request, run.input)
