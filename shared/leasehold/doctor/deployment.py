"""What is looked at in Google Cloud: one project and region, each thing asked for once."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from leasehold.deploy.tables import Tables
from leasehold.doctor.setup import Setup
from leasehold.google_clients.clients import ONE_TRY, GoogleClients
from leasehold.registry.functions import FunctionEntry

if TYPE_CHECKING:
    from google.cloud.run_v2 import Service

    from leasehold.deploy.installation import Installation


@dataclass
class Deployment:
    """A bundle as it is deployed. Many looks use it at once.

    Args:
        project: the id of the project.
        region: where functions, queues and jobs are.
        clients: of the project.
        setup: this machine, whose catalog is the one that is deployed.
    """

    project: str
    region: str
    clients: GoogleClients
    setup: Setup
    _services: Mapping[str, Service] | None = None
    _refusal: Exception | None = None
    _asking: threading.Lock = field(default_factory=threading.Lock)

    @property
    def location(self) -> str:
        """The full name of the region."""
        return f"projects/{self.project}/locations/{self.region}"

    @property
    def installation(self) -> Installation:
        """What is deployed, under the names of an installation; its number is not known."""
        from leasehold.deploy.installation import Installation  # noqa: PLC0415 - for --live alone

        tables = Tables(self.setup.functions)
        return Installation(self.project, "0", self.region, tables=tables)

    @property
    def services(self) -> Mapping[str, Service]:
        """The services of Cloud Run in the region, by their short names.

        Raises:
            Exception: they cannot be listed, as at the first try: it is not made again.
        """
        with self._asking:
            if self._services is None and self._refusal is None:
                try:
                    self._services = self._listed()
                except Exception as error:  # noqa: BLE001 - it is raised for each who asks
                    self._refusal = error
            if self._services is None:
                raise self._refusal or AssertionError
            return self._services

    @property
    def services_if_known(self) -> Mapping[str, Service]:
        """The same; none, where they cannot be listed: its own look says so."""
        try:
            return self.services
        except Exception:  # noqa: BLE001 - as said
            return {}

    def _listed(self) -> Mapping[str, Service]:
        found = self.clients.services.list_services({"parent": self.location}, **ONE_TRY)
        return {one.name.rpartition("/")[2]: one for one in found}

    def deployed(self) -> list[tuple[FunctionEntry, Service]]:
        """Return the functions of the table that are deployed, with their services."""
        services = self.services
        return [
            (entry, services[entry.service])
            for entry in self.setup.functions
            if entry.service in services
        ]

    def setting(self, name: str) -> str:
        """Return a setting as the functions have it; where none has it, as this machine has it."""
        for entry in self.setup.functions:
            service = self.services_if_known.get(entry.service)
            if service is not None and (value := variables_of(service).get(name)):
                return value
        return str(self.setup.settings[name])

    def caller_of(self, entry: FunctionEntry) -> str:
        """Return the email of the account that calls a function; empty: users have their own."""
        account = entry.trigger.account
        return self.email_of(account) if account else ""

    def email_of(self, account: str) -> str:
        """Return the email of an account of the project."""
        return f"{account}@{self.project}.iam.gserviceaccount.com"

    @property
    def apply(self) -> str:
        """The command that creates what is missing."""
        return f"leasehold deploy apply --project={self.project} --region={self.region}"

    def of_run(self, verb: str, service: str, *flags: str) -> str:
        """Return a command about a service of Cloud Run."""
        where = f"--region={self.region} --project={self.project}"
        return " ".join(["gcloud run services", verb, service, where, *flags])

    def at(self, command: str, *flags: str) -> str:
        """Return a command about something in the region."""
        where = f"--location={self.region} --project={self.project}"
        return " ".join([f"gcloud {command}", where, *flags])


def secrets_of(service: Service) -> dict[str, str]:
    """Return the variables that a function has from Secret Manager, each as `SECRET:VERSION`."""
    found = (
        (variable.name, variable.value_source.secret_key_ref)
        for container in service.template.containers
        for variable in container.env
    )
    return {
        name: f"{of.secret.rpartition('/')[2]}:{of.version or 'latest'}"
        for name, of in found
        if of.secret
    }


def variables_of(service: Service) -> dict[str, str]:
    """Return the variables of a function, without those that are secrets."""
    return {
        variable.name: variable.value
        for container in service.template.containers
        for variable in container.env
        if not variable.value_source.secret_key_ref.secret
    }
