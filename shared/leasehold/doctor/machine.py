"""The doctor's look at this machine: what `leasehold check` finds, and what it does not look at."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from leasehold.bootstrap import load_catalog, system_clock
from leasehold.deploy.tables import FILE as TABLES
from leasehold.deploy.tables import read_tables
from leasehold.doctor.finding import Finding, Kind
from leasehold.doctor.local.data_folder import folders, store_damages, store_on_network
from leasehold.doctor.local.emulators import emulators
from leasehold.doctor.local.extras import missing_extras, python_version
from leasehold.doctor.local.function_files import function_files
from leasehold.doctor.local.limits import limits
from leasehold.doctor.local.live_runs import live_runs_in_trouble
from leasehold.doctor.local.proposals import proposals
from leasehold.doctor.local.stored import stored_state
from leasehold.doctor.local.variables import (
    misspelled_settings,
    unfit_settings,
    unread_variables,
)
from leasehold.doctor.looks import (
    LOCAL_S,
    Look,
    TooLongError,
    examine,
    interrupted_after,
)
from leasehold.doctor.setup import Setup, lenient_settings
from leasehold.errors import LeaseholdError
from leasehold.registry.pipelines import NO_CATALOG, Catalog
from leasehold.static_check import check_project

#: The code of what `check` only warns of.
_OF_CHECK: Final = "environment"


def examine_machine(
    environ: Mapping[str, str], within_s: float = LOCAL_S
) -> tuple[Setup, list[Finding]]:
    """Look at all that can be silently wrong on this machine; nothing is written.

    Args:
        environ: the settings.
        within_s: seconds that the import of the user's code may take, and then all other looks.

    Returns:
        What was looked at, and what was found.
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
    variables = unread_variables if has_catalog else misspelled_settings
    return [
        Look("the variables", partial(variables, setup)),
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
