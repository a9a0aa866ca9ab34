"""What the commands take that serve on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def port_option(help: str) -> Callable[[F], F]:  # noqa: A002 - click's word
    """Return the option of the port."""
    return click.option(
        "--port",
        type=click.IntRange(1, 65535),
        default=8080,
        show_default=True,
        metavar="PORT",
        help=help,
    )


def workers_option(help: str, *, default: int) -> Callable[[F], F]:  # noqa: A002 - click's word
    """Return the option of how many workers."""
    return click.option(
        "--workers",
        type=click.IntRange(1, 64),
        default=default,
        show_default=True,
        metavar="N",
        help=help,
    )
