"""The command line: words in, one call of `leasehold.console` each, an exit code out.

The calls are imported when they are made, so that `--help` and a wrong word answer at once.
"""

from __future__ import annotations

import io
import sys

from leasehold.cli.commands import commands
from leasehold.console.exits import exit_code_of


def main() -> None:
    """Run the command line and leave with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without emoji gets question marks
    sys.exit(exit_code_of(_run))


def _run() -> int:
    with commands.make_context("leasehold", sys.argv[1:]) as context:
        code: int | None = commands.invoke(context)
    return code or 0
