"""`/runs`: to start a run, to list runs, to read one; a run itself is answered as its manifest."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field

from leasehold.api import request_model as rules
from leasehold.api.request_model import RequestModel, RequestPart, ResponseModel
from leasehold.domain.manifest import AtStep, Manifest, Position, RunFields, consistent
from leasehold.domain.redaction import masked_run
from leasehold.domain.slots import Priority
from leasehold.domain.spend import MAX_TOKENS, Budget, SpendLimit, checked_budget
from leasehold.domain.status import DeadLetterReason, RunStatus
from leasehold.domain.summary import Summary
from leasehold.domain.timestamps import time_or_date
from leasehold.domain.trace import TraceEvent
from leasehold.domain.trouble import Trouble
from leasehold.services.read_runs import RunFilter, RunPage
from leasehold.services.request_bounds import (
    DEFAULT_PAGE_ITEMS,
    MAX_IDEMPOTENCY_KEY_CHARS,
    MAX_LABELS,
    MAX_PAGE_ITEMS,
    MAX_RETRIES,
)
from leasehold.services.start_run import StartRequest


class BudgetPart(RequestPart):
    """How much may be spent, in US dollars or in tokens; a kind that is left out is as before."""

    usd: Annotated[float, rules.dollars()] | None = None
    tokens: Annotated[int, rules.whole(1, MAX_TOKENS)] | None = None

    @classmethod
    def of(cls, budget: Budget | SpendLimit | None) -> Self | None:
        """Return a budget as it is sent, or raise InvalidRequestError."""
        if budget is None:
            return None
        limit = checked_budget(budget.usd, budget.tokens)
        return None if limit is None else cls(usd=limit.usd, tokens=limit.tokens)

    def to_limit(self) -> SpendLimit | None:
        """Return the budget as the service takes it; None: it says nothing."""
        return checked_budget(self.usd, self.tokens)


class StartBody(RequestModel):
    """`POST /runs`; answered with the summary of the run."""

    pipeline: Annotated[str, rules.text("the name of a pipeline")]
    input: Annotated[Any, rules.any_value()] = Field(default_factory=dict)
    idempotency_key: Annotated[
        str | None, rules.or_null(rules.printable(MAX_IDEMPOTENCY_KEY_CHARS))
    ] = None
    labels: Annotated[Mapping[str, str], rules.labels(), BeforeValidator(lambda it: it or {})] = {}
    max_retries: Annotated[int, rules.whole(0, MAX_RETRIES)] | None = None
    budget: BudgetPart | None = None
    priority: Annotated[Priority, rules.one_of(Priority)] = Priority.NORMAL
    files: Annotated[Mapping[str, str], rules.files()] = {}

    def with_files(self, files: Mapping[str, bytes]) -> Self:
        """Return the start with these files, which no check of a field needs to read again."""
        encoded = {name: base64.b64encode(data).decode() for name, data in files.items()}
        return self.model_copy(update={"files": encoded})

    def to_request(self, traceparent: str = "") -> StartRequest:
        """Return the request as the service takes it, in the trace of its caller."""
        files = {name: base64.b64decode(text) for name, text in self.files.items()}
        return StartRequest(
            self.pipeline,
            self.input,
            self.idempotency_key,
            self.labels,
            self.max_retries,
            files,
            traceparent,
            None if self.budget is None else self.budget.to_limit(),
            self.priority,
        )


_Labels = str | tuple[str, ...]
_id_prefix: Final = replace(rules.run_id(), allowed="the beginning of the id of a run")


class FilterPart(RequestPart):
    """Which runs: all that is given must hold."""

    status: Annotated[RunStatus, rules.one_of(RunStatus)] | None = None
    pipeline: Annotated[str, rules.filled_text()] | None = None
    dead_lettered: Annotated[bool, rules.flag()] | None = None
    label: Annotated[_Labels, rules.or_several(rules.filled_text(), MAX_LABELS)] | None = None
    paused: Annotated[bool, rules.flag()] | None = None
    cancelled: Annotated[bool, rules.flag()] | None = None
    since: Annotated[str, rules.moment()] | None = None
    until: Annotated[str, rules.moment()] | None = None
    step: Annotated[str, rules.filled_text()] | None = None
    reason: Annotated[DeadLetterReason, rules.one_of(DeadLetterReason)] | None = None
    id_prefix: Annotated[str, _id_prefix] | None = None
    trouble: Annotated[Trouble, rules.one_of(Trouble)] | None = None

    def to_filter(self) -> RunFilter:
        """Return the filter as the service takes it."""
        status = None if self.status is None else self.status.value
        return RunFilter(
            status=status,
            pipeline=self.pipeline,
            dead_lettered=self.dead_lettered,
            label=self.label,
            paused=self.paused,
            cancelled=self.cancelled,
            since=None if self.since is None else time_or_date(self.since),
            until=None if self.until is None else time_or_date(self.until),
            step=self.step,
            reason=None if self.reason is None else self.reason.value,
            id_prefix=self.id_prefix,
            trouble=self.trouble,
        )


def _boolean(given: Any) -> Any:
    """Return the boolean that a query has as text."""
    return {"true": True, "false": False}.get(given, given) if isinstance(given, str) else given


_query_flag: Final = replace(rules.flag(), allowed="true, false")
_query_labels: Final = replace(
    rules.or_several(rules.text(), MAX_LABELS), allowed=f"a text; repeated, {MAX_LABELS} at most"
)


class RunsQuery(FilterPart, RequestModel):
    """`GET /runs`; its values come as text, and an empty one fits no run."""

    pipeline: Annotated[str, rules.text()] | None = None
    label: Annotated[_Labels, _query_labels] | None = None
    step: Annotated[str, rules.text()] | None = None
    dead_lettered: Annotated[bool, _query_flag, BeforeValidator(_boolean)] | None = None
    paused: Annotated[bool, _query_flag, BeforeValidator(_boolean)] | None = None
    cancelled: Annotated[bool, _query_flag, BeforeValidator(_boolean)] | None = None
    limit: Annotated[int, rules.whole(1, MAX_PAGE_ITEMS), BeforeValidator(rules.number_of_text)] = (
        DEFAULT_PAGE_ITEMS
    )
    page_token: Annotated[str, rules.text("the nextPageToken of an earlier answer")] | None = None


class RunsResponse(ResponseModel):
    """A page of runs, newest first, and where the next one begins; None: there are no more."""

    runs: list[Summary]
    next_page_token: str | None


class RunResponse(RunFields, AtStep):
    """`GET /runs/{id}`: the manifest, with the fields of its position beside the rest."""

    @classmethod
    def of(cls, run: Manifest) -> Self:
        """Return the answer; lease ids and nonces are masked before."""
        position = {name: value for name, value in run.position if name != "step"}
        fields = {**dict(run), **position, "current_step": run.position.step}
        del fields["position"]
        return cls(**fields)

    def to_manifest(self) -> Manifest:
        """Return the run, or raise UnreadableRunError where it contradicts itself."""
        fields = dict(self)
        position = {name: fields.pop(name) for name in AtStep.model_fields}
        at = Position.model_construct(step=self.current_step, **position)
        return consistent(Manifest.model_construct(**fields, position=at))


class ManifestsResponse(ResponseModel):
    """A page of runs with all that is in them, newest first, and where the next one begins."""

    runs: list[Mapping[str, Any]]  # each as `GET /runs/{id}` answers it
    next_page_token: str | None

    @classmethod
    def of(cls, page: RunPage[Manifest]) -> Self:
        """Return a page for readers, without secrets."""
        runs: list[Mapping[str, Any]] = [
            RunResponse.of(masked_run(run)).model_dump(mode="json", by_alias=True)
            for run in page.runs
        ]
        return cls(runs=runs, next_page_token=page.next_page_token)


class TraceResponse(ResponseModel):
    """`GET /runs/{id}/trace`: all that happened to a run, oldest first."""

    events: list[TraceEvent]
