"""The commands that run runs: `start` and `dev`."""

# ruff: noqa: PLC0415 - see leasehold.cli

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from leasehold.cli.input_options import GivenInput, InputType, LabelType, as_mapping
from leasehold.cli.options import json_option, url_option


@click.command()
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
@url_option
@json_option
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
    from leasehold.cli.start import start as answer
    from leasehold.cli.start_options import Start
    from leasehold.services.start_run import StartRequest

    if words["url"] is not None and words["in_process"]:
        raise click.UsageError("--in-process runs the run here; --url has a server run it.")
    key = words.pop("idempotency_key")
    request = StartRequest(pipeline, given.value, key, as_mapping(labels))
    return answer(Start(request, given.words, **words))


@click.command()
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8080,
    show_default=True,
    metavar="PORT",
    help="Where the runs API listens, on the loopback interface.",
)
@click.option(
    "--lease-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Where the API of leases listens, if a step is remote.  [default: a free one]",
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
@click.option(
    "--allow-target",
    "targets",
    multiple=True,
    metavar="HOST",
    help="A host beyond this machine that tasks may be delivered to; may be repeated.",
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
    from leasehold.cli.dev import dev as answer

    return answer(**words)
