"""The secrets of functions: created empty, because only a person knows what belongs into them."""

from __future__ import annotations

from collections.abc import Iterator

from google.api_core.exceptions import NotFound
from google.cloud.secretmanager_v1 import SecretVersion

from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.resource import MISSING, PRESENT, Look, Resource, State
from leasehold.frozen import dataclass
from leasehold.google_clients.clients import ONE_TRY, GoogleClients
from leasehold.registry.pipelines import Catalog


def secrets(
    clients: GoogleClients,
    installation: Installation,
    catalog: Catalog,
) -> Iterator[Resource]:
    """Yield a secret for each variable that a row of the table or a channel names."""
    versions: dict[str, list[str]] = {}
    for secret in installation.functions.secrets_with(catalog):
        versions.setdefault(secret.variable, []).append(secret.version)
    for variable, wanted in versions.items():
        yield SecretResource(clients, installation, variable, tuple(wanted))


@dataclass(frozen=True, slots=True)
class SecretResource:
    """One secret; its id is the name of the variable.

    Args:
        versions: those that functions are given.
    """

    clients: GoogleClients
    installation: Installation
    name: str
    versions: tuple[str, ...] = ("latest",)
    kind = "secret"

    def look(self) -> Look:
        """Return whether it is there, with its versions; its value is never read."""
        try:
            self.clients.secrets.get_secret(name=self._full_name, **ONE_TRY)
        except NotFound:
            return MISSING
        return next(filter(None, map(self._lack, self.versions)), PRESENT)

    def look_again(self) -> Look:
        """Return the same: what was just created has no value."""
        return self.look()

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

    @property
    def repair(self) -> str:
        """The command that gives it a value, read from the terminal: it stands in no history."""
        return (
            f'read -rs VALUE && printf %s "$VALUE" | gcloud secrets versions add {self.name} '
            f"--project={self.installation.project} --data-file=-"
        )

    @property
    def _full_name(self) -> str:
        return f"projects/{self.installation.project}/secrets/{self.name}"

    def _lack(self, version: str) -> Look | None:
        """Return what is wrong with a version, or None."""
        try:
            asked = {"name": f"{self._full_name}/versions/{version}"}
            found = self.clients.secrets.get_secret_version(asked, **ONE_TRY)
        except NotFound:
            is_any = version == "latest"
            why = "a person who gives it a value" if is_any else f"its version {version}"
            return Look(State.WAITING, why=why, repair=self.repair)
        if found.state is SecretVersion.State.ENABLED:
            return None
        number = found.name.rpartition("/")[2]
        why = f"its version {number}, which is {found.state.name.lower()}"
        enable = f"gcloud secrets versions enable {number} --secret={self.name}"
        is_off = found.state is SecretVersion.State.DISABLED
        repair = f"{enable} --project={self.installation.project}" if is_off else self.repair
        return Look(State.WAITING, why=why, repair=repair)
