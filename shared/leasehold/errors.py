"""Every error of Leasehold: a code for machines, a sentence for people, the facts as fields.

The class docstring says what happened; `text` is the line a person gets, filled from the facts.
The last section has the errors that handlers and gates raise, and those with which Leasehold ends
an attempt: a handler lets these pass.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final, Self

#: Characters of a refused value, or of a name that callers gave, that an error repeats.
MAX_VALUE_SHOWN_CHARS: Final = 200

#: The user and the password in an address, also in one that cannot be parsed.
_USER_INFO: Final = re.compile(
    r"(?<=://)(?:[^\s/?#]{1,500}|[^\s/?#:@]{0,100}:(?!\d{1,5}[/?#])\S{0,500})@"
)


class LeaseholdError(Exception):
    """The base of all errors of Leasehold.

    Args:
        details: the facts of the error; its sentence is made of them.

    Attributes:
        code: what failed, for programs, such as `unknown_run`.
        message: what failed and what to do, for people; `str(error)` has the code before it.
        details: the facts, as `UnknownRunError(run_id=…).details["run_id"]`.
        retryable: whether the same call may succeed later, unchanged.
    """

    code: ClassVar[str] = "error"
    text: ClassVar[str] = ""
    retryable: ClassVar[bool] = False  # True: the same call may succeed later, unchanged
    permanent: ClassVar[bool] = False  # True: no retry of the handler that raises it repairs it
    is_mistake: ClassVar[bool] = False  # True: of the handler's code; other code repairs it

    def __init__(self, **details: Any) -> None:
        super().__init__(without_user(self.text.format(**details)))
        self.details: dict[str, Any] = {
            name: without_user(value) if isinstance(value, str) else value
            for name, value in details.items()
        }

    @classmethod
    def restored(cls, message: str, details: Mapping[str, Any]) -> Self:
        """Return the error that another process raised, in the words of its version."""
        error = cls.__new__(cls)
        Exception.__init__(error, message)
        error.details = dict(details)
        return error

    @property
    def message(self) -> str:
        """The sentence without its code."""
        return str(self.args[0])

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"


def without_user(text: str) -> str:
    """Return the text with no user and no password in its addresses: errors are shown and kept."""
    return _USER_INFO.sub("[redacted]@", text) if "@" in text else text


# -- configuration -----------------------------------------------------------------------------


class SettingError(LeaseholdError):
    """A setting has a value that cannot be used."""

    code = "bad_setting"
    text = "{name} is {value!r}; allowed: {allowed}."


class SettingsFileError(LeaseholdError):
    """A file with settings cannot be used: `.env`, pyproject.toml, or that of LEASEHOLD_CONFIG."""

    code = "bad_settings_file"
    text = "{where}: {problem}."


class UnsetSettingError(SettingError):
    """A required setting is not set, or its default cannot be used here."""

    code = "setting_not_set"
    text = "{name} is not set, and {problem}; set it to {allowed}."


class MetricsUnavailableError(LeaseholdError):
    """The server with the durations of attempts did not answer, or its answer is unusable."""

    code = "metrics_unavailable"
    text = "the metrics source {source} cannot be used: {problem}; the last limits stay in force."


class MissingExtraError(LeaseholdError):
    """An optional package is not installed."""

    code = "missing_extra"
    text = "{what} needs {module}, which is not installed. Type: pip install {install}"


class CatalogError(LeaseholdError):
    """The catalog of steps and pipelines cannot be used."""

    code = "bad_catalog"
    text = "LEASEHOLD_CATALOG {catalog!r} cannot be used: {problem}."


class MissingCatalogError(CatalogError):
    """No catalog was found."""

    code = "missing_catalog"
    text = (
        "There is no catalog: {catalog!r} ({source}) is not a module in {folder} or on the Python "
        "path. Type `leasehold init FOLDER` for a new project, or set LEASEHOLD_CATALOG to your "
        "module with STEPS and PIPELINES."
    )


class DuplicateKeyError(LeaseholdError):
    """A registry names the same key twice."""

    code = "duplicate_key"
    text = "The {registry} registry names {key!r} twice; each key is allowed once."


class InvalidEntryError(LeaseholdError):
    """A registry entry has a field that cannot be used."""

    code = "invalid_entry"
    text = "{field} of {key!r} in the {registry} registry is {value!r}; allowed: {allowed}."


class LimitKeyError(LeaseholdError):
    """A limit has no key for a run."""

    code = "limit_key"
    is_mistake = True
    text = "Limit {limit!r} of step {step!r} has no key for this run: {part} {problem}."


class UnknownLimitError(LeaseholdError):
    """A handler asks for a limit that its step does not declare."""

    code = "limit_unknown"
    text = (
        "ctx.limit({limit!r}): step {step!r} has no Limit({limit!r}, per_call=True); "
        "known: {known}."
    )
    is_mistake = True


class LimitFieldError(LeaseholdError):
    """The key of a limit names a field that the input of its step does not have."""

    code = "limit_field"
    text = (
        "Limit {limit!r} of step {step!r} names the field {field!r}, which {model} does not have; "
        "it has {known}."
    )


class PlatformLimitError(LeaseholdError):
    """Steps have limits that their platform does not allow."""

    code = "platform_limit"
    text = (
        "Cloud Tasks waits for an attempt at most {most_s} s, and these steps have a longer "
        "dispatch deadline: {steps}. Give them a shorter one and checkpoints, or run them where 7 "
        "days are allowed: on `leasehold serve`, in process, or on remote workers "
        "(handler='remote')."
    )


class ChainError(LeaseholdError):
    """A step of a pipeline can never take the output of the step before it."""

    code = "chain_broken"
    text = (
        "Pipeline {pipeline!r}: step {step!r} gives {output}, and step {following!r} takes "
        "{given}: {problem}. Change one of the two models; a field with a default may be left out."
    )


class GateModelError(LeaseholdError):
    """A gate can never take the output that it is to check."""

    code = "gate_model"
    text = (
        "Gate {gate!r} of step {step!r} takes {given}, and the step gives {output}: {problem}. "
        "Change one of the two models."
    )


class ReviewerModelError(LeaseholdError):
    """The reviewer of a pipeline's trials can never give a verdict."""

    code = "reviewer_model"
    text = (
        "Pipeline {pipeline!r}: step {step!r} reviews its trials, and gives {output}: {problem}. "
        "A verdict has settled (true or false), score (a number) and findings (a list)."
    )


