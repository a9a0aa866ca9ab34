"""Secret Manager: secrets, and how many versions they have; no value is ever here."""

from __future__ import annotations

from typing import Any

from google.cloud import secretmanager_v1
from google.cloud.secretmanager_v1.services.secret_manager_service.transports import (
    SecretManagerServiceGrpcTransport,
)

from tests.infra.google_services.iam_policies import PolicyMethods
from tests.infra.google_services.refusals import already_exists, invalid, not_found
from tests.infra.google_services.service import copy_of
from tests.infra.google_services.world import World


class Secrets(PolicyMethods):
    """Secrets by their full names; `give` is what a person does."""

    name = "google.cloud.secretmanager.v1.SecretManagerService"
    transports = (SecretManagerServiceGrpcTransport,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.secrets: dict[str, secretmanager_v1.Secret] = {}
        self.versions: set[str] = set()

    def give(self, secret: str) -> None:
        """Let a secret have a value."""
        self.versions.add(f"projects/{self.world.project}/secrets/{secret}")

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

    def list_secret_versions(self, request: Any) -> secretmanager_v1.ListSecretVersionsResponse:
        self.check_resource(request.parent)
        version = secretmanager_v1.SecretVersion(name=f"{request.parent}/versions/1")
        found = [version] if request.parent in self.versions else []
        return secretmanager_v1.ListSecretVersionsResponse(versions=found)

    def check_resource(self, resource: str) -> None:
        if resource not in self.secrets:
            raise not_found(f"Secret [{resource}]")
