"""The parts of a manifest: lease, dispatch, block, settlement, the records of steps, errors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Self

from pydantic import AwareDatetime

from leasehold.domain.checkpoint import CallCount, KeptCounts, KeptValue
from leasehold.domain.children import EachRule
from leasehold.domain.signal import WaitRule
from leasehold.domain.spend import Spend, SpendLimit
from leasehold.domain.status import AttemptEnd, Outcome, RunStatus
from leasehold.domain.step_pause import Hold
from leasehold.domain.stored import Stored, make, replace
from leasehold.errors import LeaseholdError

#: What is left to a handler between its soft limit and its hard one, where its step does not say.
DEFAULT_CLEANUP: Final = timedelta(seconds=5)


class StackRequest(Stored):
    """A person's request for the stack of the attempt that runs: who asked, and when."""

    actor: str
    at: AwareDatetime


class Lease(Stored):
    """The right to work on a run, until a time. It is over at `expires_at` itself."""

    lease_id: str
    holder: str
    acquired_at: AwareDatetime
    expires_at: AwareDatetime
    max_expires_at: AwareDatetime
    stack_request: StackRequest | None = None  # until it is answered; it ends with the lease
    spent: Spend | None = None  # what its attempt has spent beside recorded calls, and is counted


class RetryRule(Stored):
    """The retries of a step that has its own policy: its waits, and what is not repeated."""

    first_s: float
    factor: float
    max_s: float
    non_retryable: tuple[str, ...] = ()


class Place(Stored):
    """A place of a plan that is not a plain step: what runs there.

    A field of a later version says that something else runs there, so a type that is missing is no
    step that is known here.
    """

    step_type: str = ""
    wait: WaitRule | None = None  # it waits for a signal, and has the queue of that step type
    each: EachRule | None = None
    parallel: tuple[str, ...] | None = None  # the steps that run at once, each on what is given
    child: str | None = None  # the pipeline of which a run is waited for

    @property
    def has_children(self) -> bool:
        """Whether small runs do what is to be done there."""
        return bool(self.each or self.parallel or self.child)


#: Where a plain step runs.
NO_PLACE: Final = make(Place)


def step_type_at(places: Mapping[str, Place] | None, name: str) -> str:
    """Return the type of the step at a place of a plan; empty: no step that is known here."""
    if places is None or (place := places.get(name)) is None:
        return name
    return place.step_type


class SkippedStep(Stored):
    """A step that was left out, and the one whose output skipped it."""

    step: str
    by: str


class InputFile(Stored):
    """A file that a run was started with; its handlers may have replaced it since."""

    name: str
    digest: str  # of its bytes, in hexadecimal digits


class Block(Stored):
    """Why a run is BLOCKED, and what a person can do about it; `check_id` names the gate.

    One that code can put right is looked at again at `look_at`, and then later and later: `looks`
    counts how often it was found again. `codes_before` are the others that were found since the
    step went on last: of two servers each may find its own. `code_hash` names the code that found
    it.
    """

    code: str
    check_id: str | None = None
    finding: str
    remediation: str
    look_at: AwareDatetime | None = None  # None: a person decides
    looks: int = 0
    codes_before: tuple[str, ...] | None = None  # None: no other
    code_hash: str | None = None  # None: not known

    @property
    def heals(self) -> bool:
        """Whether the run goes on by itself once the code is put right.

        A version before this one left a step that it did not know to a person.
        """
        return self.look_at is not None

    @property
    def words(self) -> str:
        """What is wrong, and what to do about it: sentences, also where the first has no end."""
        end = "" if self.finding.endswith((".", "!", "?")) else "."
        return f"{self.finding}{end} {self.remediation}"

    @property
    def facts(self) -> Mapping[str, str]:
        """The facts of it that a trace event has."""
        return {"reason": self.code, "detail": self.finding, "remediation": self.remediation}


#: The fields of a `Dispatch` that are the entry's of the step, as it was at the dispatch.
ENTRY_OPTIONS: Final = ("cleanup_ms", "memory_limit_bytes", "silence_limit_ms", "budget")


