"""`leasehold deploy COMMAND`: a project to Google Cloud, from its own folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from leasehold.cli.commands import CommandRow, LazyCommands
from leasehold.registry.extras import require_extra

#: The commands, in the order in which people need them.
COMMANDS: Final[Mapping[str, CommandRow]] = {
    "init": CommandRow(
        "init", "Write the tables of a deployment, and the cloudbuild.yaml that follows from them."
    ),
    "plan": CommandRow(
        "provision", "Say what would be created, what is left alone, what differs, and what waits."
    ),
    "apply": CommandRow(
        "provision",
        "Create what is missing, in order; a second apply goes on where this one ended.",
    ),
    "drift": CommandRow(
        "provision", "Exit 1 where something is missing, or is not as the tables and settings say."
    ),
    "bundle": CommandRow("bundle", "Make the folder that all functions are deployed from."),
    "hashes": CommandRow("bundle", "Look up the hash of each package that a function may need."),
    "live-runs": CommandRow(
        "live_runs", "Look at the runs that have not ended: would they go on with this catalog?"
    ),
    "settings": CommandRow("settings", "Write the settings and secrets of each function."),
    "smoke": CommandRow("smoke", "Test what was deployed: a line for each thing."),
}


class _DeployCommands(LazyCommands):
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; what all of them need is an extra.

        Raises:
            MissingExtraError: it is not installed.
        """
        if cmd_name in COMMANDS:
            require_extra("deploy", f"`leasehold deploy {cmd_name}`")
        return super().get_command(ctx, cmd_name)


@click.group(cls=_DeployCommands, rows=COMMANDS, package=__name__, invoke_without_command=True)
@click.pass_context
def deploy(context: click.Context) -> None:
    """Deploy the project in this folder to Google Cloud.

    Nothing is ever deleted. Existing resources are left alone, whatever the tables say.

    \b
    Example, in a project that `leasehold init` made:
      leasehold deploy init
      leasehold deploy plan --project shop-prod --region europe-west1
    """  # noqa: D301 - click's mark for lines to keep
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