class HandlerNotFoundError(LeaseholdError):
    """A handler path does not lead to a function that takes (ctx, given)."""

    code = "handler_not_found"
    text = "Handler {handler!r} of step {step!r} does not resolve: {problem}."

    def __init__(self, **details: Any) -> None:
        super().__init__(**details)
        kind, _, gate = str(details["step"]).partition(" ")
        if gate:  # no name of a step has a blank
            words = self.message.replace(f"step '{kind} {gate}'", f"{kind} {gate!r}", 1)
            what = "Summary" if kind == "pipeline" else "Check"
            self.args = (words.replace("Handler", what, 1),)


class EntryActionNotFoundError(HandlerNotFoundError):
    """The path of an entry action does not lead to a function that takes (ctx, given)."""

    code = "entry_action_not_found"
    text = "Entry action {action!r} of step {step!r} does not resolve: {problem}."


class SenderNotFoundError(LeaseholdError):
    """The path of a channel does not lead to a function that takes (message, timeout)."""

    code = "sender_not_found"
    text = "Sender {sender!r} of channel {channel!r} does not resolve: {problem}."


# -- requests ----------------------------------------------------------------------------------


class SkipRefusedError(LeaseholdError):
    """The output of a step skips to a place that its pipeline does not allow."""

    code = "skip_refused"
    text = "Step {step!r} skips to {skip_to!r}; allowed: {allowed}."


class UnknownKeyError(LeaseholdError):
    """A registry does not have that key."""

    code = "unknown_key"
    text = "{key!r} is not in the {registry} registry; known: {known}."


class UnknownPipelineError(LeaseholdError):
    """No pipeline has that name."""

    code = "unknown_pipeline"
    text = "Pipeline {pipeline!r} is not known; known: {known}."


class UnknownRunError(LeaseholdError):
    """No run has that id."""

    code = "unknown_run"
    text = "Run {run_id!r} is not in the store; `leasehold runs` lists those that are."


class UnknownStepError(LeaseholdError):
    """The plan of the run has no such step."""

    code = "unknown_step"
    text = "Run {run_id} has no step {step!r}; it has {known}."


class UnknownFileError(LeaseholdError):
    """No handler of the run has stored a file of that name."""

    code = "unknown_file"
    text = "Run {run_id} has no file {name!r}; `leasehold files {run_id}` lists those it has."


