"""The messages between a worker and its child: all that either can say, and within which bounds."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from leasehold.domain.delivery import MAX_OUTPUT_SUMMARY_CHARS
from leasehold.domain.json_text import MAX_OUTPUT_BYTES
from leasehold.domain.kept_checkpoint import MAX_ITERATIONS
from leasehold.domain.recorded_calls import (
    MAX_ARGUMENTS_CHARS,
    MAX_CALL_KEY_CHARS,
    MAX_FIELD_CHARS,
    MAX_REQUEST_FIELDS,
    MAX_TYPE_CHARS,
)
from leasehold.domain.result import OutputStatus, SignalRequest
from leasehold.domain.signal import MAX_MODEL_PATH_CHARS, MAX_REFUSAL_CHARS, MAX_SIGNAL_NAME_CHARS
from leasehold.domain.spend import MAX_TOKENS, MAX_USD
from leasehold.domain.status import BlockCode, Termination

#: No file of a run that crosses is larger.
MAX_FILE_BYTES: Final = 1024 * 1024 * 1024
_MAX_RECORD_BYTES: Final = 64 * 1024

#: So many calls of one child are under way at once.
MAX_CALLS_AT_ONCE: Final = 16

_Name = Annotated[str, Field(max_length=2000)]
_Key = Annotated[str, Field(min_length=1, max_length=MAX_CALL_KEY_CHARS)]
_TypeName = Annotated[str, Field(max_length=MAX_TYPE_CHARS)]
_SignalName = Annotated[str, Field(min_length=1, max_length=MAX_SIGNAL_NAME_CHARS)]
_Request = Annotated[
    Mapping[Annotated[str, Field(max_length=MAX_FIELD_CHARS)], Annotated[str, Field(max_length=32)]]
    | None,
    Field(max_length=MAX_REQUEST_FIELDS + 1),
]
_Tokens = Annotated[int, Field(ge=0, le=MAX_TOKENS)]
_Usd = Annotated[float, Field(ge=0, le=MAX_USD)]
_CallId = Annotated[int, Field(ge=1, le=2**53)]


class Message(BaseModel):
    """What crosses; no field may be missing, unknown, or of another type.

    Attributes:
        kind: which message it is.
        longest_body: how many raw bytes may follow it.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)
    longest_body: ClassVar[int] = 0
    kind: str


# -- from the worker ---------------------------------------------------------------------------


class Job(Message):
    """What the child is to do; the body is what the handler is given, JSON text.

    The handler may take `hard_s` seconds from its import on, the last `cleanup_s` to clean up. From
    `begin_by` on (`time.monotonic`), the child asks before it enters it. `reuse` attempts
    may be made in the same process, this one among them.
    """

    longest_body: ClassVar[int] = 2 * MAX_OUTPUT_BYTES
    kind: Literal["job"] = "job"
    run_id: str
    life: str
    step: str
    step_type: str
    handler: str
    entry_actions: tuple[str, ...]
    attempt: int
    trial: int
    non_retryable: tuple[str, ...]
    hard_s: float
    cleanup_s: float
    furthest: Mapping[str, int]
    has_checkpoint: bool
    has_budget: bool
    note: str | None
    traceparent: str | None
    begin_by: Annotated[float, Field(allow_inf_nan=False)]
    levels: Mapping[str, int]
    reuse: int


class Stop(Message):
    """The attempt is to end."""

    kind: Literal["stop"] = "stop"
    reason: Annotated[Termination, Field(strict=False)]


class SoftLimitNote(Message):
    """The soft limit is reached; the process is killed at `hard_at`, a time as in `Imported`."""

    kind: Literal["soft_limit"] = "soft_limit"
    reason: Annotated[Termination, Field(strict=False)]
    hard_at: Annotated[float, Field(allow_inf_nan=False)]


class StacksNote(Message):
    """The stacks are wanted, and the handler is to go on; by `by`, a time as in `Imported`."""

    kind: Literal["stacks"] = "stacks"
    by: Annotated[float, Field(allow_inf_nan=False)]


class Answer(Message):
    """What a call returns; long texts and files are in the body."""

    longest_body: ClassVar[int] = MAX_FILE_BYTES
    kind: Literal["answer"] = "answer"
    call: _CallId
    value: Any = None


class Refusal(Message):
    """What a call raises. `code` is that of an error of Leasehold, or None."""

    kind: Literal["refusal"] = "refusal"
    call: _CallId
    type: str
    code: str | None
    message: str
    details: Mapping[str, Any] = {}


# -- from the child ----------------------------------------------------------------------------


class Imported(Message):
    """The handler is imported, and its time begins.

    `at` is a time of the clock that the processes of a machine share (`time.monotonic`); `is_fit`
    says that a process which has imported it may be forked.
    """

    kind: Literal["imported"] = "imported"
    is_fit: bool
    at: Annotated[float, Field(allow_inf_nan=False)]