class Dispatch(Stored):
    """The outbox: the attempt that is to run next, or runs. Its settings are frozen here.

    `sources` has the source of each setting. `enqueued` is False until the task is known to be
    created.
    """

    generation: int
    step: str
    trial: int
    not_before: AwareDatetime
    timeout_ms: int
    deadline_s: int
    max_retries: int
    retry: RetryRule | None = None  # None: the waits of all steps
    heartbeat_s: float | None = None
    cleanup_ms: int
    memory_limit_bytes: int | None = None  # None: as much as there is
    silence_limit_ms: int | None = None  # None: the handler may say nothing
    budget: SpendLimit | None = None  # of the step; None: none of its own
    queue: str
    sources: Mapping[str, str]
    nonce: str
    traceparent: str | None = None  # what the run was begun with: see `domain/traceparent.py`
    remote: bool = False  # a remote worker claims it: there is no task
    schedule_to_start_s: int | None = None  # how long a remote step may wait to be claimed
    redispatched: int = 0  # how many tasks were lost before this one, without a lease in between
    lost_since: AwareDatetime | None = None  # since when they are lost, and a process looks
    deferred: int = 0  # how many attempts in a row before this one met an outage
    seen_at: AwareDatetime | None = (
        None  # when the task was last in its queue, or a worker wanted it
    )
    enqueued: bool = False
    provisional: bool = False  # by who does not know the step: its settings are of the one before
    after_block: Block | None = None  # the block that is looked at again by this dispatch
    held: Hold | None = None  # its step is paused: it has no task, and begins once that is over
    task_of: int | None = None  # the generation whose task it runs under; None: it has its own

    @property
    def waits_since(self) -> datetime:
        """Since when it waits to begin, as far as that counts."""
        return max(self.not_before, self.seen_at or self.not_before)

    @property
    def claim_by(self) -> datetime | None:
        """By when a remote worker has to claim it; None: it is not remote."""
        if self.schedule_to_start_s is None:
            return None
        return self.waits_since + timedelta(seconds=self.schedule_to_start_s)

    @property
    def hard_limit(self) -> timedelta:
        """When a handler is ended: its agent timeout."""
        return timedelta(milliseconds=self.timeout_ms)

    @property
    def soft_limit(self) -> timedelta:
        """When a handler is to finish: its clean-up time before the hard limit."""
        return self.hard_limit - timedelta(seconds=self.cleanup_s)

    @property
    def silence_limit(self) -> timedelta | None:
        """How long a handler may say nothing; None: there is no limit."""
        limit = self.silence_limit_ms
        return None if limit is None else timedelta(milliseconds=limit)

    @property
    def cleanup_s(self) -> float:
        """How long a handler may clean up: what its step says, at most half of its hard limit."""
        return min(self.cleanup_ms, self.timeout_ms / 2) / 1000

    @property
    def under_next_generation(self) -> Dispatch:
        """The same under another generation, for a run that stops.

        A generation names one attempt or one block, and never two: a decision that names it cannot
        hit a block that its caller has not seen.
        """
        return replace(self, generation=self.generation + 1)

    def to_be_judged(self, block: Block | None) -> Dispatch:
        """Return that of a step whose output is there: it is judged here, not elsewhere.

        Args:
            block: for which it could not be judged so far; None: no block kept it from that.
        """
        return replace(self, remote=False, schedule_to_start_s=None, after_block=block)


class Attempts(Stored):
    """How many attempts ended without an output that counts, by cause."""

    failed: int = 0
    interrupted: int = 0
    expired: int = 0
    continued: int = 0
    repeated: int = 0
    deferred: int = 0

    @property
    def ended(self) -> int:
        """All of them."""
        without_fault = self.continued + self.repeated + self.deferred
        return self.failed + self.interrupted + self.expired + without_fault

    def plus(self, end: AttemptEnd) -> Attempts:
        """Return the counts with one more of `end`."""
        return replace(self, **{end.value: getattr(self, end.value) + 1})


#: Of a step that needed no further attempt: most have this very value.
NONE_ENDED: Final = make(Attempts)


class RateLimits(Stored):
    """How often providers that take no more have put a step off, and for how long in all."""

    count: int = 0
    waited_s: float = 0.0


#: Of a step that no provider has put off: most have this very value.
NO_RATE_LIMITS: Final = make(RateLimits)


class Settlement(Stored):
    """The last lease that ended by its holder's word, and the answer that was given."""

    lease_id: str
    fencing_token: int
    outcome: Outcome


class Progress(Stored):
    """How far a handler says it is: a share of 1, and a word on it."""

    fraction: float
    message: str = ""


class EarlierAttempt(Stored):
    """How long an attempt took that left no output that counts.

    Args:
        attempt: its number.
        end: what it counts as: an `AttemptEnd`, `cancelled`, or of an earlier trial `completed`.
        reason: the `Termination` that cut it short; None: none did.
        at: when it ended.
        bootstrap_seconds: see `StepRecord`; likewise the rest. Of an attempt that was cut short,
            the execution is what it had taken by then; of one whose worker fell silent, by when the
            worker was last heard of.
    """

    attempt: int
    end: str
    reason: str | None = None
    at: AwareDatetime
    bootstrap_seconds: float | None = None
    execution_seconds: float | None = None
    cold_start: bool | None = None
    first_tool: str | None = None
    tail_probe: bool | None = None  # it ran under the longest limit; None: it did not


#: So many earlier attempts of a step are kept, the latest ones.
MAX_EARLIER_ATTEMPTS: Final = 20


