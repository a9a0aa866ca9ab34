"""The command line: words in, one call of `leasehold.console` each, an exit code out.

The calls are imported when they are made, so that `--help` and a wrong word answer at once.
"""

# ruff: noqa: PLC0415 - as said above

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any, Final

import click

from leasehold.console.exits import exit_code_of
from leasehold.console.options import GivenInput, InputType, LabelType, as_mapping
from leasehold.domain.status import RunStatus

_MAX_LIMIT: Final = 1000
_STATUSES: Final = click.Choice([status.value for status in RunStatus], case_sensitive=False)

_url = click.option(
    "--url", metavar="URL", help="A server, in place of the store of the environment."
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Answer with JSON on stdout.")


def main() -> None:
    """Run the command line and leave with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without emoji gets question marks
    sys.exit(exit_code_of(_run))


def _run() -> int:
    with commands.make_context("leasehold", sys.argv[1:]) as context:
        code: int | None = commands.invoke(context)
    return code or 0


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


@commands.command()
@click.argument("pipeline")
@click.option(
    "--input",
    "given",
    type=InputType(),
    default="{}",
    metavar="JSON|@FILE",
    help="What the first step is given: JSON, @FILE, or @- for stdin.  [default: {}]",
)
@click.option(
    "--idempotency-key", metavar="KEY", help="The same key and input always mean the same run."
)
@click.option(
    "--label",
    "labels",
    type=LabelType(),
    multiple=True,
    metavar="KEY:VALUE",
    help="To find the run by; may be given up to 16 times.",
)
@click.option("--wait", is_flag=True, help="Wait until the run rests.")
@click.option("--in-process", is_flag=True, help="Run it in this process, and wait for it.")
@_url
@_as_json
def start(
    pipeline: str, given: GivenInput, labels: tuple[tuple[str, str], ...], **words: Any
) -> int:
    """Start a run of PIPELINE, or continue it.

    The same key means the same run, so a command that was cut off is simply given again: with
    --in-process it continues the run where that was left. Without --in-process the run is
    recorded and waits for a worker.

    Exits with 0 when it is done, 1 when the run ended otherwise than completed.

    \b
    Examples:
      leasehold start review --input '{"folder": "docs"}' --in-process
      leasehold start review --input @request.json --idempotency-key docs-42 --in-process
    """  # noqa: D301
    from leasehold.console.start_asked import Start
    from leasehold.console.starting import start as answer
    from leasehold.services.start_run import StartRequest

    if words["url"] is not None and words["in_process"]:
        raise click.UsageError("--in-process runs the run here; --url has a server run it.")
    key = words.pop("idempotency_key")
    request = StartRequest(pipeline, given.value, key, as_mapping(labels))
    return answer(Start(request, given.words, **words))


@commands.command()
@click.option("--status", type=_STATUSES, help="Only runs in this status.")
@click.option("--dead-lettered", is_flag=True, help="Only runs that were given up.")
@click.option("--pipeline", metavar="NAME", help="Only runs of this pipeline.")
@click.option("--label", type=LabelType(), metavar="KEY:VALUE", help="Only runs with this label.")
@click.option(
    "--limit",
    type=click.IntRange(1, _MAX_LIMIT),
    default=50,
    show_default=True,
    metavar="N",
    help="How many at most.",
)
@click.option("--page-token", metavar="TOKEN", help="Continue behind an earlier answer.")
@_url
@_as_json
def runs(
    status: str | None,
    dead_lettered: bool,
    pipeline: str | None,
    label: tuple[str, str] | None,
    **words: Any,
) -> None:
    """List runs, newest first.

    \b
    Example:
      leasehold runs --dead-lettered --pipeline review
    """  # noqa: D301
    from leasehold.console.runs_view import runs as answer
    from leasehold.services.read_runs import RunFilter

    wanted = RunFilter(
        status=status,
        pipeline=pipeline,
        dead_lettered=True if dead_lettered else None,
        label=None if label is None else ":".join(label),
    )
    answer(wanted, **words)


@commands.command()
@click.argument("run_id", metavar="RUN")
@_url
@_as_json
def show(run_id: str, url: str | None, as_json: bool) -> None:
    """Show one run: where it stands, and why.

    \b
    Example:
      leasehold show r-0123456789abcdef
    """  # noqa: D301
    from leasehold.console.show_view import show as answer

    answer(run_id, url=url, as_json=as_json)


@commands.command()
@click.argument("run_id", metavar="RUN")
@_url
@_as_json
def trace(run_id: str, url: str | None, as_json: bool) -> None:
    """Tell all that happened to a run, oldest first.

    \b
    Example:
      leasehold trace r-0123456789abcdef --json
    """  # noqa: D301
    from leasehold.console.trace_view import trace as answer

    answer(run_id, url=url, as_json=as_json)


@commands.command()
@_as_json
def registry(as_json: bool) -> None:
    """Show what is in force for each step type.

    Each value is shown with where it comes from; overrides that were refused are told.

    \b
    Example:
      PIPELINE_EXTRACTION_TIMEOUT_MS=60000 leasehold registry
    """  # noqa: D301
    from leasehold.console.registry_view import registry as answer

    answer(as_json=as_json)


@commands.command()
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8080,
    show_default=True,
    metavar="PORT",
    help="Where the runs API listens, on the loopback interface.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    metavar="N",
    help="Server processes that run steps.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".leasehold"),
    show_default=True,
    metavar="DIR",
    help="Where store and artifacts lie, unless the environment says otherwise.",
)
def dev(**words: Any) -> int:
    """Serve the whole bundle on this machine, until Ctrl-C.

    The real functions under the real framework's server; Cloud Tasks and Cloud Scheduler are
    played. Prints `ready URL` when it serves; other commands reach it with --url.

    \b
    Example:
      leasehold dev --port 8080
      leasehold start review --input '{"folder": "docs"}' --url http://127.0.0.1:8080 --wait
    """  # noqa: D301
    from leasehold.console.dev import dev as answer

    return answer(**words)
