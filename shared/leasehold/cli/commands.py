"""All commands, in the order in which people need them."""

from __future__ import annotations

import click

from leasehold.cli.operating import OPERATIONS, batch
from leasehold.cli.reading import registry, runs, show, trace, why
from leasehold.cli.running import dev, start
from leasehold.cli.upkeep import audit, sweep


class Commands(click.Group):
    """The commands; a word that is none of them is answered with all of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's shape
        """Return the names in the order in which people need them."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names."""
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            allowed = ", ".join(sorted(self.commands))
            raise click.UsageError(f"No such command {args[0]!r}; allowed: {allowed}.", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="leasehold", message="leasehold %(version)s")
@click.pass_context
def commands(context: click.Context) -> None:
    """Durable multi-step AI pipelines: no run is lost or silently stuck.

    \b
    The environment says what is worked on:
      LEASEHOLD_CATALOG  module with STEPS and PIPELINES  (pipelines.catalog)
      LEASEHOLD_STORE    where runs are kept  (sqlite:///.leasehold/leasehold.db)
      LEASEHOLD_DEBUG=1  tracebacks of errors

    \b
    Example:
      leasehold start review --input '{"folder": "docs"}' --in-process
    """  # noqa: D301 - click's mark for lines to keep
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in (start, runs, show, trace, why, *OPERATIONS, batch, audit, sweep, registry, dev):
    commands.add_command(_command)
