"""Runs of a server, over its runs API."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from leasehold.api.batch import BatchBody, BatchResponse
from leasehold.api.deliveries import (
    DeliverBody,
    DeliveriesQuery,
    DeliveriesResponse,
    DeliveryReport,
    RunDeliveriesResponse,
)
from leasehold.api.operations import ACTOR_HEADER, ANSWERS, body_of
from leasehold.api.overrides import (
    OverrideBody,
    OverrideChange,
    OverrideReport,
    OverridesResponse,
)
from leasehold.api.results import FilesResponse
from leasehold.api.runs import RunsQuery, RunsResponse, StartBody, TraceResponse
from leasehold.api.upkeep import WhyResponse
from leasehold.bootstrap import system_clock
from leasehold.client.http_calls import RunsApi, path_of
from leasehold.domain.manifest import Manifest, shown_manifest
from leasehold.domain.summary import Summary
from leasehold.domain.trace import TraceEvent
from leasehold.ports.artifacts import ArtifactContent
from leasehold.services.batch import BatchResult
from leasehold.services.operate import OperationRequest
from leasehold.services.overrides import OverrideRequest
from leasehold.services.read_deliveries import DeliveryFilter
from leasehold.services.read_runs import RunFilter
from leasehold.services.start_run import StartRequest

#: A thousand runs, each with a commit of its own.
_BATCH_TIMEOUT_S: Final = 900.0

Page = TypeVar("Page", FilesResponse, RunsResponse, DeliveriesResponse)


class ServerSource:
    """Runs of a server, over its runs API.

    Raises, in each method:
        ServerUnreachableError: it does not answer.
        ServerRefusedError: what it answers is not of this API.
        LeaseholdError: the error that it answers with, as if it had been raised here.
    """

    def __init__(self, url: str) -> None:
        self._api = RunsApi(url)
        self.url = self._api.url

    def start(self, request: StartRequest) -> tuple[bool, Summary]:
        """Start a run; return whether it is new, and the run."""
        status, run = self._api.call("/runs", StartBody.of(request).to_json())
        return status == 201, self._api.read(Summary.model_validate, run)  # noqa: PLR2004 - created

    def operate(self, run_id: str, request: OperationRequest) -> Summary:
        """Do an operation; return the run, after a recreate the new one."""
        path = f"{path_of(run_id)}:{request.operation}"
        body, headers = body_of(request).to_json(), _named(request.actor)
        _, run = self._api.call(path, body, headers=headers)
        return self._api.read(ANSWERS.get(request.operation, Summary).model_validate, run)

    def batch(
        self, request: OperationRequest, wanted: RunFilter, *, limit: int, dry_run: bool
    ) -> BatchResult:
        """Do an operation on all runs that fit; each of them is a commit of its own."""
        body = BatchBody.of(request, wanted, limit=limit, dry_run=dry_run).to_json()
        _, answer = self._api.call(
            "/runs:batch", body, headers=_named(request.actor), timeout=_BATCH_TIMEOUT_S
        )
        return self._api.read(BatchResponse.model_validate, answer).to_result()

    def get(self, run_id: str) -> Manifest:
        """Return one run."""
        _, run = self._api.call(path_of(run_id))
        return self._api.read(lambda found: shown_manifest(run_id, found), run)

    def trace(self, run_id: str) -> list[TraceEvent]:
        """Return all that happened to one run, oldest first."""
        _, answer = self._api.call(f"{path_of(run_id)}/trace")
        return self._api.read(TraceResponse.model_validate, answer).events

    def why(self, run_id: str) -> WhyResponse:
        """Return what one run waits for."""
        _, answer = self._api.call(f"{path_of(run_id)}/why")
        return self._api.read(WhyResponse.model_validate, answer)

    def output(self, run_id: str, step: str | None = None) -> Any:
        """Return the output of one step, or of the whole run."""
        part = "" if step is None else f"/steps/{quote(step, safe='')}"
        _, value = self._api.call(f"{path_of(run_id)}{part}/output")
        return value

    def files(self, run_id: str, page_token: str | None = None) -> FilesResponse:
        """Return a page of the files of one run."""
        query = "" if page_token is None else f"?{urlencode({'pageToken': page_token})}"
        _, answer = self._api.call(f"{path_of(run_id)}/files{query}")
        return self._api.read(lambda it: _further(FilesResponse, it, page_token), answer)

    def open_file(self, run_id: str, name: str) -> AbstractContextManager[ArtifactContent]:
        """Open a file of one run, to be read in blocks."""
        return self._api.open(f"{path_of(run_id)}/files/{quote(name)}")

    def page(self, wanted: RunFilter, limit: int, token: str | None) -> RunsResponse:
        """Return the runs that fit, newest first."""
        query = RunsQuery.page_of(wanted, limit, token).to_texts()
        _, answer = self._api.call(f"/runs?{urlencode(query, doseq=True)}")
        return self._api.read(lambda it: _further(RunsResponse, it, token), answer)

    def deliveries(self, run_id: str) -> list[DeliveryReport]:
        """Return what channels were told of one run, or are owed, newest first."""
        _, answer = self._api.call(f"{path_of(run_id)}/deliveries")
        return self._api.read(RunDeliveriesResponse.model_validate, answer).deliveries

    def delivery_page(
        self, wanted: DeliveryFilter, limit: int, token: str | None
    ) -> DeliveriesResponse:
        """Return the deliveries of all runs that fit, newest first."""
        query = DeliveriesQuery.page_of(wanted, limit, token).to_texts()
        _, answer = self._api.call(f"/deliveries?{urlencode(query)}")
        return self._api.read(lambda it: _further(DeliveriesResponse, it, token), answer)

    def deliver(self, run_id: str, channel: str, *, reason: str, actor: str) -> DeliveryReport:
        """Have a channel told of one run once more."""
        body = DeliverBody(channel=channel, reason=reason).to_json()
        _, answer = self._api.call(f"{path_of(run_id)}:deliver", body, headers=_named(actor))
        return self._api.read(DeliveryReport.model_validate, answer)

    def overrides(self) -> list[OverrideReport]:
        """Return the overrides of step limits, by their steps."""
        _, answer = self._api.call("/overrides")
        return self._api.read(OverridesResponse.model_validate, answer).overrides

    def override(self, request: OverrideRequest) -> OverrideChange:
        """Set the limits of a step until a time; return them, and those that they replace."""
        path = f"/overrides/{quote(request.step_type, safe='')}:set"
        body, headers = OverrideBody.of(request).to_json(), _named(request.actor)
        _, answer = self._api.call(path, body, headers=headers)
        return self._api.read(OverrideChange.model_validate, answer)

    def clear_override(self, step_type: str) -> OverrideChange:
        """Delete the override of a step; return what it was."""
        _, answer = self._api.call(f"/overrides/{quote(step_type, safe='')}:clear", {})
        return self._api.read(OverrideChange.model_validate, answer)

    def now(self) -> datetime:
        """Return the time of this machine; the API has none."""
        return system_clock().now()

    def announces(self) -> bool:
        """Return True: the server sees to what is due to its channels."""
        return True

    def delivers(self) -> bool:
        """Return True: the server sees to what it has changed."""
        return True

    def missing_server(self) -> str | None:
        """Return None: whoever answers works, or functions do when they are called."""
        return None


def _further(model: type[Page], answer: Any, token: str | None) -> Page:
    """Return a page; ValueError for one that leads to itself: it would be read for ever."""
    page = model.model_validate(answer)
    if token is not None and page.next_page_token == token:
        raise ValueError(token)
    return page


def _named(actor: str) -> dict[str, str]:
    """Return the header that says who asks: UTF-8, in the way that headers are sent."""
    return {ACTOR_HEADER: actor.encode(errors="replace").decode("latin-1")}
