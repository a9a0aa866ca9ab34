"""One call of the command line: from its words to the exit code that its process ends with."""

from __future__ import annotations

import sys
import threading
from typing import Final, NoReturn

from leasehold.cli.commands import COMMANDS, program
from leasehold.cli.exit_codes import INTERRUPTED, TERMINATED, exit_code_of
from leasehold.cli.settings_files import read_settings_files
from leasehold.cli.stop_signals import leave
from leasehold.cli.streams import check_arguments, flush_stderr, open_streams
from leasehold.logs.stderr_log import print_printable_logs

#: The commands that a project is there for, and what it says of its settings.
_ON_A_PROJECT: Final = [[name] for name in COMMANDS if name != "init"]
#: It runs nothing, so no thread that was started by what it imported is waited for.
_LOOKS_ONLY: Final = "doctor"


def call() -> NoReturn:
    """Run the command line and leave with its exit code."""
    print_printable_logs()
    before = threading.enumerate()
    code = exit_code_of(_run, as_json=_wants_json(sys.argv[1:]))
    flush_stderr()
    if code in (INTERRUPTED, TERMINATED) or _is_kept(before):
        leave(code)
    sys.exit(code)


def _is_kept(before: list[threading.Thread]) -> bool:
    """Return whether a thread that is not needed would keep the process from its end."""
    started = set(threading.enumerate()) - set(before)
    return sys.argv[1:2] == [_LOOKS_ONLY] and not all(thread.daemon for thread in started)


def _wants_json(words: list[str]) -> bool:
    """Return whether the answer is to be JSON; of `signal`, `--json` gives the value."""
    return "--json" in words and words[:1] != ["signal"]


def _run() -> int:
    open_streams()
    check_arguments(sys.argv[1:])
    if sys.argv[1:2] in _ON_A_PROJECT:
        read_settings_files()
    with program.make_context("leasehold", sys.argv[1:]) as context:
        code: int | None = program.invoke(context)
    return code or 0
