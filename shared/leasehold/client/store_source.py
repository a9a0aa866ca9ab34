"""Runs of a store, as this process reads and changes them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import pydantic_core

from leasehold.api.deliveries import DeliveriesResponse, DeliveryReport
from leasehold.api.operations import answer_to
from leasehold.api.overrides import OverrideChange, OverrideReport
from leasehold.api.results import FilesResponse
from leasehold.api.runs import RunsResponse
from leasehold.api.upkeep import WhyResponse
from leasehold.bootstrap import delivers_events, delivers_tasks
from leasehold.client.store import Store
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.domain.summary import Summary, summary_of
from leasehold.domain.trace import TraceEvent
from leasehold.ports.artifacts import ArtifactContent
from leasehold.services.batch import BatchResult, batch
from leasehold.services.due_deliveries import request_delivery
from leasehold.services.engine import Engine
from leasehold.services.explain_run import explain_run
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.overrides import (
    OverrideRequest,
    clear_override,
    list_overrides,
    set_override,
)
from leasehold.services.read_deliveries import DeliveryFilter, list_deliveries, read_deliveries
from leasehold.services.read_results import list_files, open_file, read_output
from leasehold.services.read_runs import RunFilter, list_summaries, read_run, read_timeline
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.worker_notes import missing_server
from leasehold.worker.holder import host_name, is_gone


@dataclass(frozen=True, slots=True)
class StoreSource:
    """Runs of a store.

    Args:
        engine: reads the store, and needs no catalog for that.
        store: gives the engine that changes runs; None: it is `engine`.
    """

    engine: Engine
    store: Store | None = None

    def start(self, request: StartRequest) -> tuple[bool, Summary]:
        """Start a run, or find the one that the key started; return whether it is new, and it."""
        if self.store is not None and not self.store.is_there():
            start_run(self.store.to_change(), request)  # what is refused makes no store
            self.store.make()
        change = start_run(self._acting(), request)
        return change.outcome is Outcome.STARTED, summary_of(change.manifest)

    def operate(self, run_id: str, request: OperationRequest) -> Summary:
        """Do an operation; return the run, after a recreate the new one."""
        engine = self._engine_for(request.operation)
        change = operate(engine, run_id, request)
        return answer_to(request.operation, change)

    def batch(
        self, request: OperationRequest, wanted: RunFilter, *, limit: int, dry_run: bool
    ) -> BatchResult:
        """Do an operation on the runs that fit; each of them is a commit of its own."""
        engine = self._engine_for(request.operation)
        return batch(engine, request, wanted, limit=limit, dry_run=dry_run)

    def get(self, run_id: str) -> Manifest:
        """Return one run."""
        return read_run(self.engine, run_id)

    def trace(self, run_id: str) -> list[TraceEvent]:
        """Return all that happened to one run, oldest first."""
        return read_timeline(self.engine, run_id)

    def why(self, run_id: str) -> WhyResponse:
        """Return what one run waits for; the rules are those of the catalog, if there is one."""
        engine = self.engine if self.store is None else self.store.to_explain()
        here = partial(is_gone, host=host_name())
        return WhyResponse.of(explain_run(engine, run_id, is_gone=here))

    def output(self, run_id: str, step: str | None = None) -> Any:
        """Return the output of one step, or of the whole run."""
        return pydantic_core.from_json(read_output(self.engine, run_id, step))

    def files(self, run_id: str, page_token: str | None = None) -> FilesResponse:
        """Return a page of the files of one run."""
        return FilesResponse.of(list_files(self.engine, run_id, page_token=page_token))

    def open_file(self, run_id: str, name: str) -> AbstractContextManager[ArtifactContent]:
        """Open a file of one run, to be read in blocks."""
        return open_file(self.engine, run_id, name)

    def page(self, wanted: RunFilter, limit: int, token: str | None) -> RunsResponse:
        """Return the runs that fit, newest first."""
        page = list_summaries(self.engine, wanted, limit=limit, page_token=token)
        return RunsResponse.of(page)

    def deliveries(self, run_id: str) -> list[DeliveryReport]:
        """Return what channels were told of one run, or are owed, newest first."""
        return [DeliveryReport.of(one) for one in read_deliveries(self.engine, run_id)]

    def delivery_page(
        self, wanted: DeliveryFilter, limit: int, token: str | None
    ) -> DeliveriesResponse:
        """Return the deliveries of all runs that fit, newest first."""
        page = list_deliveries(self.engine, wanted, limit=limit, page_token=token)
        return DeliveriesResponse.of(page)

    def deliver(self, run_id: str, channel: str, *, reason: str, actor: str) -> DeliveryReport:
        """Have a channel of the catalog told of one run once more."""
        engine = self._acting()
        owed = request_delivery(engine, run_id, channel, actor=actor, reason=reason)
        return DeliveryReport.of(owed)

    def overrides(self) -> list[OverrideReport]:
        """Return the overrides of step limits; whether they hold, says the catalog, if any."""
        engine = self.engine if self.store is None else self.store.to_explain()
        return [OverrideReport.model_validate(one) for one in list_overrides(engine)]

    def override(self, request: OverrideRequest) -> OverrideChange:
        """Set the limits of a step until a time; return them, and those that they replace."""
        if self.store is not None and not self.store.is_there():
            set_override(self.store.to_change(), request)  # what is refused makes no store
            self.store.make()
        return OverrideChange.model_validate(set_override(self._acting(), request))

    def clear_override(self, step_type: str) -> OverrideChange:
        """Delete the override of a step; return what it was."""
        return OverrideChange.model_validate(clear_override(self._acting(), step_type))

    def now(self) -> datetime:
        """Return the time of the store."""
        return self.engine.clock.now()

    def announces(self) -> bool:
        """Return whether there is a bus that takes messages to the sender of another process."""
        return delivers_events(self._acting())

    def delivers(self) -> bool:
        """Return whether there is a queue that takes tasks to workers of other processes."""
        return delivers_tasks(self.engine)

    def missing_server(self) -> str | None:
        """Return in words that live runs wait and nobody works on them; None: somebody does."""
        return missing_server(self.engine)

    def _acting(self) -> Engine:
        return self.engine if self.store is None else self.store.to_change()

    def _engine_for(self, operation: Operation) -> Engine:
        """Return the engine of an operation; what dispatches no step needs no limits of one."""
        if self.store is None or operation is Operation.PAUSE:
            return self.engine
        if operation is Operation.CANCEL:
            return self.store.to_cancel()
        return self.store.to_change()
