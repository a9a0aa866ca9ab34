"""Who calls this program, and how, so that the commands it shows work when they are pasted."""

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

from leasehold.services.start_run import StartRequest

_NAME: Final = "leasehold"
_MAX_INPUT: Final = 2000


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
        words += ["--input", input_words if is_file or len(text) > _MAX_INPUT else text]
    if request.idempotency_key is not None:
        words += ["--idempotency-key", request.idempotency_key]
    if request.max_retries == 0:
        words.append("--no-retry")
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
