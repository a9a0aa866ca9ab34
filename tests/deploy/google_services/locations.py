"""The regions of a service."""

from __future__ import annotations

from typing import Any

from google.cloud.location import locations_pb2
from google.cloud.scheduler_v1.services.cloud_scheduler.transports import (
    CloudSchedulerGrpcTransport,
)

from tests.deploy.google_services.service import Service


class Locations(Service):
    """Those of the world, for each service alike."""

    name = "google.cloud.location.Locations"
    transports = (CloudSchedulerGrpcTransport,)

    def get_location(self, request: Any) -> locations_pb2.Location:
        self.check_location(request.name)
        region = request.name.rpartition("/")[2]
        return locations_pb2.Location(name=request.name, location_id=region)

    def list_locations(self, request: Any) -> locations_pb2.ListLocationsResponse:
        found = [
            locations_pb2.Location(name=f"{request.name}/locations/{region}", location_id=region)
            for region in self.world.regions
        ]
        return locations_pb2.ListLocationsResponse(locations=found)
