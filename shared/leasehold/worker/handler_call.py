"""One call of a handler, in whatever process: what it is given, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pydantic import ValidationError

from leasehold.domain.manifest_parts import RetryRule
from leasehold.domain.result import Continued, Deferred, Failed, Result
from leasehold.domain.status import Termination
from leasehold.errors import ContinuedError, StoreUnavailableError
from leasehold.ports.handler_runner import StepHandler
from leasehold.worker.context import StepContext
from leasehold.worker.failures import record_of, safe_text
from leasehold.worker.handlers import Handler, handler_of
from leasehold.worker.misfits import record_of_misfit
from leasehold.worker.outage import may_pass, outage_in
from leasehold.worker.outputs import judged
from leasehold.worker.retry_hints import is_permanent

_MAX_DETAIL: Final = 500


def call_handler(
    step: StepHandler,
    given: str,
    *,
    begin: Callable[[], StepContext | Result],
    end_by: Callable[[BaseException], Result],
    resolve: Callable[[StepHandler], Handler] = handler_of,
) -> Result:
    """Call the handler of a step and judge what it does.

    Args:
        step: the step.
        given: what it is given, JSON text.
        begin: makes its context, or returns how the attempt ends that must not begin.
        end_by: returns how the attempt ends when the handler, or `begin`, has raised.
        resolve: imports the handler.
    """
    try:
        handler = resolve(step)
        value = handler.given.validate_json(given)
    except ValidationError as error:
        what = f"What step {step.step_type} is given"
        return Failed(record_of_misfit(error, code="invalid_input", what=what), permanent=True)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is kept with the run
        return end_before_the_call(error, step)
    try:
        context = begin()
        if not isinstance(context, StepContext):
            return context
        answer = handler(context, value)
    except BaseException as error:  # noqa: BLE001 - a handler must not take the worker with it
        return end_by(error)
    return judged(handler, answer)


def end_before_the_call(error: Exception, step: StepHandler) -> Result:
    """Return how an attempt ends whose handler cannot be called: its code has to be repaired.

    An outage that kept its module from being imported is no mistake of the code.
    """
    if outage := outage_in(error):
        return _deferred_by(outage)
    return Failed(record_of(error, step.handler), permanent=not may_pass(error))


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
        return Continued() if asked is not None and others is None else None
    return Continued(error.at_checkpoint) if isinstance(error, ContinuedError) else None


def failed_by(error: BaseException, step: StepHandler, retry: RetryRule | None) -> Failed:
    """Return how an attempt ends whose handler raised of itself."""
    return Failed(record_of(error, step.handler), permanent=is_permanent(error, retry))


def _deferred_by(outage: StoreUnavailableError) -> Deferred:
    return Deferred(Termination.STORE_UNAVAILABLE, safe_text(outage.message, _MAX_DETAIL))
