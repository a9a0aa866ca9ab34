"""The secrets of functions, of channels and of handlers: each has the version that is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leasehold.doctor.deployed.deployment import Deployment, secrets_of, variables_of
from leasehold.doctor.finding import Finding
from leasehold.domain.printable import one_line
from leasehold.live.clients import ONE_TRY
from leasehold.registry.functions import FunctionEntry, Secret

_MOST: Final = 120


def secrets(deployment: Deployment) -> Iterator[Finding]:
    """Yield which secrets are missing, or have no version that can be read."""
    for secret, having in deployment.setup.functions.secrets_with(deployment.setup.catalog).items():
        problem = _problem(deployment, secret)
        if problem:
            name, whose = secret.variable, ", ".join(entry.service for entry in having)
            message = f"Secret {name} {problem}: {whose} cannot be deployed with it."
            flags = f"--data-file=- --project={deployment.project}"
            repair = f'printf %s "${name}" | gcloud secrets versions add {name} {flags}'
            yield Finding("secret_missing", message, repair)


def given_secrets(deployment: Deployment) -> Iterator[Finding]:
    """Yield which functions have a secret as a plain variable, or not at all."""
    for entry, service in deployment.deployed():
        plain, given = variables_of(service), secrets_of(service)
        for secret in entry.secrets_with(deployment.setup.catalog):
            name = secret.variable
            if plain.get(name):
                message = (
                    f"{name} is a plain variable of function {entry.service}: everybody who may "
                    "look at the function reads it."
                )
                flags = (f"--remove-env-vars={name}", f"--update-secrets={secret.reference}")
                repair = deployment.of_run("update", entry.service, *flags)
                yield Finding("secret_in_environment", message, repair)
            elif given.get(name) != f"{name}:{secret.version}":
                yield _not_given(deployment, entry, secret, given.get(name, ""))


def _not_given(deployment: Deployment, entry: FunctionEntry, secret: Secret, given: str) -> Finding:
    has = f"has {one_line(given, _MOST)}" if given else "has nothing"
    message = (
        f"Function {entry.service} {has} as {secret.variable}, and the table has version "
        f"{secret.version} of the secret of that name."
    )
    flag = f"--update-secrets={secret.reference}"
    return Finding("secret_not_given", message, deployment.of_run("update", entry.service, flag))


def _problem(deployment: Deployment, secret: Secret) -> str:
    """Return what is wrong with a version of a secret; empty: it can be read."""
    from google.api_core.exceptions import NotFound  # noqa: PLC0415 - with the client

    client = deployment.clients.secrets
    name = f"projects/{deployment.project}/secrets/{secret.variable}"
    try:
        version = client.get_secret_version(
            {"name": f"{name}/versions/{secret.version}"}, **ONE_TRY
        )
    except NotFound:
        return _absence(deployment, name, secret)
    if version.state.name != "ENABLED":
        return f"has version {version.name.rpartition('/')[2]} that is {version.state.name.lower()}"
    return ""


def _absence(deployment: Deployment, name: str, secret: Secret) -> str:
    from google.api_core.exceptions import NotFound  # noqa: PLC0415 - as above

    try:
        deployment.clients.secrets.get_secret({"name": name}, **ONE_TRY)
    except NotFound:
        return "does not exist"
    return "has no version" if secret.version == "latest" else f"has no version {secret.version}"
