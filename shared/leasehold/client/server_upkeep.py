"""What people on call ask a server for, beside its runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, urlencode

from leasehold.api.registry import RegistryResponse
from leasehold.api.runs import ManifestsResponse, RunsQuery
from leasehold.api.sweep import SweepResponse
from leasehold.api.upkeep import AuditResponse, WorkersResponse
from leasehold.client.http_calls import RunsApi, path_of
from leasehold.domain.manifest import Manifest
from leasehold.services.catalog_fit import LIVE, GivenValue
from leasehold.services.read_runs import RunFilter

#: An audit reads every run; a sweep begins nothing more after half of three minutes.
_TIMEOUT_S: Final = 900.0

#: Runs of one answer: each may be as large as a document gets.
_PAGE: Final = 50


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

    def live_runs(self) -> Iterator[Manifest]:
        """Yield the runs that have not ended, each once, read page by page."""
        seen: set[str] = set()
        for status in LIVE:
            wanted = RunFilter(status=status.value, dead_lettered=False)
            for run in self._manifests(wanted):
                if not run.is_terminal and run.run_id not in seen:
                    seen.add(run.run_id)
                    yield run

    def load(self, value: GivenValue) -> str:
        """Return the text of a value of a run; a large one only the server can reach."""
        if value.kept.ref is None:
            return value.kept.text or "null"
        part = "" if value.source is None else f"/steps/{quote(value.source, safe='')}"
        what = "input" if value.source is None else "output"
        _, found = self._api.call(f"{path_of(value.run.run_id)}{part}/{what}")
        return json.dumps(found)

    def _manifests(self, wanted: RunFilter) -> Iterator[Manifest]:
        token: str | None = None
        while True:
            query = urlencode(RunsQuery.page_of(wanted, _PAGE, token).to_texts(), doseq=True)
            _, answer = self._api.call(f"/manifests?{query}", timeout=_TIMEOUT_S)
            page = self._api.read(ManifestsResponse.model_validate, answer)
            yield from (self._api.read(Manifest.model_validate, run) for run in page.runs)
            if page.next_page_token is None or page.next_page_token == token:
                return
            token = page.next_page_token

    def workers(self) -> WorkersResponse:
        """Return who works on the server's store."""
        _, answer = self._api.call("/workers")
        return self._api.read(WorkersResponse.model_validate, answer)

    def sweep(self) -> SweepResponse:
        """Have the server sweep once, and return what was done."""
        _, answer = self._api.call("/sweep", {}, timeout=_TIMEOUT_S)
        return self._api.read(SweepResponse.model_validate, answer)