class UnreadableRunError(LeaseholdError):
    """The document of a run is not one that this version can read."""

    code = "unreadable_run"
    text = "Run {run_id} cannot be read by this version: {problem}. It is left as it is."


class InvalidInputError(LeaseholdError):
    """The input of a run does not fit the model of its first step."""

    code = "invalid_input"
    text = "The input of pipeline {pipeline!r} does not fit {model}: {problem}."


class InvalidRequestError(LeaseholdError):
    """A field of a request has a value that is not allowed."""

    code = "invalid_request"
    text = "{field} is {value!r}; allowed: {allowed}."
    is_mistake = True


class CheckpointMisusedError(LeaseholdError):
    """A handler stores checkpoints so that one would replace another."""

    code = "checkpoint_misused"
    text = "{problem}. {remedy}."
    is_mistake = True


class TooLargeError(LeaseholdError):
    """A value is larger than Leasehold keeps."""

    code = "too_large"
    text = "{what} has {size} bytes; allowed: at most {limit}. Pass a file's name in its place."
    is_mistake = True


class BodyEncodingError(LeaseholdError):
    """The body of a request is compressed, or encoded in another way."""

    code = "body_encoding"
    text = "The body has {header} {encoding!r}; allowed: plain JSON, without this header."
    permanent = True


class CallResultError(LeaseholdError):
    """A result of `ctx.once` is not of the type that its call is annotated to return."""

    code = "call_result"
    text = "The result of the call {key!r} {problem}."


class CallMisfitError(CallResultError):
    """A recorded result of `ctx.once` does not fit what the call returns now."""

    code = "call_misfit"
    is_mistake = True


class UnrestorableResultError(CallResultError):
    """A result of `ctx.once` is not JSON, or would come back as another type."""

    code = "unrestorable_result"
    is_mistake = True


class CallKeyReusedError(LeaseholdError):
    """A key of `ctx.once` was used for two calls of one attempt."""

    code = "call_key_reused"
    text = (
        "The key {key!r} stands for another call of this attempt, or for other arguments; "
        "give each call its own key."
    )
    is_mistake = True


class CallVariesError(LeaseholdError):
    """The request of a recorded call differs in each attempt, so each attempt pays for it again."""

    code = "call_varies"
    text = (
        "The call {key!r} was paid for again in {count} attempts of the same code, because its "
        "{field} differed each time. Leave values that differ in each attempt, such as times and "
        "random ids, out of the request and the prompt."
    )
    is_mistake = True


class TooManyCallsError(LeaseholdError):
    """A step has no room for one more recorded result."""

    code = "too_many_calls"
    text = (
        "There is no room for the result of the call {key!r}: a step keeps at most {limit:,}. "
        "Make several calls under one key, or do the work in several steps."
    )
    permanent = True


class CallUnconfirmedError(LeaseholdError):
    """An attempt ended between a call that must not be repeated and its record."""

    code = "call_unconfirmed"
    text = (
        "It is not known whether the call {key!r} has happened: attempt {attempt} ended between "
        "the call and its record. Find out, and recreate the run: it waits for the answer."
    )
    permanent = True


class UnknownSignalError(LeaseholdError):
    """Nothing of the run waits for a signal of that name."""

    code = "unknown_signal"
    text = "Nothing in run {run_id} waits for a signal {name!r}; known: {known}."


class SignalNotAwaitedError(LeaseholdError):
    """The run no longer takes the signal: it has ended, or went on without it."""

    code = "signal_not_awaited"
    text = "Run {run_id} takes no signal {name!r}: {problem}."


class SignalIdReusedError(LeaseholdError):
    """The id of a signal came before, with another name or value."""

    code = "signal_id_reused"
    text = (
        "Run {run_id} already has a signal with the id {id!r}, named {name!r}; its name or value "
        "differs from yours. Use a new id."
    )


class InvalidSignalError(LeaseholdError):
    """The value of a signal does not fit the model of its wait."""

    code = "invalid_signal"
    text = "The value does not fit the signal {name!r} of run {run_id}: {problem}"


class FileTooLargeError(LeaseholdError):
    """A file is larger than one call of a remote worker carries."""

    code = "file_too_large"
    text = "File {name!r} has {size} bytes; a call carries at most {limit}. {remedy}"


