"""The environment of each deployed function: its settings. Its secrets stand in its row."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Final

from leasehold.bootstrap import load_catalog
from leasehold.deploy.installation import Installation
from leasehold.deploy.permissions import callers_of
from leasehold.domain.redaction import without_secrets
from leasehold.errors import SettingError
from leasehold.registry.dispatch import check_platform
from leasehold.registry.functions import FunctionEntry, Secret, Trigger
from leasehold.registry.pipelines import Catalog
from leasehold.registry.setting_texts import IAM

#: And what the image of a function has. https://cloud.google.com/run/docs/container-contract#env-vars
_OF_CLOUD_RUN: Final = re.compile(
    "PORT|K_SERVICE|K_REVISION|K_CONFIGURATION|FUNCTION_(TARGET|SOURCE|SIGNATURE_TYPE)|X_GOOGLE_.*"
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: How names end that are of secrets. `hides` of the redaction knows more words; here a name that
#: only has one in it, as TOKEN_URL, is none.
_OF_SECRET: Final = re.compile(
    r"(?:.*_)?(?:\w*API_?KEY|KEY|\w*TOKEN|\w*SECRET|\w*PASSWORD|PASSWD|PASSPHRASE|PASS|PWD"
    r"|CREDENTIALS?|BEARER|AUTHORIZATION)",
    re.IGNORECASE,
)
_TEXT: Final = re.compile("[^\0\ud800-\udfff]*")
_PLACE: Final = "VARIABLES of deployment.py"


def environment_of(
    function: FunctionEntry,
    installation: Installation,
    catalog: Catalog,
) -> dict[str, str]:
    """Return the variables of a function, without its secrets.

    Args:
        function: whose.
        installation: where it is deployed.
        catalog: what it runs; the variables of its channels are secrets.

    Raises:
        SettingError: VARIABLES sets what follows from the installation, or a secret; or a secret
            of the function has the name of what follows from it.
    """
    own = _settings_of(function, installation)
    further = installation.tables.variables
    for secret in function.secrets:
        _check_free(secret.variable, own, f"a secret of {function.name} in deployment.py")
    for name, value in further.items():
        _check(name, value, own, installation.functions.secrets_with(catalog))
    return {**own, **further}


def catalog_of(installation: Installation) -> Catalog:
    """Import the catalog, which may read what its functions will have in their environment.

    Raises:
        SettingError: VARIABLES has what no environment can hold.
        MissingCatalogError, CatalogError: it cannot be imported.
        PlatformLimitError: a step has a limit that Cloud Tasks does not allow.
    """
    variables = installation.tables.variables
    for name, value in variables.items():
        _check_text(name, value)
    os.environ.update(variables)
    with contextlib.redirect_stdout(sys.stderr):  # what a catalog prints while it is imported
        catalog = load_catalog(installation.catalog)
    check_platform(catalog.steps)
    return catalog


def _settings_of(function: FunctionEntry, installation: Installation) -> dict[str, str]:
    project, place = installation.project, installation
    settings = {
        "LEASEHOLD_STORE": f"firestore://{project}/{place.database}",
        "LEASEHOLD_TASKS": f"cloud-tasks://{project}/{place.region}",
        "LEASEHOLD_EVENTS": f"pubsub://{project}/{place.topic}",
        "LEASEHOLD_ARTIFACTS": f"gs://{place.bucket_name}/artifacts",
        "LEASEHOLD_CATALOG": place.catalog,
        "LEASEHOLD_FUNCTION_URL": place.url_of(place.functions.of_tasks),
        "LEASEHOLD_TASK_ACCOUNT": place.email_of(place.task_account),
        "LEASEHOLD_PUBLIC_URL": place.url_of(place.functions["serve_api"]),
        "LEASEHOLD_CALLERS": _callers_of(function, place),
        "LEASEHOLD_AUDIENCE": place.url_of(function),
        "THREADS": str(function.concurrency),
        # Cloud Functions sets it to true where a deploy does not set it, and functions-framework
        # then puts itself between a request and stderr; each line names its run and trace anyway.
        # https://github.com/GoogleCloudPlatform/magic-modules/pull/11092
        "LOG_EXECUTION_ID": "false",
    }
    tables, has_own = place.tables, "PIPELINE_OWN_TASKS" in place.tables.variables
    if function.trigger is Trigger.TASKS and tables.concurrency and not has_own:
        # a queue bounds its tasks alone
        settings["PIPELINE_OWN_TASKS"] = ",".join(sorted(tables.concurrency))
    if place.retention_days is not None:
        settings["LEASEHOLD_RETENTION_DAYS"] = str(place.retention_days)
    return settings


def _callers_of(function: FunctionEntry, installation: Installation) -> str:
    """Return whom a function believes: who may call it, or all people and programs that may."""
    if function.trigger.is_by_users:
        return IAM
    members = callers_of(function, installation)
    return ",".join(member.removeprefix("serviceAccount:") for member in members)


def _check(name: str, value: str, own: Mapping[str, str], secrets: Iterable[Secret]) -> None:
    """Refuse a further variable that would break what the others say."""
    _check_text(name, value)
    _check_free(name, own, f"a variable in {_PLACE}")
    if name in {secret.variable for secret in secrets}:
        allowed = f"a secret: `gcloud secrets versions add {name} --data-file=-` takes its value"
        raise SettingError(name=f"{name} in {_PLACE}", value="[not shown]", allowed=allowed)
    if _OF_SECRET.fullmatch(name) or without_secrets(value) != value:
        allowed = (
            f'a secret, which `secrets=(Secret("{name.upper()}"),)` in a row of deployment.py '
            "gives to a function (docs/deploy.md#a-models-key)"
        )
        raise SettingError(name=f"{name} in {_PLACE}", value="[not shown]", allowed=allowed)


def _check_free(name: str, own: Mapping[str, str], what: str) -> None:
    """Refuse a name that something else sets."""
    if name in own or name == "LEASEHOLD_RETENTION_DAYS":
        allowed = "another variable: this one follows from the options of the deployment"
        raise SettingError(name=what, value=name, allowed=allowed)
    if _OF_CLOUD_RUN.fullmatch(name):
        raise SettingError(name=what, value=name, allowed="another: Cloud Run sets it")


def _check_text(name: str, value: str) -> None:
    """Refuse what no variable of an environment can be."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise SettingError(name=f"a variable in {_PLACE}", value=name, allowed="A-Z a-z 0-9 _")
    if not isinstance(value, str):
        raise SettingError(name=f"{name} in {_PLACE}", value=value, allowed="a text, in quotes")
    if not _TEXT.fullmatch(value):
        allowed = "a text without NUL and halves of characters"
        raise SettingError(name=f"{name} in {_PLACE}", value="[not shown]", allowed=allowed)
