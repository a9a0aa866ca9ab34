"""A signal to a run: a value from outside, which a step waits for, or will wait for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from leasehold.attempt.values import discard, inline, put
from leasehold.domain import lifecycle
from leasehold.domain.artifact_name import values_folder
from leasehold.domain.change import Change
from leasehold.domain.json_text import MAX_INPUT_BYTES, canonical, check_size, digest, not_json
from leasehold.domain.manifest import Manifest
from leasehold.domain.signal import NAME_WORDS, Signal, is_signal_name
from leasehold.domain.stored import replace
from leasehold.errors import (
    MAX_VALUE_SHOWN_CHARS,
    HandlerNotFoundError,
    InvalidRequestError,
    InvalidSignalError,
    LeaseholdError,
    StoreUnavailableError,
    TooLargeError,
)
from leasehold.registry.dispatch import REMOTE
from leasehold.services.engine import Engine
from leasehold.services.read_runs import get_run

#: What stands before the words of a misfit that say more than the signal's name does.
_MISFIT: Final = " does not fit "


class SignalRequest(NamedTuple):
    """A signal as it is sent.

    Args:
        name: what the run waits for.
        value: JSON values.
        actor: who sends it; for the trace.
        id: of the signal, so that it counts once however often it is sent; None: a new one.
    """

    name: str
    value: Any
    actor: str
    id: str | None = None


class _Model(NamedTuple):
    """The model of a signal, as the checks of handlers read it."""

    step_type: str
    output: str
    handler: str = REMOTE


def send_signal(engine: Engine, run_id: str, request: SignalRequest) -> tuple[Change, str]:
    """Keep the signal in the run, and have that go on if it waits for it.

    Returns:
        The change, and the id of the signal.

    Raises:
        UnknownRunError: there is no such run.
        UnknownSignalError: nothing of it waits for such a signal.
        SignalNotAwaitedError: it is over, or went on without it.
        SignalIdReusedError: the id came before with another value.
        InvalidSignalError: the value does not fit the model of the wait.
        InvalidRequestError, TooLargeError: nothing can be sent so. In each case nothing was kept.
        StoreUnavailableError: it may be kept or not; send it again with the same id.
    """
    run = get_run(engine, run_id)
    sent = _checked(engine, run, request)
    signal = partial(
        lifecycle.signal,
        rules=engine.dispatch_rules(),
        actor=request.actor,
        known=_known_names(engine, run),
    )
    try:
        if inline(sent.inline or "", beside=run.text_bytes) is None:
            return _send_large(engine, run, sent, signal), sent.id
        change = engine.commit(run.run_id, partial(signal, sent=sent)).answer
    except TooLargeError:  # others took the room meanwhile
        return _send_large(engine, run, sent, signal), sent.id
    return engine.publish_or_leave(change), sent.id


def _checked(engine: Engine, run: Manifest, request: SignalRequest) -> Signal:
    """Return the signal with its text, or raise as `send_signal`."""
    if not is_signal_name(request.name):
        shown = str(request.name)[:MAX_VALUE_SHOWN_CHARS]
        raise InvalidRequestError(field="name", value=shown, allowed=NAME_WORDS)
    signal_id = engine.clock.new_id() if request.id is None else request.id
    if not is_signal_name(signal_id):
        raise InvalidRequestError(
            field="id", value=str(signal_id)[:MAX_VALUE_SHOWN_CHARS], allowed=NAME_WORDS
        )
    try:
        text = canonical(request.value)
    except (ValueError, TypeError) as error:
        raise not_json("value", ValueError(error)) from None
    check_size("value", text, MAX_INPUT_BYTES)
    _check_model(engine, run, request.name, text)
    return Signal(
        name=request.name, id=signal_id, at=engine.clock.now(), digest=digest(text), inline=text
    )


def _check_model(engine: Engine, run: Manifest, name: str, text: str) -> None:
    """Refuse a value that does not fit; a model that is not known here refuses nothing."""
    path = _model_of(run, name)
    if not path:
        return
    try:
        model = _Model(f"{run.position.step} (signal {name})", path)
        misfit = engine.handlers.checks.problem_with_output(model, text)
    except HandlerNotFoundError:
        return
    if misfit is not None:
        raise InvalidSignalError(
            run_id=run.run_id,
            name=name,
            problem=f"{misfit.message.partition(_MISFIT)[2] or misfit.message}.",
            issues=misfit.validation_issues,
            issue_count=misfit.validation_issue_count,
        )


def _model_of(run: Manifest, name: str) -> str:
    if rule := run.wait_rule_at(name):
        return rule.model or ""
    wait = run.position.wait
    return wait.model or "" if wait is not None and wait.name == name else ""


def _known_names(engine: Engine, run: Manifest) -> frozenset[str] | None:
    """Return the names that a run may wait for from now on, by its code; None: any."""
    names: set[str] = set()
    for own in _names_by_step(engine, run):
        if own is None:
            return None
        names |= own
    return frozenset(names)


def _names_by_step(engine: Engine, run: Manifest) -> Iterator[frozenset[str] | None]:
    for step in run.plan:
        entry = engine.catalog.steps.get(run.step_type_of(step))
        if entry is None or entry.handler == REMOTE:
            yield None
        else:
            yield engine.handlers.checks.signals_in(entry)


def _send_large(engine: Engine, run: Manifest, sent: Signal, signal: Any) -> Change:
    """Store the value as an artifact before the run refers to it; one that is refused goes."""
    text = sent.inline or ""
    name = f"{values_folder(run)}/signal-{sent.digest[:16]}-{digest(sent.id)[:16]}.json"
    large = partial(signal, sent=replace(sent, inline=None, ref=name))
    large(run, engine.clock.now())  # what is refused anyway has nothing stored
    put(engine.artifacts, text, name)
    try:
        change = engine.commit(run.run_id, large).answer
    except LeaseholdError as error:
        if not isinstance(error, StoreUnavailableError):
            discard(engine.artifacts, name, engine.threads)
        raise
    return engine.publish_or_leave(change)
