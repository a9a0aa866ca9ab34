"""`/runs/{id}/why`, `/audit`, `/workers`: what a run waits for, what is not in order, who works."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Self

from leasehold.api.deliveries import DeliveryReport
from leasehold.api.request_model import ResponseModel
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest_parts import Attempts
from leasehold.domain.stored import make
from leasehold.domain.summary import Summary, attempts_of, summary_of
from leasehold.domain.trouble import Trouble
from leasehold.domain.worker_note import WorkerNote
from leasehold.services.audit import AuditResult
from leasehold.services.count_runs import RunCounts
from leasehold.services.explain_run import ExplainedRun
from leasehold.services.read_runs import RunPage


class WhyResponse(ResponseModel):
    """`GET /runs/{id}/why`.

    `waitsFor` is null for a run that waits for nothing any more, `until` where no time moves it,
    and `then` is what would become of it at that time. `operations` are what a person who looked
    at this `generation` can do now. `owed` has its announcements that are due or were given up.
    """

    run_id: str
    waits_for: str | None
    until: datetime | None
    then: str | None
    words: str
    generation: int
    operations: list[Operation]
    owed: tuple[str, ...] = ()  # a server of an earlier version does not say
    deliveries: tuple[DeliveryReport, ...] = ()

    @classmethod
    def of(cls, explained: ExplainedRun) -> Self:
        """Return an explanation as it is answered."""
        run, explanation = explained.run, explained.explanation
        return cls(
            run_id=run.run_id,
            waits_for=explanation.what,
            until=explanation.until,
            then=None if explanation.then is None else explanation.then.word,
            words=explanation.words,
            generation=run.position.dispatch.generation,
            operations=list(explanation.operations),
            owed=explained.owed,
            deliveries=tuple(map(DeliveryReport.of, explained.unannounced)),
        )


class RunOverview(Summary):
    """A run of `GET /`: its summary, and what `why` says of it.

    `waitsFor` is the sentence of `why`, null for a run that waits for nothing any more. `troubles`
    are those that the run itself tells; `announcement` is among them where the filter asks for it.
    `recreatedAs` names the runs in which it went on.
    """

    waits_for: str | None
    until: datetime | None
    then: str | None
    troubles: tuple[Trouble, ...]
    attempts_by_cause: Attempts
    dead_letter_detail: str | None
    block_finding: str | None
    block_remedy: str | None
    recreated_as: tuple[str, ...]

    @classmethod
    def of(cls, explained: ExplainedRun) -> Self:
        """Return a run as it is answered."""
        run, explanation = explained.run, explained.explanation
        return make(
            cls,
            **dict(summary_of(run)),
            waits_for=explanation.told_of(run.run_id),
            until=explanation.until,
            then=None if explanation.then is None else explanation.then.word,
            troubles=explained.troubles,
            attempts_by_cause=attempts_of(run),
            dead_letter_detail=run.dead_letter_detail,
            block_finding=None if run.block is None else run.block.finding,
            block_remedy=None if run.block is None else run.block.remediation,
            recreated_as=run.recreated_as,
        )


class OverviewResponse(ResponseModel):
    """A page of runs with what each waits for, and where the next one begins; None: no more."""

    runs: list[RunOverview]
    next_page_token: str | None

    @classmethod
    def of(cls, page: RunPage[ExplainedRun]) -> Self:
        """Return a page as it is answered."""
        return cls(
            runs=[RunOverview.of(one) for one in page.runs], next_page_token=page.next_page_token
        )


class StateCounts(ResponseModel):
    """Runs by their state, without the cancelled ones; paused ones count in theirs."""

    pending: int
    in_progress: int
    retrying: int
    blocked: int
    completed: int
    dead_lettered: int


class CountsResponse(ResponseModel):
    """`GET /counts`: how many runs there are; `most` means that many, or more."""

    states: StateCounts
    reasons: Mapping[str, int]
    most: int

    @classmethod
    def of(cls, counts: RunCounts) -> Self:
        """Return the counts as they are answered."""
        states = StateCounts.model_validate(counts.states)
        return cls(states=states, reasons=counts.reasons, most=counts.most)


class BreachReport(ResponseModel):
    """One thing that is wrong with a run, and what its repair is."""

    code: str
    finding: str
    repair: str


class AuditedRun(ResponseModel):
    """A run that is not in order; `outcome` is what its repair came to, null without one."""

    run_id: str
    breaches: list[BreachReport]
    outcome: str | None


class AuditResponse(ResponseModel):
    """`GET /audit`, which looks, and `POST /audit:repair`; `left` are those without an outcome.

    The runs of `waitingForCode` are in order, and so are those that need the artifacts; but they
    stand until a person does something.
    """

    found: list[AuditedRun]
    left: int
    waiting_for_code: int = 0  # an older server does not say
    artifacts_problem: str | None = None

    @classmethod
    def of(
        cls, results: Iterable[AuditResult], waiting_for_code: int, artifacts_problem: str | None
    ) -> Self:
        """Return the results of an audit as they are answered."""
        found = [_audited(one) for one in results]
        return cls(
            found=found,
            left=sum(one.outcome is None for one in found),
            waiting_for_code=waiting_for_code,
            artifacts_problem=artifacts_problem,
        )


def _audited(one: AuditResult) -> AuditedRun:
    breaches = [
        BreachReport(code=breach.code, finding=breach.finding, repair=breach.repair)
        for breach in one.breaches
    ]
    outcome = None if one.outcome is None else one.outcome.word
    return AuditedRun(run_id=one.run_id, breaches=breaches, outcome=outcome)


class WorkerReport(ResponseModel):
    """A process that works on the store, or the remote worker that last asked for a step.

    `kind` is `serve`, `dev`, `in-process`, `function` or `remote`; `codeHash` is the same in all
    processes that loaded the same code, and `steps` are those that its catalog has.
    """

    process: str
    kind: str
    started_at: datetime
    seen_at: datetime
    code_hash: str
    steps: list[str]


class WorkersResponse(ResponseModel):
    """`GET /workers`: who noted within the last three minutes that it works, the latest first."""

    workers: list[WorkerReport]

    @classmethod
    def of(cls, notes: Iterable[WorkerNote]) -> Self:
        """Return the notes of those that live as they are answered."""
        return cls(
            workers=[
                WorkerReport(
                    process=note.process,
                    kind=note.kind,
                    started_at=note.started_at,
                    seen_at=note.seen_at,
                    code_hash=note.code_hash,
                    steps=list(note.steps),
                )
                for note in notes
            ]
        )
