"""The command line: words in, one call of `leasehold.console` each, an exit code out.

The calls are imported when they are made, so that `--help` and a wrong word answer at once.
"""

from __future__ import annotations

import sys

from leasehold.cli.commands import commands
from leasehold.console.exits import exit_code_of
from leasehold.console.streams import check_words, flush_stderr, open_streams
from leasehold.log_lines import print_printable_logs


def main() -> None:
    """Run the command line and leave with its exit code."""
    print_printable_logs()
    code = exit_code_of(_run)
    flush_stderr()
    sys.exit(code)


def _run() -> int:
    open_streams()
    check_words(sys.argv[1:])
    with commands.make_context("leasehold", sys.argv[1:]) as context:
        code: int | None = commands.invoke(context)
    return code or 0
