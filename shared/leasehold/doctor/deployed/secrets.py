"""The secrets of functions, as each function has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leasehold.doctor.deployed.deployment import Deployment, secrets_of, variables_of
from leasehold.doctor.finding import Finding
from leasehold.domain.printable import one_line
from leasehold.registry.functions import FunctionEntry, Secret

_MOST: Final = 120


def given_secrets(deployment: Deployment) -> Iterator[Finding]:
    """Yield which functions have a secret as a plain variable, or not at all."""
    for entry, service in deployment.deployed():
        plain, given = variables_of(service), secrets_of(service)
        for secret in entry.secrets_with(deployment.setup.catalog):
            name = secret.variable
            if plain.get(name):
                message = (
                    f"{name} is a plain variable of function {entry.service}: everyone who may "
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