class StepRecord(Stored):
    """The record of one step. `attempts` counts over all its attempts.

    The times are those of the attempt that made the output, or that runs: `bootstrap_seconds` from
    its lease to its first tool call, `execution_seconds` from there to its result. `cold_start`
    says whether it was the first attempt of its process. `earlier_attempts` has those of others.

    Where there are trials, `trials` has those that are over, and `trial` says which one the output
    is of. `spend` is that of all attempts and trials; `spared` is what recorded results have spared
    those that came later.
    """

    status: RunStatus
    started_at: AwareDatetime | None = None
    completed_at: AwareDatetime | None = None
    handed_off_at: AwareDatetime | None = None
    bootstrap_seconds: float | None = None
    execution_seconds: float | None = None
    cold_start: bool | None = None
    first_tool: str | None = None
    tail_probe: bool | None = None
    earlier_attempts: tuple[EarlierAttempt, ...] | None = None
    output: str | None = None
    output_ref: str | None = None
    output_status: str | None = None
    skip_to: str | None = None  # where the output goes; None: to the next step
    summary: str | None = None  # one line on the output for people; None: its author makes none
    progress: Progress | None = None
    attempts: Attempts = NONE_ENDED
    calls: CallCount | None = None
    spend: Spend | None = None  # None: nothing
    spared: Spend | None = None
    anew: int | None = None  # how often a person had it begun anew; None: never
    rejected: int | None = None  # checkpoints that could not be used; None: none
    verdict: TrialVerdict | None = None
    trial: int | None = None
    trials: tuple[TrialRecord, ...] | None = None

    @property
    def kept_output(self) -> KeptValue | None:
        """The output, if the step has one."""
        if self.output is None and self.output_ref is None:
            return None
        return KeptValue(text=self.output, ref=self.output_ref)

    def to_run_again(self) -> StepRecord:
        """Return that of a step that is to run once more, without what its last attempt left."""
        return replace(
            self,
            status=RunStatus.PENDING,
            completed_at=None,
            bootstrap_seconds=None,
            execution_seconds=None,
            cold_start=None,
            first_tool=None,
            output=None,
            output_ref=None,
            output_status=None,
            summary=None,
            skip_to=None,
            rejected=None,
            verdict=None,
        )


class ErrorRecord(Stored):
    """What failed: at most 16 KiB, so that it never fills the manifest."""

    type: str
    code: str
    message: str
    details: str | None = None  # JSON text
    validation_issues: tuple[Mapping[str, Any], ...] = ()
    validation_issue_count: int = 0
    origin: str | None = None  # file:line (function) of the user's code
    traceback: str | None = None  # at most 8 KiB
    retry_after_s: float | None = None  # the next attempt is not to begin before
    rate_limited: bool = False  # a provider takes no more for now (429)
    permanent: bool = False  # no retry can repair it
    step: str = ""
    attempt: int = 0

    @classmethod
    def of(cls, error: LeaseholdError) -> Self:
        """Return an error of Leasehold as a run keeps it."""
        return cls(type=type(error).__name__, code=error.code, message=error.message)


class OperationRecord(Stored):
    """What a person did to the run: in which words, and what it was at then.

    `id` names the call, so that a commit whose answer was lost is known by it, and `digest` all
    words of the request; actor and reason are shortened, for people. Operation and outcome are
    texts: a version that knows more of them must not make a run unreadable here.
    """

    id: str
    digest: str
    operation: str
    actor: str
    reason: str = ""
    generation: int
    step: str
    outcome: str
    at: AwareDatetime
    recreated_as: str | None = None
    kept: KeptCounts | None = None  # of retry and recreate; None: a version before this one did it


# The trials of a run, as its manifest has them.


class TrialRule(Stored):
    """The trials of a run, as its pipeline had them when it began."""

    author: str
    reviewer: str
    max_trials: int


class TrialVerdict(Stored):
    """The verdict of a reviewer on a trial. Its findings stand in its output."""

    settled: bool
    score: float


class TrialRecord(Stored):
    """What became of a step in one trial; `verdict`: of a reviewer."""

    trial: int
    output: str | None = None
    output_ref: str | None = None
    output_status: str | None = None
    summary: str | None = None
    started_at: AwareDatetime | None = None
    completed_at: AwareDatetime | None = None
    handed_off_at: AwareDatetime | None = None
    bootstrap_seconds: float | None = None
    execution_seconds: float | None = None
    cold_start: bool | None = None
    first_tool: str | None = None
    attempts_ended: int = 0  # in this trial, without an output that counts
    verdict: TrialVerdict | None = None

    @property
    def kept_output(self) -> KeptValue | None:
        """The output, if there is one."""
        if self.output is None and self.output_ref is None:
            return None
        return KeptValue(text=self.output, ref=self.output_ref)