class IdempotencyKeyReusedError(LeaseholdError):
    """The idempotency key belongs to a run that was started with other values."""

    code = "idempotency_key_reused"
    text = (
        "Idempotency key {key!r} belongs to run {run_id} of pipeline {pipeline!r}, "
        "started with another {differs}; use a new key."
    )


class RunBeingPurgedError(LeaseholdError):
    """The run of an idempotency key is being deleted; after that, the key starts a new run."""

    code = "run_being_purged"
    text = (
        "Run {run_id} of idempotency key {key!r} is being purged; after that, the key "
        "can start a new run. Try again; if the purge was interrupted, repeat it first."
    )
    retryable = True


class NotAllowedError(LeaseholdError):
    """The state of the run forbids the operation."""

    code = "not_allowed"
    text = "Cannot {operation} run {run_id}: it is {state}; allowed when it is {allowed}."


class BudgetUsedUpError(LeaseholdError):
    """The run has spent all that it may, so it cannot go on."""

    code = "budget_used_up"
    text = (
        "Run {run_id} cannot go on: {finding} Give it more, such as "
        "`leasehold resume {run_id} {example}` (`budget` over HTTP)."
    )


class StepNotCompletedError(LeaseholdError):
    """The step has no output: it is not completed, and may never be."""

    code = "step_not_completed"
    text = "Step {step} of run {run_id} has no output: it is {status}, and the run {state}."


class StateChangedError(LeaseholdError):
    """The run is no longer in the state that the operation was meant for."""

    code = "state_changed"
    text = (
        "Cannot {operation} run {run_id}: {problem}; "
        "the run is now {state} at step {step}, generation {generation}. {remedy}"
    )


class PartialOutputError(LeaseholdError):
    """A run is to be recreated after a PARTIAL output, which is not kept."""

    code = "partial_output"
    text = (
        "Cannot recreate run {run_id} from step {from_step}: the output of step {step} is PARTIAL, "
        "and only outputs of status SUCCESS are kept. Begin at step {step} (--from-step {step}), "
        "or keep it all the same (--keep-partial; keepPartial over HTTP)."
    )


class CatalogMisfitError(LeaseholdError):
    """A run could not continue with the current catalog, so it is not changed."""

    code = "catalog_misfit"
    text = (
        "Cannot {operation} run {run_id}: with the catalog in force, step {step!r} could not run: "
        "{problem}. Nothing was changed; correct the code and try again."
    )


class AlreadyRecreatedError(LeaseholdError):
    """The run was recreated before, and must be recreated only once."""

    code = "already_recreated"
    text = "Run {run_id} was recreated before, as {recreated_as}: look at that run."


# -- leases and the lifecycle ------------------------------------------------------------------


class ImpossibleEventError(LeaseholdError):
    """The lifecycle has no such event in this status."""

    code = "impossible_event"
    text = "A run that is {status} cannot have {event}."


class LeaseHeldError(LeaseholdError):
    """Another worker holds the lease on this run."""

    code = "lease_held"
    text = "Run {run_id} is held by {holder} until {expires_at}, unless that worker renews it."
    retryable = True


class NothingToClaimError(LeaseholdError):
    """There is no step that a remote worker could take now."""

    code = "nothing_to_claim"
    text = "Nothing to claim: {problem}."
    retryable = True


class LeaseLostError(LeaseholdError):
    """The caller's lease is not, or no longer, the current lease of the run."""

    code = "lease_lost"
    text = "Lease {lease_id} of run {run_id} is not held any more: {known}. {effect}"

    def __init__(self, *, effect: str = "Nothing was changed.", **details: Any) -> None:
        super().__init__(effect=effect, **details)
        del self.details["effect"]  # it is for people


class DispatchDeadlineError(LeaseholdError):
    """An attempt was still running at its dispatch deadline, without an output."""

    code = "dispatch_deadline_exceeded"
    text = (
        "Attempt {attempt} of step {step} was still running at its dispatch deadline of "
        "{deadline_s} s, without an output. Let the handler end in time (ctx.time_left), keep "
        "what it has (ctx.checkpoint), or raise the deadline of the step."
    )
    retryable = True


class AgentTimeoutError(LeaseholdError):
    """A handler did not end within its agent timeout."""

    code = "agent_timeout_exceeded"
    text = (
        "Attempt {attempt} of step {step} did not return within its agent timeout of "
        "{timeout_s:g} s, whose last part (cleanup_ttl) is for cleaning up. "
        "Let the handler end in time (ctx.time_left), keep what it has (ctx.checkpoint), or raise "
        "the agent timeout of the step."
    )
    retryable = True


