"""The catalog: a module of the user, imported by its name."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leasehold.errors import CatalogError, LeaseholdError, MissingCatalogError
from leasehold.registry.channels import NO_CHANNELS
from leasehold.registry.dispatch import check_platform
from leasehold.registry.gates import NO_GATES
from leasehold.registry.pipelines import Catalog
from leasehold.registry.registry import Registry
from leasehold.registry.schedules import NO_SCHEDULES
from leasehold.registry.setting_texts import IN_PROCESS
from leasehold.registry.settings import SETTINGS, read_settings
from leasehold.worker.handler.user_modules import ImportRaisedError, import_users


def load_catalog(name: str) -> Catalog:
    """Import the catalog; modules of the working folder can be named.

    Raises:
        MissingCatalogError: there is no such module.
        CatalogError: it cannot be imported, or it has no STEPS and PIPELINES.
    """
    here = str(Path.cwd())
    if not all(name.split(".")):  # importlib takes one that begins so for a relative one
        raise _missing_catalog(name, here)
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_users(name)
    except ImportRaisedError as raised:
        error = raised.__cause__ or raised
        if isinstance(error, LeaseholdError):
            raise error from error.__cause__
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise _missing_catalog(name, here) from error
        from leasehold.worker.failures.failures import words_of_import  # noqa: PLC0415 - when it is needed

        problem = f"importing it raised {words_of_import(error, name)}"
        raise CatalogError(catalog=name, problem=problem) from error
    tables = {table: getattr(module, table, None) for table in ("STEPS", "PIPELINES")}
    for table, found in tables.items():
        if not isinstance(found, Registry):
            raise CatalogError(catalog=name, problem=f"it has no {table}, a Registry")
    further = {"GATES": NO_GATES, "CHANNELS": NO_CHANNELS, "SCHEDULES": NO_SCHEDULES}
    for table, without in further.items():
        tables[table] = getattr(module, table, without)
        if not isinstance(tables[table], Registry):
            raise CatalogError(catalog=name, problem=f"its {table} is not a Registry")
    return Catalog(*tables.values())  # type: ignore[arg-type] # checked above


def check_home(settings: Mapping[str, Any], catalog: Catalog) -> None:
    """Refuse steps whose limits the platform of the settings does not allow.

    Raises:
        PlatformLimitError: Cloud Tasks calls the steps, and does not wait that long.
    """
    if settings["LEASEHOLD_TASKS"] != IN_PROCESS:
        check_platform(catalog.steps)


def _missing_catalog(name: str, folder: str) -> MissingCatalogError:
    is_default = name == SETTINGS["LEASEHOLD_CATALOG"].default
    source = "the default of LEASEHOLD_CATALOG" if is_default else "LEASEHOLD_CATALOG"
    return MissingCatalogError(catalog=name, source=source, folder=folder)


# Where the runs are, and whether there is anything: no store is opened to know it.


def store_address(environ: Mapping[str, str] | None = None) -> str:
    """Return where the runs are.

    Args:
        environ: the settings; None: those of the process.
    """
    return str(read_settings(os.environ if environ is None else environ)["LEASEHOLD_STORE"])


def store_exists(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether there is a store to read, or something in its place that is in the way.

    Args:
        environ: the settings; None: those of the process.
    """
    address = store_address(environ)
    if not address.startswith("sqlite:"):
        return True
    path = Path(address.removeprefix("sqlite:///"))
    try:
        return path.exists() or any(parent.is_file() for parent in path.parents)
    except OSError:
        return True  # opening it says what is wrong
