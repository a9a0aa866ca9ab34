"""The command line: one module for each command of `leasehold`.

What a command needs is imported when it is called, so that `--help` and a wrong word answer at
once: see `commands.COMMANDS`.
"""

from __future__ import annotations

import sys
from typing import Final

#: As `exit_codes.INTERRUPTED`: that module may be what is being imported.
_INTERRUPTED: Final = 130


def main() -> None:
    """Run the command line and leave with its exit code.

    Its imports take a tenth of a second, and Ctrl-C within them is one line as well.
    """
    try:
        from leasehold.cli.call import call  # noqa: PLC0415 - as above

        call()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted.\n")
        sys.exit(_INTERRUPTED)
