"""The answer of a command that waited for a run: how it ended, and what it gave."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pydantic_core

from leasehold.cli.exit_codes import DONE, NOT_COMPLETED, UNWRITTEN
from leasehold.cli.invocation import command_line, url_words
from leasehold.cli.stderr import note, print_error
from leasehold.cli.stdout import print_json, print_line
from leasehold.client.patience import retry_unreachable
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus
from leasehold.domain.summary import summary_of
from leasehold.errors import LeaseholdError
from leasehold.presentation.run_state import result_of, value_in_short

_MAX_OUTPUT: Final = 200


def read_result(run: Manifest, read: Callable[[str], Any]) -> Any:
    """Return the output that `read` reads, None where there is none, or the error that hides it."""
    if run.status is not RunStatus.COMPLETED:
        return None
    try:
        return retry_unreachable(partial(read, run.run_id))()
    except LeaseholdError as error:
        return error


def print_result_json(run: Manifest, output: Any, *, url: str | None = None) -> int:
    """Print the summary with the output as `read_result` returned it; return the exit code."""
    summary = pydantic_core.to_jsonable_python(summary_of(run))
    if not isinstance(output, LeaseholdError):
        print_json({**summary, "output": output})
        return code_of(run)
    print_json({**summary, "output": None})
    print_error(f"the run is completed, but its output cannot be read: {output.message}")
    note("read it later with:", command_line("output", run.run_id, *url_words(url)))
    return UNWRITTEN


def print_result(run: Manifest, *, url: str | None = None) -> int:
    """Print how the run ended and which commands show more; return the exit code."""
    words = (run.run_id, *url_words(url))
    commands = [command_line("show", *words), command_line("trace", *words)]
    print_line(result_of(run))
    if run.status is RunStatus.COMPLETED:
        short = value_in_short(run.steps[run.position.step].kept_output, _MAX_OUTPUT)
        note(f"output: {short}")
        commands.insert(0, command_line("output", *words))
    note("next:", " · ".join(commands))
    return code_of(run)


def code_of(run: Manifest) -> int:
    """Return the exit code of a command that waited for the run."""
    return DONE if run.status is RunStatus.COMPLETED else NOT_COMPLETED
