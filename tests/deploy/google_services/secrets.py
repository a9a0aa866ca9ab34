"""Secret Manager: secrets, and which versions they have; no value is ever here."""

from __future__ import annotations

from typing import Any

from google.cloud import secretmanager_v1
from google.cloud.secretmanager_v1.services.secret_manager_service.transports import (
    SecretManagerServiceGrpcTransport,
)

from tests.deploy.google_services.iam_policies import PolicyMethods
from tests.deploy.google_services.refusals import already_exists, invalid, not_found
from tests.deploy.google_services.service import copy_of
from tests.deploy.google_services.world import World


class Secrets(PolicyMethods):
    """Secrets by their full names; `give` and `set_state` are what a person does."""

    name = "google.cloud.secretmanager.v1.SecretManagerService"
    transports = (SecretManagerServiceGrpcTransport,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.secrets: dict[str, secretmanager_v1.Secret] = {}
        self.versions: dict[str, list[secretmanager_v1.SecretVersion]] = {}

    def give(self, secret: str) -> None:
        """Let a secret have a further version."""
        name = f"projects/{self.world.project}/secrets/{secret}"
        versions = self.versions.setdefault(name, [])
        number = len(versions) + 1
        state = secretmanager_v1.SecretVersion.State.ENABLED
        versions.append(
            secretmanager_v1.SecretVersion(name=f"{name}/versions/{number}", state=state)
        )

    def set_state(self, secret: str, version: int, state: str) -> None:
        """Let a version be `DISABLED` or `DESTROYED`, or `ENABLED` again."""
        name = f"projects/{self.world.project}/secrets/{secret}"
        self.versions[name][version - 1].state = secretmanager_v1.SecretVersion.State[state]

    def get_secret(self, request: Any) -> secretmanager_v1.Secret:
        self.check_resource(request.name)
        return copy_of(self.secrets[request.name])

    def create_secret(self, request: Any) -> secretmanager_v1.Secret:
        name = f"{request.parent}/secrets/{request.secret_id}"
        if name in self.secrets:
            raise already_exists(f"Secret [{name}]")
        if "replication" not in request.secret:
            raise invalid("A secret must have a replication policy.")
        secret = copy_of(request.secret)
        secret.name = name
        self.secrets[name] = secret
        return copy_of(secret)

    def get_secret_version(self, request: Any) -> secretmanager_v1.SecretVersion:
        secret, _, wanted = request.name.partition("/versions/")
        self.check_resource(secret)
        versions = self.versions.get(secret, [])
        numbers = {one.name.rpartition("/")[2]: one for one in versions}
        # the newest one, whatever its state
        found = versions[-1] if versions and wanted == "latest" else numbers.get(wanted)
        if found is None:
            raise not_found(f"Secret Version [{request.name}]")
        return copy_of(found)

    def check_resource(self, resource: str) -> None:
        if resource not in self.secrets:
            raise not_found(f"Secret [{resource}]")
