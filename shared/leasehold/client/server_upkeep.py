"""What people on call ask a server for, beside its runs."""

from __future__ import annotations

from typing import Final

from leasehold.api.registry import RegistryResponse
from leasehold.api.sweep import SweepResponse
from leasehold.api.upkeep import AuditResponse
from leasehold.client.http_calls import RunsApi

#: An audit reads every run; a sweep begins nothing more after half of three minutes.
_TIMEOUT_S: Final = 900.0


class ServerUpkeep:
    """A server's answers about its limits and order; errors as those of `ServerSource`."""

    def __init__(self, url: str) -> None:
        self._api = RunsApi(url)

    def registry(self) -> RegistryResponse:
        """Return what is in force where the server runs."""
        _, answer = self._api.call("/registry")
        return self._api.read(RegistryResponse.model_validate, answer)

    def audit(self, *, repair: bool) -> AuditResponse:
        """Return the runs that are not in order, and repair them where that is wanted."""
        if repair:
            _, answer = self._api.call("/audit:repair", {}, timeout=_TIMEOUT_S)
        else:
            _, answer = self._api.call("/audit", timeout=_TIMEOUT_S)
        return self._api.read(AuditResponse.model_validate, answer)

    def sweep(self) -> SweepResponse:
        """Have the server sweep once, and return what was done."""
        _, answer = self._api.call("/sweep", {}, timeout=_TIMEOUT_S)
        return self._api.read(SweepResponse.model_validate, answer)
