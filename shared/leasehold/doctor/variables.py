"""Variables that nothing reads, and settings that do not go together."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from leasehold.bootstrap import load_catalog
from leasehold.doctor.finding import Finding, Kind
from leasehold.doctor.setup import Setup
from leasehold.errors import LeaseholdError, SettingError
from leasehold.google_clients.clients import EMULATOR
from leasehold.registry.channels import FILE_SUFFIX
from leasehold.registry.functions import LINK_SECRET
from leasehold.registry.pipelines import Catalog
from leasehold.registry.plan import Wait
from leasehold.registry.settings import ON_CLOUD_RUN, SETTINGS, check_artifacts, check_functions

_PREFIXES: Final = ("LEASEHOLD_", "PIPELINE_")
#: Ours, and no settings of a bundle: of the command line, of processes that were started by ours.
OTHERS: Final = ("LEASEHOLD_DEBUG", "LEASEHOLD_HOLDER", "LEASEHOLD_FORK_SERVER", EMULATOR)
#: What the commands of `leasehold deploy` read, most of it in place of their options, and the gate.
OF_DEPLOY: Final = (
    "LEASEHOLD_ALERT_EMAIL",
    "LEASEHOLD_ALLOW_MISFITS",
    "LEASEHOLD_API_CALLERS",
    "LEASEHOLD_BUCKET",
    "LEASEHOLD_BUILD",
    "LEASEHOLD_DATABASE",
    "LEASEHOLD_FUNCTIONS_EMULATOR",
    "LEASEHOLD_LEASE_CALLERS",
    "LEASEHOLD_BACKUP_DAYS",
    "LEASEHOLD_LEDGER_DAYS",
    "LEASEHOLD_PROJECT_NUMBER",
    "LEASEHOLD_DATABASE_LOCATION",
    "LEASEHOLD_REGION",
    "LEASEHOLD_AUDIT",
    "LEASEHOLD_REQUIRE_AUDIT",
    "LEASEHOLD_REQUIRE_EMULATORS",
    "LEASEHOLD_SMOKE_INPUT",
    "LEASEHOLD_SMOKE_PIPELINE",
    "LEASEHOLD_IDENTITY_TOKEN",
    "LEASEHOLD_TOPIC",
)
_OF_STEP: Final = re.compile(r"PIPELINE_.+_(TIMEOUT_MS|DEADLINE_S)")
_ALIKE: Final = 0.8
_ALIKE_OF_STEP: Final = 0.92  # most of the name is the same for all steps
_LOOPBACK: Final = re.compile(r"http://(127\.0\.0\.1|localhost|\[::1\])([:/]|$)")


def misspelled_settings(environ: Iterable[str]) -> Iterator[Finding]:
    """Yield a finding for each variable that is like a setting, where the catalog is not known.

    It may be what keeps the catalog from being found.
    """
    known = {*SETTINGS.keys(), *OTHERS, *OF_DEPLOY}
    for name in sorted(set(environ) - known):
        if name.startswith("LEASEHOLD_") and difflib.get_close_matches(name, known, 1, _ALIKE):
            yield _unread(name, sorted(known))


def unread_variables(environ: Iterable[str], catalog: Catalog) -> Iterator[Finding]:
    """Yield a finding for each variable that looks like a setting, and is none."""
    of_steps = [name for step in catalog.steps for name in step.env_overrides]
    of_channels = catalog.channel_variables
    files = [f"{name}{FILE_SUFFIX}" for name in of_channels]
    known = {*SETTINGS.keys(), *OTHERS, *OF_DEPLOY, *of_steps, *of_channels, *files}
    for name in sorted(set(environ) - known):
        if name.startswith(_PREFIXES):
            yield _unread(name, sorted(known))


def unread_lines(environ: Mapping[str, str]) -> list[str]:
    """Return a line for each variable that is not read, of those that no other program has."""
    name = environ.get("LEASEHOLD_CATALOG") or SETTINGS["LEASEHOLD_CATALOG"].default
    try:
        found = unread_variables(environ, load_catalog(name))
    except LeaseholdError:  # who begins with the catalog says so
        found = misspelled_settings(environ)
    return [one.message for one in found if one.kind is Kind.FINDING]


def _unread(name: str, known: list[str]) -> Finding:
    repair = f"unset {name}" if re.fullmatch(r"\w+", name, re.ASCII) else ""
    is_of_step = _OF_STEP.fullmatch(name) is not None
    alike = _ALIKE_OF_STEP if is_of_step else _ALIKE
    for meant in difflib.get_close_matches(name, known, n=1, cutoff=alike):
        message = f"{name} is set, and nothing reads it: is {meant} meant?"
        return Finding("unread_variable", message, repair)
    if is_of_step:
        message = f"{name} is set, and the catalog has no step that reads it."
        return Finding("unread_variable", message, repair)
    is_other = name.startswith("PIPELINE_")  # other programs have variables that begin so
    message = f"{name} is set, and Leasehold does not read it."
    return Finding(
        "unread_variable",
        message,
        "" if is_other else repair,
        kind=Kind.WARNING if is_other else Kind.FINDING,
    )


def unfit_settings(setup: Setup) -> Iterator[Finding]:
    """Yield what is refused, or silently wrong, where these settings are those of functions."""
    try:
        if setup.uses_google_tasks:
            # who may call a function is its own setting: `--live` looks at that
            settings = {**setup.settings, "LEASEHOLD_CALLERS": ("iam",)}
            check_functions(settings, {**setup.environ, ON_CLOUD_RUN: "execute-step"})
        else:
            check_artifacts(setup.settings)
    except SettingError as error:
        yield Finding(error.code, error.message)
    if setup.uses_google_tasks:
        yield from _of_functions(setup)


def _of_functions(setup: Setup) -> Iterator[Finding]:
    yield from _events(setup)
    yield from _addresses(setup)
    if setup.settings["LEASEHOLD_ALLOW_LOCAL_CHANNELS"]:
        message = (
            "LEASEHOLD_ALLOW_LOCAL_CHANNELS=yes beside a queue of Google's: a channel may call "
            "addresses of private networks, and over http://."
        )
        yield Finding("local_channels", message, "unset LEASEHOLD_ALLOW_LOCAL_CHANNELS")
    yield from _links(setup)
    if setup.settings["LEASEHOLD_ISOLATION"] == "inline":
        message = "LEASEHOLD_ISOLATION=inline: no limit of a step can stop its handler."
        yield Finding("no_isolation", message, "unset LEASEHOLD_ISOLATION", kind=Kind.WARNING)


def _events(setup: Setup) -> Iterator[Finding]:
    if setup.channels and setup.settings["LEASEHOLD_EVENTS"] == "in-process":
        message = (
            "LEASEHOLD_EVENTS is in-process, and the catalog has channels: a function has no time "
            "once it has answered, so announcements wait for its next request, or for the sweep."
        )
        project = str(setup.settings["LEASEHOLD_TASKS"]).split("/")[2]
        address = f"pubsub://{project}/leasehold-announcements"
        repair = f"export LEASEHOLD_EVENTS={shlex.quote(address)}"
        yield Finding("events_in_process", message, repair)


def _addresses(setup: Setup) -> Iterator[Finding]:
    if _LOOPBACK.match(setup.settings["LEASEHOLD_FUNCTION_URL"] or ""):
        message = (
            "LEASEHOLD_FUNCTION_URL is an address of this machine, and LEASEHOLD_TASKS is "
            "Google's queue, which cannot reach it: no task would arrive."
        )
        repair = "export LEASEHOLD_FUNCTION_URL=https://execute-step-NUMBER.REGION.run.app"
        yield Finding("function_url", message, repair)
    if setup.channels and not setup.settings["LEASEHOLD_PUBLIC_URL"]:
        message = "LEASEHOLD_PUBLIC_URL is not set: the links of announcements are paths."
        repair = "export LEASEHOLD_PUBLIC_URL=https://serve-api-NUMBER.REGION.run.app"
        yield Finding("no_public_url", message, repair, kind=Kind.WARNING)


def _links(setup: Setup) -> Iterator[Finding]:
    """Yield a warning where a wait is announced without a link that answers it."""
    waiting = [
        it.name for it in setup.catalog.pipelines if any(isinstance(e, Wait) for e in it.entries)
    ]
    is_signed = setup.settings[LINK_SECRET] or any(
        secret.variable == LINK_SECRET for it in setup.functions for secret in it.secrets
    )
    is_linked = any(it.has_signed_links for it in setup.channels)
    if waiting and is_linked and not is_signed:
        message = (
            f"Runs of {', '.join(waiting)} wait for a signal, and their announcements have no link "
            f"that sends it: the rows of deliver_notification and serve_api in deployment.py need "
            f'secrets=(Secret("{LINK_SECRET}"),), if people are to answer without signing in.'
        )
        yield Finding("no_link_secret", message, kind=Kind.WARNING)
