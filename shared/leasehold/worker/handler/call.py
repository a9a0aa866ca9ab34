"""One call of a handler, in whatever process: what is called, what it is given, what comes of it.

Entry actions are called before it, in each attempt. Inline, the handler runs in the worker's own
thread, and cannot be killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from leasehold.attempt.attempt import Attempt
from leasehold.attempt.calls import AttemptCalls
from leasehold.attempt.silence import Silence
from leasehold.domain.delivery import MAX_OUTPUT_SUMMARY_CHARS
from leasehold.domain.manifest_parts import ErrorRecord, RetryRule
from leasehold.domain.result import (
    OUTPUT_STATUSES,
    Continued,
    Deferred,
    Failed,
    Finished,
    Result,
    SignalRequest,
    StepResult,
    Stopped,
    Unable,
)
from leasehold.domain.signal import MAX_MODEL_PATH_CHARS, MAX_REFUSAL_CHARS
from leasehold.domain.status import BlockCode, Termination
from leasehold.domain.stored import replace
from leasehold.domain.trace import MAX_DETAIL_CHARS
from leasehold.errors import (
    BudgetExceededError,
    ContinuedError,
    EntryActionNotFoundError,
    SignalAwaitedError,
    StoreUnavailableError,
)
from leasehold.frozen import dataclass
from leasehold.logs.attempt import LinesOf
from leasehold.ports.handler_runner import EnteredStep, StepHandler
from leasehold.worker.context.step_context import StepContext
from leasehold.worker.context.typed_json import json_text_of
from leasehold.worker.failures.error_chain import outage_in, shortage_in
from leasehold.worker.failures.failures import record_of, record_of_misfit, safe_text
from leasehold.worker.failures.kept_text import MAX_TEXT_CHARS, cut
from leasehold.worker.failures.retry_hints import is_mistake, is_permanent
from leasehold.worker.handler.handlers import (
    Handler,
    StepFunction,
    UnresolvedError,
    action_at,
    handler_of,
)
from leasehold.worker.stopping.system_signals import (
    SERVER_EXIT,
    Interrupts,
    is_interrupt,
    is_main_thread,
)

#: A server that is to quit raises SystemExit in the main thread; the signal is noted within
#: this time.
_SIGNAL_NOTED_S: Final = 0.2
_MAX_VALUE_SHOWN_CHARS: Final = 100


@dataclass(frozen=True, slots=True)
class EntryAction(StepFunction):
    """A function `(ctx, given)`, and the path that its step names it by; its result is ignored."""

    path: str


def entry_actions_of(step: EnteredStep) -> Sequence[EntryAction]:
    """Import the entry actions of a step.

    Raises:
        EntryActionNotFoundError: a path does not lead to a function that takes (ctx, given).
    """
    return [entry_action_at(step, path) for path in step.entry_actions]


def entry_action_at(step: StepHandler, path: str) -> EntryAction:
    """Import one entry action of a step, or raise EntryActionNotFoundError."""
    try:
        found = action_at(path)
    except UnresolvedError as error:
        raise EntryActionNotFoundError(
            action=path, step=step.step_type, problem=str(error)
        ) from error.__cause__
    return EntryAction(found.function, found.is_async, path)


class StepCode(NamedTuple):
    """What is called for a step: its entry actions, then its handler."""

    entry_actions: Sequence[EntryAction]
    handler: Handler


def code_of(step: EnteredStep) -> StepCode:
    """Import what is called for a step, or raise HandlerNotFoundError."""
    actions = entry_actions_of(step) if step.entry_actions else ()
    return StepCode(actions, handler_of(step))


def call_handler(
    step: EnteredStep,
    given: str,
    *,
    begin: Callable[[], StepContext | Result],
    end_by: Callable[[BaseException, str], Result],
    resolve: Callable[[EnteredStep], StepCode] = code_of,
) -> Result:
    """Call the entry actions and the handler of a step, and judge what they do.

    Args:
        step: the step.
        given: what it is given, JSON text.
        begin: makes its context, or returns how the attempt ends that must not begin.
        end_by: returns how the attempt ends when what is at a path has raised; with the path of
            the handler also when `begin` has. Where the machine has run short of memory, threads
            or descriptors before any of it was called, the attempt is deferred.
        resolve: imports what is called.
    """
    handler: Handler | None = None
    context: StepContext | Result | None = None
    try:
        actions, handler = resolve(step)
        value = handler.given.validate_json(given)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is kept with the run
        is_missing = handler is None
        code = BlockCode.HANDLER_UNAVAILABLE if is_missing else BlockCode.INPUT_MISMATCH
        return _unable(code, error, step)
    try:
        context = begin()
        if not isinstance(context, StepContext):
            return context
        if actions and (end := _enter(actions, context, value, end_by=end_by)):
            return end
        answer = _answer_of(handler, context, value)
    except BaseException as error:  # noqa: BLE001 - a handler must not take the worker with it
        if context is None and (shortage := _short_of(error)):
            return shortage
        return end_by(error, step.handler)
    return _judged(handler, answer)


def _enter(
    actions: Sequence[EntryAction],
    context: StepContext,
    given: Any,
    *,
    end_by: Callable[[BaseException, str], Result],
) -> Result | None:
    """Call the entry actions, in their order; no checkpoint can be kept meanwhile.

    Args:
        actions: see `entry_actions_of`.
        context: that of the attempt.
        given: what its handler is given; they are given the same.
        end_by: returns how the attempt ends when what is at a path has raised.

    Returns:
        How the attempt ends; None: its handler may begin.
    """
    context._checkpoints.is_entering = True  # noqa: SLF001 - a step has one checkpoint: that of its handler
    for action in actions:
        try:
            SERVER_EXIT.let_through(action, context, given)
        except BaseException as error:  # noqa: BLE001 - as with the handler's own errors
            return end_by(error, action.path)
    context._checkpoints.is_entering = False  # noqa: SLF001 - as above
    return None


def _answer_of(handler: Handler, context: StepContext, given: Any) -> Any:
    """Return what a handler returns; where it raises, what its loops have done is kept first."""
    try:
        return SERVER_EXIT.let_through(handler, context, given)
    except BaseException:
        context._keep_rest()  # noqa: SLF001 - what only the caller of a handler knows to do
        raise


def _judged(handler: Handler, answer: Any) -> Result:
    """Return the answer of a handler as its model has it, or as the failure it is."""
    status, summary, skip_to = "SUCCESS", "", None
    if isinstance(answer, StepResult):
        summary = safe_text(answer.summary, MAX_OUTPUT_SUMMARY_CHARS)
        skip_to = (
            None if answer.skip_to is None else safe_text(answer.skip_to, _MAX_VALUE_SHOWN_CHARS)
        )
        answer, status = answer.output, answer.status
    if status not in OUTPUT_STATUSES:
        shown, allowed = safe_text(status, _MAX_VALUE_SHOWN_CHARS), ", ".join(OUTPUT_STATUSES)
        message = f"StepResult.status is {shown!r}; allowed: {allowed}."
        record = ErrorRecord(type="StepResult", code="invalid_output", message=message)
        return Unable(BlockCode.HANDLER_MISTAKE, record)
    try:
        return Finished(json_text_of(handler.output, answer), status, summary, skip_to)
    except ValidationError as error:
        return Failed(record_of_misfit(error, code="invalid_output", what="The output"))
    except (ValueError, RecursionError) as error:  # PydanticSerializationError among them
        record = record_of(error)
        message = cut(f"The output cannot be kept as JSON: {record.message}", MAX_TEXT_CHARS)
        record = replace(record, type="TypeError", code="invalid_output", message=message)
        return Unable(BlockCode.HANDLER_MISTAKE, record)  # another attempt would return the same
    except Exception as error:  # noqa: BLE001 - a validator of the user's may raise anything
        return Failed(replace(record_of(error), code="invalid_output"))


def _unable(code: BlockCode, error: Exception, step: StepHandler) -> Result:
    """Return how an attempt ends whose handler cannot be called: its code has to be put right.

    An outage that kept its module from being imported, or a machine that has run short of memory,
    threads or descriptors, is no mistake of the code.
    """
    if outage := outage_in(error):
        return _deferred_by(outage)
    if shortage := _short_of(error):
        return shortage
    if isinstance(error, ValidationError):
        what = f"What step {step.step_type} is given"
        return Unable(code, record_of_misfit(error, code="invalid_input", what=what))
    return Unable(code, record_of(error, step.handler))


def deferred_in(error: BaseException) -> Deferred | None:
    """Return how an attempt ends whose handler met an outage; None: it did not."""
    outage = outage_in(error) if isinstance(error, Exception) else None
    return None if outage is None else _deferred_by(outage)


def continued_in(error: BaseException) -> Continued | None:
    """Return how an attempt ends that asked for the next one to go on; None: it did not.

    Its tasks may have asked for that together: a group of nothing else says the same.
    """
    if isinstance(error, BaseExceptionGroup):
        asked, others = error.split(ContinuedError)
        if asked is None or others is not None:
            return None
        error = asked.subgroup(BudgetExceededError) or _all_waiting(asked) or ContinuedError()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
    if isinstance(error, BudgetExceededError):
        return Continued(over_budget=str(error))
    if isinstance(error, SignalAwaitedError):
        return Continued(wanted=_signal_request(error))
    return Continued(error.at_checkpoint) if isinstance(error, ContinuedError) else None


def _all_waiting(asked: BaseExceptionGroup) -> BaseExceptionGroup | None:
    """Return the group of tasks that all wait for signals; None: another one can go on."""
    waiting, others = asked.split(SignalAwaitedError)
    return waiting if others is None else None


def _signal_request(error: SignalAwaitedError) -> SignalRequest:
    return SignalRequest(
        error.name,
        error.timeout_s,
        error.otherwise,
        safe_text(error.model, MAX_MODEL_PATH_CHARS),
        safe_text(error.refused, MAX_REFUSAL_CHARS),
    )


def failed_by(
    error: BaseException, path: str, step: StepHandler, retry: RetryRule | None
) -> Failed | Unable:
    """Return how an attempt ends whose handler, or an entry action at this path, has raised.

    A request to its context that no attempt can have met is a mistake of its code.
    """
    what = "" if path == step.handler else f"Entry action {path!r}"
    record, permanent = record_of(error, path, what), is_permanent(error, retry)
    if not permanent and is_mistake(error):
        return Unable(BlockCode.HANDLER_MISTAKE, record)
    return Failed(record, permanent)


def _short_of(error: BaseException) -> Deferred | None:
    """Return how an attempt ends for which the machine has run short; None: it has not."""
    shortage = shortage_in(error)
    if shortage is None:
        return None
    is_thread = isinstance(shortage, RuntimeError)
    reason = Termination.THREAD_UNAVAILABLE if is_thread else Termination.PROCESS_UNAVAILABLE
    what = str(shortage) or f"no memory ({type(shortage).__name__})"
    return Deferred(reason, safe_text(what, MAX_DETAIL_CHARS))


def _deferred_by(outage: StoreUnavailableError) -> Deferred:
    return Deferred(Termination.STORE_UNAVAILABLE, safe_text(outage.message, MAX_DETAIL_CHARS))


class InlineRunner:
    """The handler runner port, in the thread that asks.

    Args:
        interrupts: where a Ctrl-C is kept, or an exit at a signal, that cuts a handler short.
    """

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts

    def run(self, attempt: Attempt, step: EnteredStep, given: str) -> Result:
        """Call the handler and judge what it does; do not begin what is to stop already."""
        if end := attempt.end_before_it_begins():
            return end
        dispatch, silence = attempt.manifest.position.dispatch, None
        if dispatch.silence_limit_ms is not None and (limit := dispatch.silence_limit):
            silence = Silence(limit, attempt.engine.clock.monotonic())
        with LinesOf(attempt.name, None if silence is None else silence.hear):
            begin = partial(_begin, attempt, silence)
            end_by = partial(self._end_by, attempt, step)
            result = call_handler(step, given, begin=begin, end_by=end_by)
        attempt.silence = None
        has_result = isinstance(result, Finished)
        attempt.phases.note_returned(attempt.engine.clock.monotonic(), has_result=has_result)
        return result

    def _end_by(
        self, attempt: Attempt, step: StepHandler, error: BaseException, path: str
    ) -> Result:
        if is_interrupt(error):
            return self._interrupts.stopped_by(error, attempt.stop.reason)
        if deferred := deferred_in(error):
            return deferred
        if _is_to_stop(error, attempt):
            return Stopped(attempt.stop.reason or Termination.INSTANCE_SHUTDOWN)
        return continued_in(error) or failed_by(
            error, path, step, attempt.manifest.position.dispatch.retry
        )


def _begin(attempt: Attempt, silence: Silence | None) -> StepContext | Result:
    context = StepContext(AttemptCalls(attempt))
    attempt.silence = silence
    attempt.phases.note_entered(attempt.engine.clock.monotonic())
    return attempt.end_before_it_begins() or context  # it may have waited for its checkpoint


def _is_to_stop(error: BaseException, attempt: Attempt) -> bool:
    """Return whether the attempt was to stop: it was asked to, or its server ends where it is."""
    if SERVER_EXIT.is_waiting:
        return True
    if isinstance(error, SystemExit) and is_main_thread():
        return attempt.stop.wait(_SIGNAL_NOTED_S)
    return attempt.stop.is_requested
