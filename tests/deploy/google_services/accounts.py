"""IAM: the service accounts of the project, and who may act as one."""

from __future__ import annotations

from typing import Any

from google.cloud import iam_admin_v1
from google.cloud.iam_admin_v1.services.iam.transports import IAMGrpcTransport

from tests.deploy.google_services.iam_policies import PolicyMethods
from tests.deploy.google_services.refusals import already_exists, invalid, not_found
from tests.deploy.google_services.service import copy_of
from tests.deploy.google_services.world import World


class Accounts(PolicyMethods):
    """Accounts by their full names, with an id of 6 to 30 characters."""

    name = "google.iam.admin.v1.IAM"
    transports = (IAMGrpcTransport,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.accounts: dict[str, iam_admin_v1.ServiceAccount] = {}

    def get_service_account(self, request: Any) -> iam_admin_v1.ServiceAccount:
        self.check_resource(request.name)
        return copy_of(self.accounts[request.name])

    def create_service_account(self, request: Any) -> iam_admin_v1.ServiceAccount:
        if not 6 <= len(request.account_id) <= 30:
            raise invalid("The account ID must be 6-30 characters long.")
        if len(request.service_account.display_name) > 100:
            raise invalid("The display name is too long.")
        if len(request.service_account.description.encode()) > 256:
            raise invalid("The description is too long.")
        email = f"{request.account_id}@{self.world.project}.iam.gserviceaccount.com"
        name = f"{request.name}/serviceAccounts/{email}"
        if name in self.accounts:
            raise already_exists(f"Service account {request.account_id}")
        account = copy_of(request.service_account)
        account.name, account.email = name, email
        self.accounts[name] = account
        return copy_of(account)

    def check_resource(self, resource: str) -> None:
        if resource not in self.accounts:
            raise not_found(f"Unknown service account {resource}")