class SilenceLimitError(LeaseholdError):
    """A handler gave no sign of progress for longer than its step allows."""

    code = "silence_limit_exceeded"
    text = (
        "Attempt {attempt} of step {step} made no progress, call, checkpoint or output for its "
        "silence limit of {silence_s:g} s. Find out where it hangs, report progress more often "
        "(ctx.progress), or raise the silence limit of the step."
    )
    retryable = True


class ItemsRefusedError(LeaseholdError):
    """A step that works item by item cannot use its input, or the output of a batch."""

    code = "items_refused"
    text = "Step {step} cannot work item by item: {problem}."


class NoProgressError(LeaseholdError):
    """A step was continued again and again without progress."""

    code = "no_progress"
    text = (
        "Step {step} was continued {count} times in a row without a new iteration, the last time "
        "in attempt {attempt}. Store more iterations (ctx.checkpoint) before ctx.continue_later, "
        "or make each iteration shorter than the agent timeout of {timeout_s:g} s."
    )
    retryable = True


class MemoryLimitError(LeaseholdError):
    """A handler took more memory than its step may have."""

    code = "memory_limit_exceeded"
    text = (
        "Attempt {attempt} of step {step} took {taken_mib} MiB of memory; its limit is {limit_mib} "
        "MiB. Let the handler hold less at a time, or raise the memory limit of the step."
    )
    retryable = True


class HandlerDiedError(LeaseholdError):
    """The process of a handler ended before the handler did."""

    code = "handler_died"
    text = "The process of step {step} ended before its handler returned: {problem}."
    retryable = True


class HandlerGarbledError(LeaseholdError):
    """The process of a handler sent an invalid message, or an incomplete one."""

    code = "handler_garbled"
    text = "The process of step {step} sent an invalid message: {problem}."
    retryable = True


class ForkServerError(LeaseholdError):
    """No process was available for an attempt; it is deferred."""

    code = "no_process"
    text = "There is no process for handler {handler}: {problem}."
    retryable = True


class InvalidVerdictError(LeaseholdError):
    """The output of a reviewer has no verdict that can be used."""

    code = "invalid_verdict"
    text = "The output of reviewer {step} has no verdict: {problem}."
    retryable = True  # the next attempt may give another answer


class InvalidOutputError(LeaseholdError):
    """An output that a remote worker or a person gave does not fit; nothing was changed."""

    code = "invalid_output"
    text = "{problem} Nothing was changed; correct it and send it again."


# -- announcements -----------------------------------------------------------------------------


class UnknownDeliveryError(LeaseholdError):
    """The run has no delivery to the channel."""

    code = "unknown_delivery"
    text = "No delivery of run {run_id} to channel {channel!r} is known."


class DeliveryClaimedError(LeaseholdError):
    """Another process is sending this announcement."""

    code = "delivery_claimed"
    text = "Run {run_id} is being announced to channel {channel}; try again in a minute."
    retryable = True


class UnreadableDeliveryError(LeaseholdError):
    """The document of a delivery is not one that this version can read."""

    code = "unreadable_delivery"
    text = "Delivery {delivery} cannot be read by this version: {problem}. It is left as it is."


class UnreadableScheduleError(LeaseholdError):
    """The document of a schedule is not one that this version can read."""

    code = "unreadable_schedule"
    text = "Schedule {schedule} cannot be read by this version: {problem}. It is left as it is."


class ChannelRefusedError(LeaseholdError):
    """A provider refused an announcement for good."""

    code = "channel_refused"
    text = "Channel {channel} refused the announcement: {problem}."


class ChannelUnavailableError(LeaseholdError):
    """A provider did not take an announcement, and may later."""

    code = "channel_unavailable"
    text = "Channel {channel} cannot take the announcement now: {problem}."
    retryable = True

    @property
    def retry_after(self) -> timedelta | None:
        """How long the provider asks to wait; None: it does not say."""
        seconds = self.details.get("retry_after_s")
        return None if seconds is None else timedelta(seconds=seconds)


class ChannelUnansweredError(ChannelUnavailableError):
    """It is unknown whether a provider took an announcement."""

    code = "channel_unanswered"
    text = "Channel {channel} did not answer, and may have the announcement: {problem}."


