"""How a command of `infra/` is run, and what it says where it cannot do what it should."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from leasehold.cli.exit_codes import DONE, exit_code_of
from leasehold.cli.streams import check_arguments, open_streams

CONTEXT_SETTINGS: Final[Mapping[str, Any]] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
}


def run(command: click.Command, module: str, words: Sequence[str] | None = None) -> int:
    """Run a command as `python -m MODULE WORDS`; return its exit code.

    Args:
        command: what is run.
        module: what it is called by.
        words: what follows that; None: what this process was called with, whose streams may be
            closed.
    """
    given = list(sys.argv[1:] if words is None else words)

    def run_it() -> int:
        if words is None:
            open_streams()
            check_arguments(given)
        with command.make_context(f"python -m {module}", given) as context:
            code: int | None = command.invoke(context)
        return code or DONE

    return exit_code_of(run_it, as_json="--json" in given)
