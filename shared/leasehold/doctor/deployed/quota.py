"""Whether the functions fit the project's quota of Cloud Run: without room some are not started."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from leasehold.doctor.deployed.deployment import Deployment
from leasehold.doctor.finding import Finding
from leasehold.live.clients import ONE_TRY
from leasehold.registry.functions import FunctionEntry

if TYPE_CHECKING:
    from google.cloud.cloudquotas_v1 import QuotaInfo
    from google.cloud.run_v2 import Service

_UNLIMITED: Final = -1
_GIB: Final = 1024**3
#: Suffixes of a quantity, as Kubernetes has them, and what Cloud Run reports of a container.
_UNITS: Final[Mapping[str, float]] = {
    "": 1,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "Ki": 1024,
    "Mi": 1024**2,
    "Gi": 1024**3,
}
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]*)")


@dataclass(frozen=True, slots=True)
class _Quota:
    """A quota of Cloud Run, of a project in a region.

    Args:
        id: as Cloud Quotas has it: https://cloud.google.com/run/quotas
        limit: what of a container counts towards it.
        unit: how many of its units one has of what people know.
        word: what people know it by.
    """

    id: str
    limit: str
    unit: int
    word: str

    def taken(self, entry: FunctionEntry, service: Service) -> float:
        """Return what a function may take with all of its instances, as it is deployed."""
        template = service.template
        most = template.scaling.max_instance_count or entry.max_instances
        found = sum(
            quantity(container.resources.limits.get(self.limit, ""))
            for container in template.containers
        )
        by_table = entry.cpu if self.limit == "cpu" else entry.memory_mib * 1024**2
        return most * (found or by_table)


_QUOTAS: Final = (
    _Quota("CpuAllocPerProjectRegion", "cpu", 1000, "CPUs"),
    _Quota("MemAllocPerProjectRegion", "memory", 1, "GiB of memory"),
)


def quota(deployment: Deployment) -> Iterator[Finding]:
    """Yield where all functions together may take more than the project has in the region."""
    deployed = deployment.deployed()
    for one in _QUOTAS if deployed else ():
        name = (
            f"projects/{deployment.project}/locations/global/services/run.googleapis.com/"
            f"quotaInfos/{one.id}"
        )
        info = deployment.clients.quotas.get_quota_info({"name": name}, **ONE_TRY)
        has = limit_in(deployment.region, info)
        taken = sum(one.taken(entry, service) for entry, service in deployed)
        if has is None or taken * one.unit <= has:
            continue
        message = (
            f"The functions may take {_shown(one, taken)} together, and the project has "
            f"{_shown(one, has / one.unit)} in {deployment.region}: under load instances are "
            "refused, of the sweep and the API too. Ask for more, or lower max_instances in "
            "deployment.py."
        )
        repair = (
            f"gcloud beta quotas preferences create --service=run.googleapis.com "
            f"--project={deployment.project} --quota-id={one.id} "
            f"--dimensions=region={deployment.region} --preferred-value={round(taken * one.unit)}"
        )
        yield Finding("quota", message, repair)


def limit_in(region: str, info: QuotaInfo) -> int | None:
    """Return what a project has in a region; None: it has no limit there.

    What holds for the region alone comes before what holds for all that have none of their own.
    https://cloud.google.com/docs/quotas/reference/rest/v1/DimensionsInfo
    """
    of_region = [one for one in info.dimensions_infos if one.dimensions.get("region") == region]
    of_all = [
        one
        for one in info.dimensions_infos
        if "region" not in one.dimensions
        and (not one.applicable_locations or region in one.applicable_locations)
    ]
    values = [one.details.value for one in of_region or of_all]
    return None if not values or _UNLIMITED in values else min(values)


def quantity(text: str) -> float:
    """Return a number such as `2Gi`, `512Mi`, `1` or `1000m`; 0: it is none."""
    found = _QUANTITY.fullmatch(text)
    return float(found[1]) * _UNITS.get(found[2], 0) if found else 0


def _shown(quota: _Quota, number: float) -> str:
    number = number / _GIB if quota.limit == "memory" else number
    return f"{round(number, 2):g} {quota.word}"
