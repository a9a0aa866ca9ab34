"""Where a client reads and changes runs: a server, or a store."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

from leasehold.api.deliveries import DeliveriesResponse, DeliveryReport
from leasehold.api.overrides import OverrideChange, OverrideReport
from leasehold.api.results import FilesResponse
from leasehold.api.runs import RunsResponse
from leasehold.api.upkeep import WhyResponse
from leasehold.domain.manifest import Manifest
from leasehold.domain.summary import Summary
from leasehold.domain.trace import TraceEvent
from leasehold.ports.artifacts import ArtifactContent
from leasehold.services.batch import BatchResult
from leasehold.services.operate import OperationRequest
from leasehold.services.overrides import OverrideRequest
from leasehold.services.read_deliveries import DeliveryFilter
from leasehold.services.read_runs import RunFilter
from leasehold.services.start_run import StartRequest


class Source(Protocol):
    """Runs, wherever they are kept; each call means the same, and raises the same, in all places.

    Raises, in each method:
        ServerUnreachableError, StoreUnavailableError: nobody answers, or not now. Retryable.
    """

    def start(self, request: StartRequest) -> tuple[bool, Summary]:
        """Start a run, or find the one that the key started; return whether it is new, and it."""
        ...

    def operate(self, run_id: str, request: OperationRequest) -> Summary:
        """Do an operation; return what it is answered with (`api.operations.ANSWERS`)."""
        ...

    def batch(
        self, request: OperationRequest, wanted: RunFilter, *, limit: int, dry_run: bool
    ) -> BatchResult:
        """Do an operation on the runs that fit; each of them is a commit of its own."""
        ...

    def get(self, run_id: str) -> Manifest:
        """Return one run."""
        ...

    def trace(self, run_id: str) -> list[TraceEvent]:
        """Return all that happened to one run, oldest first."""
        ...

    def why(self, run_id: str) -> WhyResponse:
        """Return what one run waits for."""
        ...

    def output(self, run_id: str, step: str | None = None) -> Any:
        """Return the output of one step, or of the whole run; raises as `read_output`."""
        ...

    def files(self, run_id: str, page_token: str | None = None) -> FilesResponse:
        """Return a page of the files of one run."""
        ...

    def open_file(self, run_id: str, name: str) -> AbstractContextManager[ArtifactContent]:
        """Open a file of one run, to be read in blocks."""
        ...

    def page(self, wanted: RunFilter, limit: int, token: str | None) -> RunsResponse:
        """Return the runs that fit, newest first."""
        ...

    def deliveries(self, run_id: str) -> list[DeliveryReport]:
        """Return what channels were told of one run, or are owed, newest first."""
        ...

    def delivery_page(
        self, wanted: DeliveryFilter, limit: int, token: str | None
    ) -> DeliveriesResponse:
        """Return the deliveries of all runs that fit, newest first."""
        ...

    def deliver(self, run_id: str, channel: str, *, reason: str, actor: str) -> DeliveryReport:
        """Have a channel told of one run once more."""
        ...

    def overrides(self) -> list[OverrideReport]:
        """Return the overrides of step limits, by their steps."""
        ...

    def override(self, request: OverrideRequest) -> OverrideChange:
        """Set the limits of a step until a time; return them, and those that they replace."""
        ...

    def clear_override(self, step_type: str) -> OverrideChange:
        """Delete the override of a step; return what it was."""
        ...

    def now(self) -> datetime:
        """Return the time."""
        ...

    def announces(self) -> bool:
        """Return whether what is due to a channel reaches who sends it, without a server here."""
        ...

    def delivers(self) -> bool:
        """Return whether what is changed here reaches a worker without a server of the store."""
        ...

    def missing_server(self) -> str | None:
        """Return in words that live runs wait and nobody works on them; None: somebody does."""
        ...
