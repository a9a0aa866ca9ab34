"""The recorded results of calls made once, as the worker finds and records them for an attempt."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from leasehold.domain.calls import check_call_key, check_room, expected_reference, recorded_call
from leasehold.domain.json_text import OUTPUT_BYTES, check_json, check_size
from leasehold.domain.kept_checkpoint import may_read
from leasehold.domain.kept_value import KeptValue
from leasehold.domain.kept_work import CallResult
from leasehold.domain.manifest import Manifest
from leasehold.errors import (
    ArtifactNameError,
    ArtifactNotFoundError,
    CallResultError,
    DamagedFileError,
)
from leasehold.logs.attempt import STEP_LOG
from leasehold.worker.held_attempt import HeldAttempt

_LOG: Final = logging.getLogger(STEP_LOG)


class RecordedCalls:
    """The results of one attempt; for any thread, but for one key at a time.

    Args:
        held: the attempt.
        load: reads a value of the run.
    """

    def __init__(self, held: HeldAttempt, load: Callable[[KeptValue], str]) -> None:
        self._held = held
        self._load = load
        self._awaited: dict[str, CallResult] = {}
        self._unreadable: dict[str, str] = {}
        self._counting = threading.Lock()

    def find(self, key: str, type_: str) -> str | None:
        """Return a result, JSON text, and count the call as spared; None: it is to be made.

        Raises:
            CallResultError: the result is of another type.
            TooManyCallsError: there would be no room for the result.
            LeaseLostError: the call is to be made, and the lease may be over.
            StoreUnavailableError: it could not be read.
        """
        check_call_key(key)
        found = recorded_call(self._held.manifest, key)
        if found is not None:
            _check_type(found, type_)
            text = self._text_of(found)
            if text is not None:
                self._held.note_spared_call()
                return text
        self._expect(self._result(key, type_))
        self._held.check_lease()
        return None

    def record(self, key: str, type_: str, text: str, *, keep: bool) -> None:
        """Record a result; raises as `HeldAttempt.record_call`, and ValueError: it is not JSON."""
        check_call_key(key)
        check_size(f"the result of call {key!r}", text, OUTPUT_BYTES)
        check_json(text)  # a process of a handler may send anything
        call = self._result(key, type_).with_(inline=text, keep=keep)
        self._held.record_call(call, self._unreadable.get(key))
        with self._counting:
            self._awaited.pop(key, None)

    def _result(self, key: str, type_: str) -> CallResult:
        run = self._held.manifest
        return CallResult(step=run.current_step, trial=run.trial, key=key, type=type_)

    def _expect(self, call: CallResult) -> None:
        """Note that a call is to be made, or refuse that before it costs anything."""
        with self._counting:
            run = self._held.manifest
            by_reference = expected_reference(run, call)
            others = {(one.step, one.key): one for one in (*self._awaited.values(), *run.calls)}
            others.pop((call.step, call.key), None)
            check_room(run, [*others.values()], by_reference)
            self._awaited[call.key] = by_reference

    def _text_of(self, call: CallResult) -> str | None:
        """Return the text of a result; None: it is lost or damaged, so the call is made again."""
        run = self._held.manifest
        try:
            _check_own(run, call)
            return self._held.fetch(partial(self._load, call.value))
        except (ArtifactNotFoundError, ArtifactNameError, DamagedFileError) as error:
            facts = {"run_id": run.run_id, "step": run.current_step, "attempt": run.attempt}
            words = "the result of call %r is lost, it is made again: %s"
            _LOG.warning(words, call.key, error, extra=facts)
            self._unreadable[call.key] = call.ref or ""
            return None


def _check_type(found: CallResult, type_: str) -> None:
    if found.type and type_ and found.type != type_:
        problem = (
            f"was recorded as {found.type}, and the call returns {type_} now: give a call of "
            f"another type another key"
        )
        raise CallResultError(key=found.key, problem=problem)


def _check_own(run: Manifest, call: CallResult) -> None:
    """Refuse a file that is not the run's, whoever wrote the manifest."""
    if call.ref and not may_read(run, call.ref):
        raise DamagedFileError(name=call.ref, problem="it is of another run")
