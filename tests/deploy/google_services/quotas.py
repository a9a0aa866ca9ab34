"""Cloud Quotas: how much a project may have, in units of each quota."""

from __future__ import annotations

from typing import Any

from google.cloud import cloudquotas_v1
from google.cloud.cloudquotas_v1.services.cloud_quotas.transports import CloudQuotasGrpcTransport

from tests.deploy.google_services.refusals import not_found
from tests.deploy.google_services.service import Service
from tests.deploy.google_services.world import World


class Quotas(Service):
    """Those of Cloud Run, which a new project has: 20 CPUs and 40 GiB.

    Attributes:
        of_all: value of each quota where a region has none of its own.
        of_regions: value of a quota in a region.
    """

    name = "google.api.cloudquotas.v1.CloudQuotas"
    transports = (CloudQuotasGrpcTransport,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.of_all = {
            "CpuAllocPerProjectRegion": 20_000,
            "MemAllocPerProjectRegion": 40 * 1024**3,
        }
        self.of_regions: dict[tuple[str, str], int] = {}

    def get_quota_info(self, request: Any) -> cloudquotas_v1.QuotaInfo:
        quota = request.name.rpartition("/")[2]
        if "/services/run.googleapis.com/" not in request.name or quota not in self.of_all:
            raise not_found(f"Quota {quota}")
        own = {region: value for (of, region), value in self.of_regions.items() if of == quota}
        others = [region for region in self.world.regions if region not in own]
        infos = [
            cloudquotas_v1.DimensionsInfo(
                dimensions={"region": region},
                details={"value": value},
                applicable_locations=[region],
            )
            for region, value in own.items()
        ]
        infos.append(
            cloudquotas_v1.DimensionsInfo(
                details={"value": self.of_all[quota]}, applicable_locations=others
            )
        )
        return cloudquotas_v1.QuotaInfo(
            name=request.name, quota_id=quota, dimensions=["region"], dimensions_infos=infos
        )