# -- stores ------------------------------------------------------------------------------------


class StoreUnavailableError(LeaseholdError):
    """The store did not accept or return a document."""

    code = "store_unavailable"
    text = "The store {store} does not answer: {problem}."
    retryable = True


class NotReadyError(LeaseholdError):
    """This process cannot work now: its store, its artifacts or its timer does not answer."""

    code = "not_ready"
    text = "Not ready: {problem}."
    retryable = True


class StoreVersionError(LeaseholdError):
    """The store was written by a newer version of Leasehold, or by one that was never released."""

    code = "store_version"
    text = (
        "The store {store} has schema version {found}; this Leasehold reads version {known}. "
        "{remedy}, or choose another LEASEHOLD_STORE."
    )


class VersionConflictError(LeaseholdError):
    """A document is no longer at the version that was named."""

    code = "version_conflict"
    text = "{ref} was changed by another process; nothing was written."
    retryable = True


class DocumentExistsError(LeaseholdError):
    """A document that was to be created exists already."""

    code = "document_exists"
    text = "{ref} exists already; nothing was written."


class PurgeCutOffError(LeaseholdError):
    """A purge was interrupted."""

    code = "purge_cut_off"
    text = (
        "The purge was interrupted; runs deleted so far: {purged}. {problem} Repeat it to continue."
    )
    retryable = True


class UnauthenticatedError(LeaseholdError):
    """A function was called without a token that says who calls."""

    code = "unauthenticated"
    text = (
        "The caller is not known: {problem}. Send the header Authorization: Bearer TOKEN; commands "
        "send what LEASEHOLD_TOKEN has."
    )


class TooManyAttemptsError(LeaseholdError):
    """Too many wrong tokens came from one address: for a moment its tokens are refused unread."""

    code = "too_many_attempts"
    text = "Too many wrong tokens came from this address; ask again in a second."
    retryable = True


class CallerNotAllowedError(LeaseholdError):
    """The account may not call this function or do this, or its token was made for another one."""

    code = "caller_not_allowed"
    text = "This caller is not allowed: {problem}."


class CertificatesUnavailableError(LeaseholdError):
    """Google's certificates cannot be read, so no token can be checked."""

    code = "certificates_unavailable"
    text = "Tokens cannot be checked now: {problem}."
    retryable = True


class ServerUnreachableError(LeaseholdError):
    """The server does not answer. If `sent` is true, it may have received the request."""

    code = "server_unreachable"
    text = "The server {url} does not answer: {problem}"
    retryable = True


class ServerRefusedError(LeaseholdError):
    """The server answers, but not as the HTTP API of this version does."""

    code = "server_refused"
    text = "{message}"


class RunUnfinishedError(LeaseholdError):
    """The run has no result yet: it moves, or waits for a person."""

    code = "run_unfinished"
    text = "Run {run_id} has no result yet: it is {state} at step {step}{why}. {remedy}"
    retryable = True


class RunNotCompletedError(LeaseholdError):
    """The run ended without completing, so it has no result; `error` is the last failure."""

    code = "run_not_completed"
    text = "Run {run_id} has no result: it is {state} at step {step}{why}."


class ResultMismatchError(LeaseholdError):
    """The output of a run does not fit the model with which the caller reads it."""

    code = "result_mismatch"
    text = "The output of run {run_id} does not fit {model}: {problem}."


class ArtifactNameError(LeaseholdError):
    """An artifact name could leave its run, is taken by a folder, or cannot be stored."""

    code = "artifact_name"
    text = "Artifact name {name!r} is refused: {problem}."
    is_mistake = True


class ArtifactNotFoundError(LeaseholdError):
    """No artifact has that name."""

    code = "artifact_not_found"
    text = "Artifact {name!r} is not in {store}."


class DamagedFileError(LeaseholdError):
    """A temporary file of a step is not the one that was stored, or was changed or cut off."""

    code = "damaged_file"
    text = "File {name!r} is not what was stored: {problem}."


class OutputGoneError(LeaseholdError):
    """A recorded output is no longer in the artifact store."""

    code = "output_gone"
    text = (
        "The output of step {step} of run {run_id} is missing: {problem}. If the artifacts were "
        "moved, set LEASEHOLD_ARTIFACTS to their new place; else recreate the run from that step."
    )


# -- what handlers raise -----------------------------------------------------------------------


