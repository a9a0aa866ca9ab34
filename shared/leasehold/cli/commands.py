"""The table of all commands, and the import of the one that is called."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final, NamedTuple

import click

from leasehold.imports import without_looks_for_garbage


class CommandRow(NamedTuple):
    """A command.

    Args:
        module: the module of this package that defines it, under the command's name.
        summary: the first sentence of its help.
    """

    module: str
    summary: str


#: The commands, in the order in which people need them.
COMMANDS: Final[Mapping[str, CommandRow]] = {
    "init": CommandRow("init", "Write a small project into FOLDER, by default this one."),
    "start": CommandRow("start", "Start a run of PIPELINE, or continue it."),
    "runs": CommandRow("runs", "List runs, newest first; several filters must all match."),
    "show": CommandRow("show", "Show one run: where it stands, and why."),
    "watch": CommandRow(
        "watch",
        "Show RUN live until it ends; without RUN, show all live runs until Ctrl-C.",
    ),
    "output": CommandRow("results", "Print the output of a completed RUN, or that of one STEP."),
    "files": CommandRow("results", "List the files of RUN, or print the bytes of the file NAME."),
    "calls": CommandRow(
        "results", "List the recorded results of RUN: no attempt makes these calls again."
    ),
    "trace": CommandRow("trace", "Show all that happened to a run, oldest first."),
    "stack": CommandRow(
        "trace", "Show the call stack of the attempt of RUN that runs now; the attempt goes on."
    ),
    "why": CommandRow(
        "why", "Say in one sentence what a run waits for, until when, and what happens then."
    ),
    "deliveries": CommandRow(
        "deliveries", "List the announcements of all runs, or of RUN alone, newest first."
    ),
    "deliver": CommandRow(
        "deliveries", "Send the last announcement of RUN to a channel once more."
    ),
    "pause": CommandRow(
        "operations",
        "Pause RUN: a running attempt may end, and no other one begins.",
    ),
    "resume": CommandRow("operations", "Continue RUN after a pause, at once."),
    "cancel": CommandRow(
        "operations", "End RUN for good; a running attempt is stopped, and its output discarded."
    ),
    "retry": CommandRow(
        "operations", "Run the step of RUN again at once, after an error or a gate."
    ),
    "approve": CommandRow(
        "operations", "Give the next step the output of RUN that a gate refused, or another one."
    ),
    "signal": CommandRow(
        "signal", "Send RUN the signal NAME, which it waits for, or will wait for."
    ),
    "recreate": CommandRow(
        "operations", "Make a new run from RUN, which is completed, cancelled or given up."
    ),
    "batch": CommandRow("batch", "Apply ACTION to the runs that match, newest first."),
    "purge": CommandRow(
        "purge", "Delete runs that ended long ago, with their traces, values and files."
    ),
    "audit": CommandRow(
        "upkeep", "Find live runs that nothing will move, as they have no owner and no alarm."
    ),
    "workers": CommandRow(
        "upkeep",
        "List the processes that work on the store and were seen within three minutes.",
    ),
    "sweep": CommandRow("upkeep", "Handle the runs whose alarm is due, once."),
    "check": CommandRow(
        "check", "Check settings, catalog, handlers, gates, channels and models; run nothing."
    ),
    "doctor": CommandRow(
        "doctor",
        "Find hidden problems on this machine, with --live also in Google Cloud; change nothing.",
    ),
    "registry": CommandRow("limits", "Show the effective limits of each step type."),
    "override": CommandRow(
        "limits", "Set limits for STEP until a time; without options, show all overrides."
    ),
    "schedules": CommandRow(
        "schedules", "List the schedules, or show the last times of NAME and their results."
    ),
    "explain-limit": CommandRow(
        "explain_limit",
        "Show how long attempts of STEP took, its limit, and the effect of another limit.",
    ),
    "loadtest": CommandRow(
        "loadtest",
        "Start runs of PIPELINE at a rate, and show how long each phase of each step took.",
    ),
    "serve": CommandRow(
        "serve", "Run the HTTP API, the workers and the timer in one process, until Ctrl-C."
    ),
    "dev": CommandRow("dev", "Serve the whole bundle on this machine, until Ctrl-C."),
    "deploy": CommandRow("deploy", "Deploy the project in this folder to Google Cloud."),
}


def _imported(name: str) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    with without_looks_for_garbage():
        return importlib.import_module(name)


class LazyCommands(click.Group):
    """The commands of a table; only the one that is called is imported.

    Args:
        rows: the table.
        package: what has the modules of the rows.
        options: click's own.
    """

    def __init__(
        self, *, rows: Mapping[str, CommandRow], package: str = "leasehold.cli", **options: Any
    ) -> None:
        super().__init__(**options)
        self._rows, self._package = rows, package

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's shape
        """Return the names, in the order of the table."""
        return list(self._rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command; None: there is no such one."""
        row = self._rows.get(cmd_name)
        if row is None:
            return None
        module = _imported(f"{self._package}.{row.module}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names; refuse another one with all of them."""
        if args and not args[0].startswith("-") and args[0] not in self._rows:
            allowed = ", ".join(sorted(self._rows))
            raise click.UsageError(f"No such command {args[0]!r}; allowed: {allowed}.", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.summary) for name, row in self._rows.items()])


@click.group(
    cls=LazyCommands,
    rows=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="leasehold", message="leasehold %(version)s")
@click.pass_context
def program(context: click.Context) -> None:
    """Durable multi-step AI pipelines: no run is lost or silently stuck.

    \b
    These variables say what the commands work on:
      LEASEHOLD_CATALOG  module with STEPS and PIPELINES  (pipelines.catalog)
      LEASEHOLD_STORE    where runs are kept  (sqlite:///.leasehold/leasehold.db)
      LEASEHOLD_DEBUG=1  tracebacks of errors
    They may also be in .env or in [tool.leasehold] of pyproject.toml; the environment comes first.

    \b
    Example:
      leasehold start summary --input '{"text": "One. Two."}' --in-process
    """  # noqa: D301 - click's mark for lines to keep
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
