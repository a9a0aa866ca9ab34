"""The doctor's look at this machine: what `leasehold check` finds, and what it does not look at."""

from __future__ import annotations

import contextlib
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from leasehold.bootstrap import load_catalog, system_clock
from leasehold.deploy.tables import FILE as TABLES
from leasehold.deploy.tables import read_tables
from leasehold.doctor.data_folder import folders, store_damages, store_on_network
from leasehold.doctor.finding import Finding, Kind
from leasehold.doctor.probes import (
    LOCAL_TIMEOUT_S,
    Look,
    TooLongError,
    examine,
    interrupted_after,
)
from leasehold.doctor.proposals import proposals
from leasehold.doctor.setup import Setup, lenient_settings, limits
from leasehold.doctor.stored import live_runs_in_trouble, stored_state
from leasehold.doctor.variables import (
    misspelled_settings,
    unfit_settings,
    unread_variables,
)
from leasehold.errors import LeaseholdError, MissingExtraError, without_user
from leasehold.registry.extras import require_extra
from leasehold.registry.pipelines import NO_CATALOG, Catalog
from leasehold.static_check import check_project

#: The code of what `check` only warns of.
_OF_CHECK: Final = "environment"


def examine_machine(
    environ: Mapping[str, str], within_s: float = LOCAL_TIMEOUT_S
) -> tuple[Setup, list[Finding]]:
    """Look at all that can be silently wrong on this machine; nothing is written.

    Args:
        environ: the settings.
        within_s: seconds that the import of the user's code may take, and then all other looks.

    Returns:
        The findings, and the number of checks.
    """
    setup = Setup(environ, lenient_settings(environ))
    catalog, findings = _checked(setup, within_s)
    setup = replace(setup, catalog=catalog or NO_CATALOG)
    try:
        setup = replace(setup, functions=read_tables(setup.folder).functions)
    except LeaseholdError as error:
        findings.append(Finding(error.code, error.message, file=TABLES))
    found = examine(_looks(setup, has_catalog=catalog is not None), system_clock(), within_s)
    known = {finding.message for finding in findings}
    findings += [finding for finding in found if finding.message not in known]
    return setup, findings


def _looks(setup: Setup, *, has_catalog: bool) -> list[Look]:
    clock = system_clock()
    # without a catalog the variables of its steps and channels are not known
    variables = (
        partial(unread_variables, setup.environ, setup.catalog)
        if has_catalog
        else partial(misspelled_settings, setup.environ)
    )
    return [
        Look("the variables", variables),
        Look("the settings", partial(unfit_settings, setup)),
        Look("packages", partial(missing_extras, setup)),
        Look("Python", partial(python_version, setup)),
        Look("the time limits", partial(limits, setup)),
        Look("the file system of the store", partial(store_on_network, setup)),
        Look("the data folders", partial(folders, setup)),
        Look("the file of the store", partial(store_damages, setup, clock)),
        Look("what the store says", partial(stored_state, setup, clock)),
        *(
            [Look("the live runs", partial(live_runs_in_trouble, setup, clock))]
            if has_catalog
            else ()
        ),
        Look("the ledger", partial(proposals, setup, clock)),
        Look("the emulators", partial(emulators, setup)),
        Look("the functions of the bundle", partial(function_files, setup)),
    ]


def _checked(setup: Setup, within_s: float) -> tuple[Catalog | None, list[Finding]]:
    """Return what `leasehold check` finds, in its words, and the catalog if it can be used."""
    catalog: Catalog | None = None
    try:
        with interrupted_after(within_s):
            result = check_project(setup.environ)
            with contextlib.suppress(LeaseholdError):  # the check has said so
                catalog = load_catalog(setup.settings["LEASEHOLD_CATALOG"])
    except TooLongError:
        why = f"to import its modules takes longer than {within_s:g} s"
        found = Finding("not_looked_at", f"The catalog could not be checked: {why}.")
        return None, [found]
    except LeaseholdError as error:
        return None, [Finding(error.code, error.message)]
    findings = [
        *(Finding(one.code, one.message, file=one.file, line=one.line) for one in result.findings),
        *(Finding(_OF_CHECK, sentence, kind=Kind.WARNING) for sentence in result.warnings),
    ]
    return catalog, findings


