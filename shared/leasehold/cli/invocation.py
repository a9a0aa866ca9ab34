"""The way this program was called, so that the commands it shows work when they are pasted."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from leasehold.cli.streams import note
from leasehold.domain.effect import owed_tasks
from leasehold.domain.manifest import Manifest
from leasehold.domain.slots import Priority
from leasehold.services.start_run import StartRequest

_NAME: Final = "leasehold"
_MAX_INPUT_WORD_CHARS: Final = 2000


def command_line(*words: str, folder: Path | None = None) -> str:
    """Return a command of this program as it is typed in `folder`, or here."""
    return shlex.join([*_program(folder or Path.cwd()), *words])


def start_command(
    request: StartRequest, input_words: str, files: Mapping[str, Path] = MappingProxyType({})
) -> str:
    """Return the command that runs this run in its own process, or continues it.

    Args:
        request: the run.
        input_words: the words that gave its input.
        files: where its files lie, by name.
    """
    words = ["start", request.pipeline]
    if request.input != {}:
        text = json.dumps(request.input)
        is_file = input_words.startswith("@") and input_words != "@-"  # stdin is empty next time
        words += ["--input", input_words if is_file or len(text) > _MAX_INPUT_WORD_CHARS else text]
    if request.idempotency_key is not None:
        words += ["--idempotency-key", request.idempotency_key]
    if request.max_retries == 0:
        words.append("--no-retry")
    if (budget := request.budget) is not None:
        kinds = {"usd": budget.usd, "tokens": budget.tokens}
        words += [f"--budget={name}={it}" for name, it in kinds.items() if it is not None]
    if request.priority != Priority.NORMAL:
        words += ["--priority", request.priority]
    for key, value in request.labels.items():
        words += ["--label", f"{key}:{value}"]
    for name, path in files.items():
        words += ["--file", f"{name}=@{path}"]
    return command_line(*words, "--in-process")


def url_words(url: str | None) -> tuple[str, ...]:
    """Return the words that name the same server again."""
    return () if url is None else ("--url", url)


def _program(folder: Path) -> tuple[str, ...]:
    """Return the words that call this program again, in the folder."""
    called = Path(sys.argv[0])
    if called.stem != _NAME:
        return (_near(Path(sys.executable), folder), "-m", _NAME)
    on_path = shutil.which(_NAME)
    is_it = on_path is not None and Path(on_path).resolve() == called.resolve()
    return (_NAME if is_it else _near(called, folder),)


def _near(path: Path, folder: Path) -> str:
    relative = os.path.relpath(path.absolute(), folder)
    return str(path.absolute()) if relative.startswith("..") else relative


# Which command runs a run that was changed here, where no queue delivers its task.


#: Characters of an input that a person who reads a hint still takes in.
_MAX_HINT_INPUT_CHARS: Final = 200


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
    has_start = has_start and run.budget is None  # it may be that of the pipeline, or raised since
    if not has_start or run.input is None or len(run.input) > _MAX_HINT_INPUT_CHARS:
        return command_line("serve")  # no `start` here would say the same, or none that is read
    labels = run.labels_by_name
    given, key = json.loads(run.input), run.idempotency_key
    priority = run.priority or Priority.NORMAL
    request = StartRequest(run.pipeline, given, key, labels, run.max_retries, priority=priority)
    return start_command(request, run.input)
