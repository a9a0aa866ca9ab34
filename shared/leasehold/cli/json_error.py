"""An error as the answer of a command with `--json`: on stdout, in the shape of the API."""

from __future__ import annotations

import sys

import click

from leasehold.api.errors import ErrorInfo, ErrorResponse
from leasehold.cli.stdout import print_json
from leasehold.cli.streams import forget_stdout
from leasehold.errors import LeaseholdError, ServerRefusedError


def answer_with_error(error: Exception, message: str) -> None:
    """Print the error, if it can be written: the line on stderr says it, too.

    Args:
        error: what the command raised.
        message: the sentence of that line.
    """
    try:
        print_json(ErrorResponse(error=_info(error, message)))
        sys.stdout.flush()
    except (OSError, AttributeError):  # no one reads stdout, or it is closed
        forget_stdout()


def _info(error: Exception, message: str) -> ErrorInfo:
    if isinstance(error, ServerRefusedError) and error.details.get("code"):
        details = error.details.get("details", {})
        return ErrorInfo(code=error.details["code"], message=message, details=details)
    if isinstance(error, LeaseholdError):
        return ErrorInfo(code=error.code, message=message, details=error.details)
    code = "usage" if isinstance(error, click.ClickException) else "internal"
    return ErrorInfo(code=code, message=message)
