"""Cloud Run: the services that functions are deployed as."""

from __future__ import annotations

from typing import Any

from google.cloud import run_v2
from google.cloud.run_v2.services.services.transports import ServicesGrpcTransport

from tests.deploy.google_services.iam_policies import PolicyMethods
from tests.deploy.google_services.operations import begun
from tests.deploy.google_services.refusals import not_found
from tests.deploy.google_services.service import copy_of
from tests.deploy.google_services.world import World


class CloudRun(PolicyMethods):
    """Services by their full names; `deploy` is what gcloud does."""

    name = "google.cloud.run.v2.Services"
    transports = (ServicesGrpcTransport,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.services: dict[str, run_v2.Service] = {}

    def deploy(self, region: str, service: str, **fields: Any) -> run_v2.Service:
        """Let there be a service."""
        name = f"projects/{self.world.project}/locations/{region}/services/{service}"
        uri = f"https://{service}-{self.world.number}.{region}.run.app"
        self.services[name] = run_v2.Service(name=name, uri=uri, urls=[uri], **fields)
        return self.services[name]

    def get_service(self, request: Any) -> run_v2.Service:
        self.check_resource(request.name)
        return copy_of(self.services[request.name])

    def list_services(self, request: Any) -> run_v2.ListServicesResponse:
        found = [one for name, one in self.services.items() if name.startswith(request.parent)]
        return run_v2.ListServicesResponse(services=found)

    def update_service(self, request: Any) -> Any:
        """Change a service at once; gcloud makes a new revision of it."""
        name = request.service.name
        self.check_resource(name)
        self.services[name] = copy_of(request.service)
        return begun(self.world, name.rpartition("/services/")[0], self.services[name])

    def check_resource(self, resource: str) -> None:
        if resource not in self.services:
            raise not_found(f"Resource '{resource.rpartition('/')[2]}' of kind 'SERVICE'")