# Variables that put a local server in place of one of Google's: left over, or not answering.


_CONNECT_TIMEOUT_S: Final = 2.0
_HOST_AND_PORT: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:]+\]|[\w.-]+):(?P<port>\d{1,5})/?")
_LAST_PORT: Final = 65_535


class _Emulator(NamedTuple):
    """A variable, the setting whose service it stands for, and how its value begins."""

    variable: str
    setting: str
    scheme: str  # of the setting's value, where the service is used
    begins: str  # of the variable's value; empty: HOST:PORT alone


_EMULATORS: Final = (
    _Emulator("FIRESTORE_EMULATOR_HOST", "LEASEHOLD_STORE", "firestore:", ""),
    _Emulator("CLOUD_TASKS_EMULATOR_URL", "LEASEHOLD_TASKS", "cloud-tasks:", "http://"),
    _Emulator("PUBSUB_EMULATOR_HOST", "LEASEHOLD_EVENTS", "pubsub:", ""),
    _Emulator("STORAGE_EMULATOR_HOST", "LEASEHOLD_ARTIFACTS", "gs:", "http://"),
)
#: Where one of these is emulated and the other is not, runs and tasks do not find each other.
_BELONG_TOGETHER: Final = ("LEASEHOLD_STORE", "LEASEHOLD_TASKS")


def emulators(setup: Setup) -> Iterator[Finding]:
    """Yield what is wrong with the emulators that the settings' services are replaced by."""
    used = [one for one in _EMULATORS if _is_used(setup, one)]
    replaced = [one for one in used if setup.environ.get(one.variable)]
    yield from _left_over(setup, used, replaced)
    for one in replaced:
        yield from _silent(one, setup.environ[one.variable])


def _is_used(setup: Setup, one: _Emulator) -> bool:
    return str(setup.settings[one.setting]).startswith(one.scheme)


def _left_over(setup: Setup, used: list[_Emulator], replaced: list[_Emulator]) -> Iterator[Finding]:
    """Yield a finding where one service is a local server, and one that belongs to it is not."""
    real = [one for one in used if one not in replaced and one.setting in _BELONG_TOGETHER]
    for one in replaced:
        if one.setting in _BELONG_TOGETHER and real:
            message = (
                f"{one.variable} is set, and {real[0].setting} is Google's: runs and their tasks "
                "are in different worlds, and nothing says so."
            )
            yield Finding("half_emulated", message, f"unset {one.variable}")
        elif _is_production(setup):
            message = (
                f"{one.variable} is set beside settings of a deployed installation "
                f"(LEASEHOLD_TASK_ACCOUNT): what is in {one.setting} there is not what is seen "
                "here."
            )
            yield Finding("emulator_left_over", message, f"unset {one.variable}")


def _is_production(setup: Setup) -> bool:
    account = str(setup.settings["LEASEHOLD_TASK_ACCOUNT"])
    url = str(setup.settings["LEASEHOLD_FUNCTION_URL"] or "")
    return account.endswith(".gserviceaccount.com") and url.startswith("https://")


def _silent(one: _Emulator, value: str) -> Iterator[Finding]:
    """Yield a finding where nothing answers, or the address is none."""
    found = _HOST_AND_PORT.fullmatch(value.removeprefix(one.begins))
    if not value.startswith(one.begins) or not found or int(found["port"]) > _LAST_PORT:
        message = f"{one.variable} is {without_user(value)[:80]!r}; allowed: {one.begins}HOST:PORT."
        yield Finding("emulator_address", message, f"unset {one.variable}")
        return
    try:
        address = (found["host"].strip("[]"), int(found["port"]))
        socket.create_connection(address, timeout=_CONNECT_TIMEOUT_S).close()
    except OSError as error:
        problem = "no answer" if isinstance(error, TimeoutError) else (error.strerror or str(error))
        message = (
            f"{one.variable} names {value[:80]}, where no emulator answers ({problem}): each call "
            f"of what {one.setting} names waits in vain."
        )
        yield Finding("emulator_silent", message, f"unset {one.variable}")


