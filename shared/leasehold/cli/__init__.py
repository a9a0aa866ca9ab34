"""The command line: `leasehold COMMAND …`, one module a command.

What a command needs is imported when it is called, so that `--help` and a wrong word answer at
once: see `commands.COMMANDS`.
"""

from __future__ import annotations

import sys

from leasehold.cli.commands import program
from leasehold.cli.exit_codes import INTERRUPTED, TERMINATED, exit_code_of
from leasehold.cli.leaving import leave
from leasehold.cli.streams import check_arguments, flush_stderr, open_streams
from leasehold.logs.for_people import print_printable_logs


def main() -> None:
    """Run the command line and leave with its exit code."""
    print_printable_logs()
    code = exit_code_of(_run, as_json="--json" in sys.argv[1:])
    flush_stderr()
    if code in (INTERRUPTED, TERMINATED):
        leave(code)
    sys.exit(code)


def _run() -> int:
    open_streams()
    check_arguments(sys.argv[1:])
    with program.make_context("leasehold", sys.argv[1:]) as context:
        code: int | None = program.invoke(context)
    return code or 0
