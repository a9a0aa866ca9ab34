"""`leasehold deploy settings`: the files that functions are deployed with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from leasehold.cli.deploy.options import installation_options, unusable_files_named
from leasehold.cli.exit_codes import DONE
from leasehold.cli.stdout import print_line
from leasehold.cli.streams import warn
from leasehold.deploy.environment import catalog_of, environment_of
from leasehold.deploy.installation import Installation
from leasehold.deploy.tables import FILE
from leasehold.doctor.finding import Kind
from leasehold.doctor.setup import Setup, lenient_settings, limits
from leasehold.doctor.variables import unread_variables
from leasehold.domain.printable import counted
from leasehold.errors import SettingError
from leasehold.registry.functions import FunctionEntry, Secret, Use
from leasehold.registry.pipelines import Catalog
from leasehold.registry.settings import ON_CLOUD_RUN, check_functions, read_settings
from leasehold.static_check import misfit_of_input
from leasehold.worker.handler.handlers import imports_within

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
@unusable_files_named()
def settings(*, installation: Installation, folder: Path, show: str | None) -> int:
    """Write the settings of each function, for --env-vars-file, and its secrets, for --flags-file.

    They are checked as a function checks them when it starts, and beside the catalog: each step
    has to have its time in a function, and a test run of `SMOKE` what it needs.

    \b
    Examples:
      leasehold deploy settings --project shop-prod --region europe-west1
      leasehold deploy settings --project shop-prod --region europe-west1 --show serve_api
    """  # noqa: D301
    if show and show not in installation.functions:
        allowed = ", ".join(sorted(installation.functions.keys()))
        raise click.UsageError(f"--show is {show[:60]!r}; allowed: {allowed}.")
    catalog = catalog_of(installation)
    check_tables(installation, catalog)
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


def check_tables(installation: Installation, catalog: Catalog) -> None:
    """Refuse tables that do not go with the catalog, before anything is deployed.

    A variable that is written like a setting, and is none, is only warned of: code of the project
    may read it.

    Raises:
        SettingError: the run of `SMOKE` could not be started.
        ClickException: an attempt, or a delivery, has more time than the function that makes it.
    """
    tables = installation.tables
    for found in unread_variables(tables.variables, catalog):
        if found.kind is Kind.FINDING:
            warn(f"VARIABLES of {FILE}: {found.message}")
    environ = environment_of(installation.functions.of_tasks, installation, catalog)
    setup = Setup(environ, lenient_settings(environ), catalog, installation.functions)
    for found in limits(setup):
        if found.kind is Kind.FINDING:
            raise click.ClickException(found.message)
    if tables.smoke is not None:
        with imports_within(setup.settings["PIPELINE_IMPORT_TIMEOUT_S"].total_seconds()):
            _check_smoke(*tables.smoke, catalog)


def _check_smoke(pipeline: str, given: object, catalog: Catalog) -> None:
    name = f"SMOKE of {FILE}"
    if pipeline not in catalog.pipelines:
        allowed = f"a pipeline of the catalog: {', '.join(sorted(catalog.pipelines.keys()))}"
        raise SettingError(name=name, value=pipeline, allowed=allowed)
    if problem := misfit_of_input(catalog, pipeline, given):
        allowed = f"with an input that fits {problem}"
        raise SettingError(name=name, value=pipeline, allowed=allowed)


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