# Packages that the settings need and that are not installed; and the version of Python.


#: The beginning of a setting's value, and the module of the extra `google` that it needs.
_NEEDED: Final = (
    ("LEASEHOLD_STORE", "firestore:", "google.cloud.firestore"),
    ("LEASEHOLD_TASKS", "cloud-tasks:", "google.cloud.tasks_v2"),
    ("LEASEHOLD_EVENTS", "pubsub:", "google.pubsub_v1"),
    ("LEASEHOLD_ARTIFACTS", "gs:", "google.cloud.storage"),
)
#: Of Cloud Run: https://cloud.google.com/functions/docs/runtime-support
_NEWEST_RUNTIME: Final = (3, 14)


def missing_extras(setup: Setup) -> Iterator[Finding]:
    """Yield a finding for each setting that names what is not installed."""
    for name, scheme, module in _NEEDED:
        address = str(setup.settings[name])
        if address.startswith(scheme):
            try:
                require_extra("google", f"{name}={address}", module)
            except MissingExtraError as error:
                yield Finding(error.code, error.message)


def python_version(setup: Setup) -> Iterator[Finding]:
    """Yield a warning where this Python is newer than what functions run with."""
    version = sys.version_info[:2]
    if setup.uses_google_tasks and version > _NEWEST_RUNTIME:
        newest = ".".join(map(str, _NEWEST_RUNTIME))
        message = f"This is Python {version[0]}.{version[1]}; functions run with {newest} at most."
        yield Finding("python_version", message, kind=Kind.WARNING)


# The entry files of a bundle against the table of functions: each row needs its file.


_FOLDER: Final = Path("functions")
_TABLE: Final = Path(TABLES)
_PACKAGE: Final = Path(__file__).parents[1]
_MAX_FILE_CHARS: Final = 1_000_000


def function_files(setup: Setup) -> Iterator[Finding]:
    """Yield what the table and the folder of a bundle do not agree on."""
    folder = setup.folder / _FOLDER
    if not (setup.folder / _TABLE).is_file():
        return  # no bundle is deployed from here
    own = {path.stem: path for path in folder.glob("*.py") if path.stem != "__init__"}
    known = {path.stem: path for path in (_PACKAGE / _FOLDER).glob("*.py")}
    files = {**known, **own}
    for name in sorted(set(own) - set(setup.functions.keys())):
        message = f"{_FOLDER / name}.py has no row in {_TABLE}: it is never deployed."
        yield Finding("function_without_row", message, file=str(_FOLDER / f"{name}.py"))
    for entry in setup.functions:
        if entry.name not in files:
            message = f"{_TABLE} has a row {entry.name}, and there is no {_FOLDER}/{entry.name}.py."
            yield Finding("function_without_file", message, file=str(_TABLE))
        elif not re.search(rf"^def {entry.name}\(", _text(files[entry.name]), re.MULTILINE):
            file = f"{_FOLDER / entry.name}.py"
            message = f"It has no function {entry.name}: its deploy would fail."
            yield Finding("function_without_entry", message, file=file)
    if setup.learning_steps and "derive_budgets" not in setup.functions:
        steps = ", ".join(step.step_type for step in setup.learning_steps)
        message = f"{_TABLE} has no row derive_budgets: nothing derives the limits of {steps}."
        yield Finding("limits_without_function", message, file=str(_TABLE))


def _text(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_MAX_FILE_CHARS)
