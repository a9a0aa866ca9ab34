"""The options of the commands that deploy: where to, and under which names.

Each is a flag, or a variable where the flag is not given.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from leasehold.deploy.installation import Installation
from leasehold.deploy.steps import Patience
from leasehold.deploy.tables import FILE, Tables, read_tables
from leasehold.domain.printable import one_line
from leasehold.google_clients.call_errors import explain
from leasehold.google_clients.clients import ONE_TRY, GoogleClients
from leasehold.registry.settings import SETTINGS

_Command = TypeVar("_Command", bound=Callable[..., Any])

_CATALOG: Final = "LEASEHOLD_CATALOG"

#: What an installation may be called, by the field: the rule, and the rule in words.
_RULES: Final[Mapping[str, tuple[str, str]]] = {
    "project": (
        r"[a-z][a-z0-9-]{4,28}[a-z0-9]",  # accounts of DOMAIN:PROJECT have emails of another form
        "the id of a project: 6 to 30 of a-z 0-9 -, a letter first",
    ),
    "project_number": (r"[1-9][0-9]{5,18}", "a number of 6 to 19 digits"),
    "region": (r"[a-z]{1,30}-[a-z]{1,30}[0-9]{1,2}", "the name of a region, as europe-west1"),
    "database": (
        r"\(default\)|[a-z][a-z0-9-]{2,61}[a-z0-9]",
        "(default), or 4 to 63 of a-z 0-9 -, a letter first",
    ),
    "database_location": (
        r"[a-z]{1,30}-[a-z]{1,30}[0-9]{1,2}|[a-z]{2,10}[0-9]{1,2}",
        "a region or multi-region of Firestore, as europe-west1 or eur3",
    ),
    "bucket": (
        r"(?!goog)[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]",
        "3 to 63 of a-z 0-9 . _ -, and not goog… at the beginning",
    ),
    "topic": (
        r"(?!goog)[A-Za-z][A-Za-z0-9._~+%-]{2,249}",
        "3 to 250 of a-z A-Z 0-9 . _ ~ + % -, a letter first, and not goog… at the beginning",
    ),
    "alert_email": (r"[^@\s]{1,64}@[A-Za-z0-9.-]{1,253}", "an address, as ops@example.com"),
}
#: No more is shown of a value that is refused.
_MAX_VALUE_SHOWN_CHARS: Final = 120
#: Firestore counts the seconds until an entry expires, up to 2,147,483,647 of them.
_MAX_LEDGER_DAYS: Final = 24_855
#: Firestore keeps a backup for 14 weeks at most.
_MAX_BACKUP_DAYS: Final = 98
_MEMBER: Final = re.compile(  # none has a comma, with which people separate several
    r"(user|group|serviceAccount|domain|principal|principalSet):[\x21-\x2b\x2d-\x7e]{3,1000}"
)
_MEMBER_WORDS: Final = "user:EMAIL, group:EMAIL, serviceAccount:EMAIL or domain:DOMAIN"

_OPTIONS: Final[Sequence[Callable[[Any], Any]]] = (
    click.option(
        "--project",
        envvar="GOOGLE_CLOUD_PROJECT",
        show_envvar=True,
        required=True,
        help="The id of the project.",
    ),
    click.option(
        "--region",
        envvar="LEASEHOLD_REGION",
        show_envvar=True,
        required=True,
        help="Where functions, queues, jobs and the bucket are, as europe-west1.",
    ),
    click.option(
        "--project-number",
        envvar="LEASEHOLD_PROJECT_NUMBER",
        show_envvar=True,
        help="The project's number; it is looked up where it is not given.",
    ),
    click.option(
        "--database",
        envvar="LEASEHOLD_DATABASE",
        show_envvar=True,
        default="(default)",
        help="Of Firestore.",
    ),
    click.option(
        "--database-location",
        envvar="LEASEHOLD_DATABASE_LOCATION",
        show_envvar=True,
        default="",
        help="Where Firestore creates it, for good: a region or multi-region, as eur3. "
        "By default the region.",
    ),
    click.option(
        "--bucket",
        envvar="LEASEHOLD_BUCKET",
        show_envvar=True,
        default="",
        help="By default PROJECT-leasehold.",
    ),
    click.option(
        "--topic",
        envvar="LEASEHOLD_TOPIC",
        show_envvar=True,
        default="leasehold-announcements",
        help="Of the announcements that are due.",
    ),
    click.option(
        "--catalog",
        envvar=_CATALOG,
        show_envvar=True,
        default="pipelines.catalog",
        help="The module of the catalog.",
    ),
    click.option(
        "--retention-days",
        envvar="LEASEHOLD_RETENTION_DAYS",
        show_envvar=True,
        type=click.IntRange(1, 36500),
        help="How long ended runs are kept; by default forever.",
    ),
    click.option(
        "--ledger-days",
        envvar="LEASEHOLD_LEDGER_DAYS",
        show_envvar=True,
        type=click.IntRange(1, _MAX_LEDGER_DAYS),
        help="How long the ledger keeps its figures; by default forever.",
    ),
    click.option(
        "--backup-days",
        envvar="LEASEHOLD_BACKUP_DAYS",
        show_envvar=True,
        type=click.IntRange(0, _MAX_BACKUP_DAYS),
        help="How long a daily backup of the database is kept; by default 14 days. 0: there is "
        "none, and no point-in-time recovery.",
    ),
    click.option(
        "--alert-email",
        envvar="LEASEHOLD_ALERT_EMAIL",
        show_envvar=True,
        default="",
        help="The address that alerts are sent to.",
    ),
    click.option(
        "--caller",
        "callers",
        envvar="LEASEHOLD_API_CALLERS",
        show_envvar=True,
        multiple=True,
        help="Who may call the runs API: user:EMAIL, group:EMAIL, …",
    ),
    click.option(
        "--worker",
        "workers",
        envvar="LEASEHOLD_LEASE_CALLERS",
        show_envvar=True,
        multiple=True,
        help="Who may call manage_lease, likewise.",
    ),
)


def installation_options(command: _Command) -> _Command:
    """Give a command the options of an installation; it is called with `installation=`."""

    @functools.wraps(command)
    def with_installation(**values: Any) -> Any:
        names = {name for name in Installation.__dataclass_fields__ if name in values}
        installation = installation_of({name: values.pop(name) for name in names})
        return command(installation=installation, **values)

    wrapped: Any = with_installation
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return] # click's decorators return what they get


def installation_of(values: Mapping[str, Any]) -> Installation:
    """Return the installation that the values of the options make.

    Raises:
        ClickException: a value cannot be used, or the number of the project cannot be looked up.
    """
    tables = project_tables()
    values = {name: value for name, value in values.items() if value not in (None, "")}
    for name, value in values.items():
        _check(name, value)
    number = values.pop("project_number", None) or _number_of(values["project"])
    installation = Installation(project_number=number, tables=tables, **values)
    _check_names(installation)
    return installation


def catalog_name() -> str:
    """Return the module of the catalog, as the environment names it."""
    return os.environ.get(_CATALOG) or str(SETTINGS[_CATALOG].default)


@contextlib.contextmanager
def unusable_files_named() -> Iterator[None]:
    """Say in a line which file or folder cannot be read or written, and why."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error