class Call(Message):
    """A call, which is answered by `Answer` or `Refusal` with its number."""

    call: _CallId = 1


class CheckLeaseCall(Call):
    """May the handler be entered? Its lease may be over by now."""

    kind: Literal["check_lease"] = "check_lease"


class CheckBudgetCall(Call):
    """May the handler spend more?"""

    kind: Literal["check_budget"] = "check_budget"


class KeptCheckpointCall(Call):
    """What did an earlier attempt keep?"""

    kind: Literal["kept_checkpoint"] = "kept_checkpoint"


class CheckpointCall(Call):
    """Keep partial results: the body, JSON text."""

    longest_body: ClassVar[int] = MAX_OUTPUT_BYTES
    kind: Literal["checkpoint"] = "checkpoint"
    iteration_count: Annotated[int, Field(ge=0, le=MAX_ITERATIONS)]
    phase: Annotated[str, Field(max_length=128)]


class RejectCall(Call):
    """Drop what an earlier attempt kept: it cannot be used."""

    kind: Literal["reject_checkpoint"] = "reject_checkpoint"
    why: Annotated[str, Field(max_length=500)]


class FindResultCall(Call):
    """Request for a recorded result."""

    kind: Literal["find_result"] = "find_result"
    key: _Key
    type: _TypeName
    request: _Request = None
    on_unknown: Literal["repeat", "ask", "fail"] = "repeat"
    arguments: Annotated[str, Field(max_length=MAX_ARGUMENTS_CHARS)] = ""
    keep: bool = False


class ForgetIntentCall(Call):
    """The call that was to be made has raised."""

    kind: Literal["forget_intent"] = "forget_intent"
    key: _Key


class RecordResultCall(Call):
    """Record a result: the body, JSON text."""

    longest_body: ClassVar[int] = MAX_OUTPUT_BYTES
    kind: Literal["record_result"] = "record_result"
    key: _Key
    type: _TypeName
    keep: bool
    request: _Request = None
    tokens: _Tokens = 0
    usd: _Usd = 0.0


class SignalCall(Call):
    """Request for the signal of a name."""

    kind: Literal["find_signal"] = "find_signal"
    name: _SignalName


class TakeLimitCall(Call):
    """Request for a limit of the step."""

    kind: Literal["take_limit"] = "take_limit"
    name: _Name


class FreeLimitCall(Call):
    """The limit is free again; its provider takes no more for this time."""

    kind: Literal["free_limit"] = "free_limit"
    name: _Name
    retry_after_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class OutputCall(Call):
    """What is the output of an earlier step?"""

    kind: Literal["output_of"] = "output_of"
    step_type: _Name


class StatusCall(Call):
    """What is the status of that?"""

    kind: Literal["status_of"] = "status_of"
    step_type: _Name


class FindingsCall(Call):
    """What did the reviewer of the trial before find?"""

    kind: Literal["findings"] = "findings"


class PutCall(Call):
    """Store a file: the body."""

    longest_body: ClassVar[int] = MAX_FILE_BYTES
    kind: Literal["put"] = "put"
    name: _Name


class GetCall(Call):
    """What is in a file?"""

    kind: Literal["get"] = "get"
    name: _Name


class ExistsCall(Call):
    """Is there such a file?"""

    kind: Literal["exists"] = "exists"
    name: _Name


class ListCall(Call):
    """Which files are there?"""

    kind: Literal["list"] = "list"


class ProgressNote(Message):
    """How far the handler says that it is."""

    kind: Literal["progress"] = "progress"
    fraction: Annotated[float, Field(ge=0, le=1)]
    message: Annotated[str, Field(max_length=200)]


class SpendNote(Message):
    """An amount that the handler has spent, beside those before."""

    kind: Literal["spend"] = "spend"
    tokens: _Tokens
    usd: _Usd


class BootstrapNote(Message):
    """The handler makes its first tool call; `at` is a time as in `Imported`."""

    kind: Literal["bootstrap"] = "bootstrap"
    tool: Annotated[str, Field(max_length=200)]
    at: Annotated[float, Field(allow_inf_nan=False)]


class ExecutionNote(Message):
    """The handler has its result."""

    kind: Literal["execution"] = "execution"
    at: Annotated[float, Field(allow_inf_nan=False)]