class AgentClientError(Exception):
    """An agent or its provider failed; the attempt is retried.

    Args:
        message: what failed, for people.
        code: what failed, for machines, as the provider names it.
        details: whatever helps to find the cause; plain JSON values, kept with the error. A list
            is kept as `validationIssues`: the first 50, and how many there are.
        retry_after: seconds, a timedelta, or the text of a header `Retry-After`: the next attempt
            is not to begin before. More than a day is a day, and any value but a time above 0 is
            ignored. None: as the provider's answer that caused the error says, else the step's
            backoff.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "agent_error",
        details: Sequence[Any] | Mapping[str, Any] = (),
        retry_after: float | timedelta | str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after
        self.details = dict(details) if isinstance(details, Mapping) else list(details)


class PermanentError(Exception):
    """The step cannot succeed, however often it is retried.

    Args:
        message: what failed and what to do about it, for people.
        code: what failed, for machines.
    """

    def __init__(self, message: str, *, code: str = "permanent") -> None:
        super().__init__(message)
        self.code = code


class WaitTimedOutError(PermanentError):
    """No signal came in the time of a wait whose `otherwise` is `fail`.

    Args:
        name: of the signal.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"no signal {name!r} came in time", code="wait_timed_out")


class GatePolicyFailure(Exception):  # noqa: N818 - a failure of the output, not of the program
    """A gate refuses an output: the run is blocked until a person decides.

    Args:
        check_id: which check it was, for machines.
        finding: what it found, for people.
        remediation: what to do about it.
    """

    def __init__(self, check_id: str, finding: str, remediation: str) -> None:
        super().__init__(f"{check_id}: {finding}")
        self.check_id = check_id
        self.finding = finding
        self.remediation = remediation


class SoftTimeoutError(BaseException):
    """The soft limit of the step is reached: finish or checkpoint now.

    A `BaseException`, so that a broad `except Exception` does not swallow it.
    """


class ContinuedError(BaseException):
    """The attempt ends here, and the next one goes on from what was kept: let it pass.

    A `BaseException`, as `SoftTimeoutError`. `ctx.continue_later` raises it, and so does a
    checkpoint when the time of the attempt is short.

    Args:
        message: for people.
        at_checkpoint: whether it was raised because time ran short.
    """

    def __init__(
        self,
        message: str = "the attempt ends here, and the next one goes on",
        *,
        at_checkpoint: bool = False,
    ) -> None:
        super().__init__(message)
        self.at_checkpoint = at_checkpoint


class BudgetExceededError(ContinuedError):
    """The budget of the run, or of its step, is used up: the attempt ends here; let it pass.

    The run is blocked until a person resumes it with a higher budget. All that was recorded is
    kept.
    """


class AwaitConfirmationError(ContinuedError):
    """The attempt ends here, and a person is asked whether a call has happened: let it pass."""

    def __init__(self, message: str = "a person is asked whether a call has happened") -> None:
        super().__init__(message)


class SignalAwaitedError(ContinuedError):
    """The attempt ends here, and the next one begins once the signal is there: let it pass.

    Args:
        name: of the signal.
        timeout_s: for how long to wait, in seconds; None: for any time.
        otherwise: what then: `block`, `continue` or `fail`.
        model: the path of the model that the signal has to fit; empty: any value will do.
        refused: why the signal that was there does not count; empty: there was none.
    """

    def __init__(
        self,
        name: str,
        *,
        timeout_s: float | None = None,
        otherwise: str = "block",
        model: str = "",
        refused: str = "",
    ) -> None:
        super().__init__(f"the attempt ends here, and waits for the signal {name!r}")
        self.name = name
        self.timeout_s = timeout_s
        self.otherwise = otherwise
        self.model = model
        self.refused = refused


# -- errors that another process raised ----------------------------------------------------------


def restored_error(
    code: str | None, message: str, details: Mapping[str, Any]
) -> LeaseholdError | None:
    """Return the error of another process as the class it has here; None: nothing has its code."""
    kind = _by_code().get(code or "")
    return None if kind is None else kind.restored(message, details)


@functools.cache
def _by_code() -> Mapping[str, type[LeaseholdError]]:
    found = [kind for kind in globals().values() if isinstance(kind, type)]
    kinds = [kind for kind in found if issubclass(kind, LeaseholdError)]
    return {kind.code: kind for kind in kinds if kind is not LeaseholdError}