def project_tables() -> Tables:
    """Return the tables of the project in this folder.

    Raises:
        ClickException: it has none.
    """
    folder = Path.cwd()
    if not (folder / FILE).is_file():
        raise click.ClickException(
            f"there is no {FILE} in {str(folder)!r}: work in the folder of your project. If "
            f"it has none yet, type: leasehold deploy init"
        )
    return read_tables(folder)


def _check(name: str, value: Any) -> None:
    """Refuse a value that can never be right."""
    if name in _RULES:
        rule, words = _RULES[name]
        if not re.fullmatch(rule, value, re.ASCII):
            _refuse(f"--{name.replace('_', '-')}", value, words)
    flag = {"callers": "--caller", "workers": "--worker"}.get(name, "")
    for member in value if flag else ():
        if not _MEMBER.fullmatch(member):
            _refuse(flag, member, _MEMBER_WORDS)


def _check_names(installation: Installation) -> None:
    """Refuse what makes a name that cannot be."""
    if not re.fullmatch(_RULES["bucket"][0], installation.bucket_name):
        _refuse("the bucket", installation.bucket_name, f"{_RULES['bucket'][1]}; give --bucket")


def _number_of(project: str) -> str:
    """Look the number of a project up."""
    clients = GoogleClients(project)  # it says which extra is not installed
    from google.api_core.exceptions import Forbidden, NotFound  # noqa: PLC0415 - lazy

    try:
        found = Patience(tries=3).call(
            lambda: clients.projects.get_project({"name": f"projects/{project}"}, **ONE_TRY)
        )
    except (Forbidden, NotFound) as error:
        explained = explain(error, project)
        if "not enabled" in explained.problem:
            raise click.ClickException(f"{explained} (or give --project-number).") from error
        raise click.ClickException(
            f"there is no project {project} that you may see: look for it with `gcloud projects "
            f"list`, get roles/browser in it, or give --project-number."
        ) from error
    except Exception as error:
        raise click.ClickException(
            f"the number of project {project} cannot be looked up: {explain(error, project)}"
        ) from error
    return str(found.name.rpartition("/")[2])


def _refuse(name: str, value: object, allowed: str) -> None:
    raise click.UsageError(
        f"{name} is {one_line(repr(value), _MAX_VALUE_SHOWN_CHARS)}; allowed: {allowed}."
    )
