"""Service accounts: one a function, and those that tasks, schedule and events sign in as."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from google.api_core.exceptions import NotFound

from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.resource import MISSING, PRESENT, Difference, Look, Resource, State
from leasehold.frozen import dataclass
from leasehold.google_clients.clients import ONE_TRY, GoogleClients
from leasehold.registry.functions import Trigger

_CALLERS: Final = {
    Trigger.TASKS: "calls execute-step, for the tasks of Leasehold",
    Trigger.SCHEDULE: "calls the functions of Leasehold that run by the clock",
    Trigger.EVENTS: "calls the functions of Leasehold that messages go to",
}


def accounts(clients: GoogleClients, installation: Installation) -> Iterator[Resource]:
    """Yield the accounts of an installation."""
    for function in installation.functions:
        summary = f"Leasehold's {function.service}: {function.summary}"
        yield Account(clients, installation, function.account, summary)
    for trigger, summary in _CALLERS.items():
        yield Account(clients, installation, trigger.account, summary)


@dataclass(frozen=True, slots=True)
class Account:
    """One service account."""

    clients: GoogleClients
    installation: Installation
    name: str
    summary: str
    kind = "service account"

    def look(self) -> Look:
        """Return whether it is there, and is not disabled."""
        try:
            found = self.clients.accounts.get_service_account(name=self._full_name(), **ONE_TRY)
        except NotFound:
            return MISSING
        if not found.disabled:
            return PRESENT
        email, project = self.installation.email_of(self.name), self.installation.project
        repair = f"gcloud iam service-accounts enable {email} --project={project}"
        difference = Difference("disabled", found="yes", wanted="no")
        return Look(State.DIFFERENT, (difference,), repair=repair)

    def create(self) -> None:
        """Create it, without any permission."""
        account = {"display_name": self.name, "description": self.summary}
        self.clients.accounts.create_service_account(
            request={
                "name": f"projects/{self.installation.project}",
                "account_id": self.name,
                "service_account": account,
            },
            **ONE_TRY,
        )

    def _full_name(self) -> str:
        email = self.installation.email_of(self.name)
        return f"projects/{self.installation.project}/serviceAccounts/{email}"