class LogLine(Message):
    """A log record."""

    kind: Literal["log"] = "log"
    logger: Annotated[str, Field(max_length=200)]
    level: Annotated[int, Field(ge=0, le=1000)]
    message: Annotated[str, Field(max_length=8000)]
    error: Annotated[str, Field(max_length=8000)] = ""
    created: Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
    path: Annotated[str, Field(max_length=400)] = ""
    line: Annotated[int, Field(ge=0, le=2**31)] = 0
    function: Annotated[str, Field(max_length=200)] = ""
    thread: Annotated[str, Field(max_length=200)] = ""
    facts: Annotated[Mapping[_Name, str | int | float | bool | None], Field(max_length=20)] = {}


class FinishedNote(Message):
    """The handler returned an output that fits: the body, JSON text."""

    longest_body: ClassVar[int] = MAX_OUTPUT_BYTES
    kind: Literal["finished"] = "finished"
    status: OutputStatus
    summary: Annotated[str, Field(max_length=MAX_OUTPUT_SUMMARY_CHARS)] = ""
    skip_to: _Name | None = None


class FailedNote(Message):
    """The attempt failed: the body is the error, as a run keeps it.

    `has_raised`: the handler raised; else what it was given, or returned, does not fit.
    """

    longest_body: ClassVar[int] = _MAX_RECORD_BYTES
    kind: Literal["failed"] = "failed"
    permanent: bool
    has_raised: bool
    lacked_memory: bool = False


class UnableNote(Message):
    """The code that is deployed cannot do it: the body is the error, as a run keeps it."""

    longest_body: ClassVar[int] = _MAX_RECORD_BYTES
    kind: Literal["unable"] = "unable"
    code: Literal[
        BlockCode.HANDLER_UNAVAILABLE, BlockCode.HANDLER_MISTAKE, BlockCode.INPUT_MISMATCH
    ]


class DeferredNote(Message):
    """The attempt met an outage."""

    kind: Literal["deferred"] = "deferred"
    reason: Literal[Termination.STORE_UNAVAILABLE, Termination.THREAD_UNAVAILABLE]
    detail: Annotated[str, Field(max_length=1000)]


class WantedSignal(Message):
    """The signal that the handler waits for; see `SignalRequest`."""

    kind: Literal["signal"] = "signal"
    name: _SignalName
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    otherwise: Literal["block", "continue", "fail"]
    model: Annotated[str, Field(max_length=MAX_MODEL_PATH_CHARS)]
    refused: Annotated[str, Field(max_length=MAX_REFUSAL_CHARS)]

    def to_request(self) -> SignalRequest:
        """Return it as the settlement takes it."""
        return SignalRequest(self.name, self.timeout_s, self.otherwise, self.model, self.refused)


class ContinuedNote(Message):
    """The attempt is to be continued by the next one."""

    kind: Literal["continued"] = "continued"
    at_checkpoint: bool
    over_budget: Annotated[str, Field(max_length=2000)]
    wanted: WantedSignal | None = None


class LeftNote(Message):
    """After the last word: what the attempt has left in its process; empty: nothing.

    Then nothing of it runs on, and what it printed is in its pipe. If it was not the last one, the
    process is as it was before it, too.
    """

    kind: Literal["left"] = "left"
    what: Annotated[str, Field(max_length=500)]


FromWorker = Job | Stop | SoftLimitNote | StacksNote | Answer | Refusal
AnyCall = (
    CheckLeaseCall
    | CheckBudgetCall
    | KeptCheckpointCall
    | CheckpointCall
    | RejectCall
    | FindResultCall
    | ForgetIntentCall
    | RecordResultCall
    | SignalCall
    | TakeLimitCall
    | FreeLimitCall
    | OutputCall
    | StatusCall
    | FindingsCall
    | PutCall
    | GetCall
    | ExistsCall
    | ListCall
)
Note = Imported | ProgressNote | SpendNote | BootstrapNote | ExecutionNote | LogLine | LeftNote
Ending = FinishedNote | FailedNote | UnableNote | DeferredNote | ContinuedNote
FromChild = AnyCall | Note | Ending


def from_worker(header: bytes) -> Message:
    """Return what the worker says; ValueError: nothing that it can say."""
    return _worker_adapter().validate_json(header)


def build_readers() -> None:
    """Build what reads and writes all messages, which each fork would else do anew.

    Parts that the libraries build at their first use are built, too.
    """
    for message in (*get_args(FromWorker), *get_args(FromChild)):
        message.model_rebuild()
    _child_adapter()
    from_worker(StacksNote(by=0.0).model_dump_json().encode())


def from_child(header: bytes) -> Message:
    """Return what a child says; ValueError: nothing that it can say."""
    return _child_adapter().validate_json(header)


@functools.cache
def _worker_adapter() -> TypeAdapter[FromWorker]:
    return TypeAdapter(Annotated[FromWorker, Field(discriminator="kind")])


@functools.cache
def _child_adapter() -> TypeAdapter[FromChild]:
    return TypeAdapter(Annotated[FromChild, Field(discriminator="kind")])
