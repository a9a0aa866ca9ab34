"""The commands that read: `runs`, `show`, `trace`, `why`, `registry`."""

# ruff: noqa: PLC0415 - see leasehold.cli

from __future__ import annotations

from typing import Any, Final

import click

from leasehold.cli.options import (
    filter_options,
    json_option,
    limit_option,
    run_argument,
    url_option,
)

_MAX_LIMIT: Final = 1000


@click.command()
@filter_options
@limit_option(most=_MAX_LIMIT, default=50)
@click.option("--page-token", metavar="TOKEN", help="Continue behind an earlier answer.")
@url_option
@json_option
def runs(**words: Any) -> None:
    """List runs, newest first; where several filters are given, all must hold.

    \b
    Example:
      leasehold runs --dead-lettered --pipeline review
    """  # noqa: D301
    from leasehold.cli.runs import runs as answer

    answer(**words)


@click.command()
@run_argument
@url_option
@json_option
def show(run_id: str, url: str | None, as_json: bool) -> None:
    """Show one run: where it stands, and why.

    \b
    Example:
      leasehold show r-0123456789abcdef
    """  # noqa: D301
    from leasehold.cli.show import show as answer

    answer(run_id, url=url, as_json=as_json)


@click.command()
@run_argument
@url_option
@json_option
def trace(run_id: str, url: str | None, as_json: bool) -> None:
    """Tell all that happened to a run, oldest first.

    \b
    Example:
      leasehold trace r-0123456789abcdef --json
    """  # noqa: D301
    from leasehold.cli.trace import trace as answer

    answer(run_id, url=url, as_json=as_json)


@click.command()
@run_argument
@url_option
@json_option
def why(run_id: str, url: str | None, as_json: bool) -> None:
    """Say in one sentence what a run waits for, until when, and what happens then.

    \b
    Example:
      leasehold why r-0123456789abcdef
    """  # noqa: D301
    from leasehold.cli.why import why as answer

    answer(run_id, url=url, as_json=as_json)


@click.command()
@json_option
def registry(as_json: bool) -> None:
    """Show what is in force for each step type.

    Each value is shown with where it comes from; overrides that were refused are told.

    \b
    Example:
      PIPELINE_EXTRACTION_TIMEOUT_MS=60000 leasehold registry
    """  # noqa: D301
    from leasehold.cli.registry import registry as answer

    answer(as_json=as_json)
