"""`leasehold deploy settings`: the files that functions are deployed with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from leasehold.cli.deploy.options import installation_options
from leasehold.cli.exit_codes import DONE
from leasehold.cli.stdout import print_line
from leasehold.deploy.environment import catalog_of, environment_of
from leasehold.deploy.installation import Installation
from leasehold.domain.printable import counted
from leasehold.registry.functions import FunctionEntry, Secret, Use
from leasehold.registry.pipelines import Catalog
from leasehold.registry.settings import ON_CLOUD_RUN, check_functions, read_settings

_MODE: Final = 0o700


@click.command()
@installation_options
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("build/settings"),
    show_default=True,
    help="Where they are written.",
)
@click.option(
    "--show",
    metavar="FUNCTION",
    help="Print the settings of this function, and write nothing.",
)
def settings(*, installation: Installation, folder: Path, show: str | None) -> int:
    """Write the settings of each function, for --env-vars-file, and its secrets, for --flags-file.

    They are checked as a function checks them when it starts.
    """
    if show and show not in installation.functions:
        allowed = ", ".join(sorted(installation.functions.keys()))
        raise click.UsageError(f"--show is {show[:60]!r}; allowed: {allowed}.")
    catalog = catalog_of(installation)
    files = dict(_files(installation, catalog))
    if show:
        click.echo(files[f"{installation.functions[show].service}.yaml"], nl=False)
        return DONE
    folder.mkdir(mode=_MODE, parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    print_line(f"{folder}: the settings of {counted(len(installation.functions), 'function')}")
    return DONE


def _files(installation: Installation, catalog: Catalog) -> Iterator[tuple[str, str]]:
    for function in installation.functions:
        settings = environment_of(function, installation, catalog)
        check(function, settings)
        yield f"{function.service}.yaml", as_yaml(settings)
        if Use.CHANNELS in function.uses:
            yield f"{function.service}.secrets.yaml", secret_flags(function.secrets_with(catalog))


def check(function: FunctionEntry, settings: Mapping[str, str]) -> None:
    """Refuse what the function would refuse when it starts: a revision that is never ready.

    Raises:
        SettingError: what is wrong, and what is allowed.
    """
    environ = {**settings, ON_CLOUD_RUN: function.service}
    check_functions(read_settings(environ, _refuse_threshold), environ)


def _refuse_threshold(line: str) -> None:
    """Refuse what a function would only report: here a person reads it."""
    raise click.ClickException(line)


def as_yaml(settings: Mapping[str, str]) -> str:
    """Return the text of a file for --env-vars-file."""
    return "".join(f"{name}: {_quoted(value)}\n" for name, value in settings.items())


def _quoted(value: str) -> str:
    """Return a text as YAML has it: as JSON, which has two halves for some characters, has it."""
    inner = (json.dumps(it)[1:-1] if it <= "\uffff" else f"\\U{ord(it):08x}" for it in value)
    return f'"{"".join(inner)}"'


def secret_flags(secrets: Sequence[Secret]) -> str:
    """Return the text of a file for --flags-file that gives a function these secrets alone."""
    if not secrets:
        return "--clear-secrets:\n"
    pairs = ",".join(secret.reference for secret in secrets)
    return f"--set-secrets: {json.dumps(pairs)}\n"
