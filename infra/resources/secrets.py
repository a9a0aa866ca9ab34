"""The secrets of channels: created empty, because only a person knows what belongs into them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from google.api_core.exceptions import NotFound

from infra.installation import Installation
from infra.resources.resource import MISSING, PRESENT, Look, Resource, State
from leasehold.live.clients import ONE_TRY, GoogleClients
from leasehold.registry.pipelines import Catalog


def secrets(
    clients: GoogleClients, installation: Installation, catalog: Catalog
) -> Iterator[Resource]:
    """Yield a secret for each variable that a channel of the catalog names."""
    for variable in catalog.channel_variables:
        yield Secret(clients, installation, variable)


@dataclass(frozen=True, slots=True)
class Secret:
    """One secret; its id is the name of the variable."""

    clients: GoogleClients
    installation: Installation
    name: str
    kind = "secret"

    def look(self) -> Look:
        """Return whether it is there and has a version; its value is never read."""
        parent = f"projects/{self.installation.project}/secrets/{self.name}"
        client = self.clients.secrets
        try:
            client.get_secret(name=parent, **ONE_TRY)
        except NotFound:
            return MISSING
        asked = {"parent": parent, "filter": "state:ENABLED", "page_size": 1}
        if next(iter(client.list_secret_versions(request=asked, **ONE_TRY)), None) is not None:
            return PRESENT
        # Read from the terminal, so that it stands in no history.
        repair = (
            f'read -rs VALUE && printf %s "$VALUE" | gcloud secrets versions add {self.name} '
            f"--project={self.installation.project} --data-file=-"
        )
        return Look(State.WAITING, why="a person who gives it a value", repair=repair)

    def create(self) -> None:
        """Create it without a version, where everything else of the installation is."""
        replicas = [{"location": self.installation.region}]
        self.clients.secrets.create_secret(
            request={
                "parent": f"projects/{self.installation.project}",
                "secret_id": self.name,
                "secret": {"replication": {"user_managed": {"replicas": replicas}}},
            },
            **ONE_TRY,
        )
