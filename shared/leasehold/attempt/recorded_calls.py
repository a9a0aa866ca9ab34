"""The recorded calls of one attempt: what it finds of those before it, and what it records.

They are read once, with the first call that asks, and not at all in the first attempt of a step.
Each new result is one document more (`domain/recorded_calls.py`); the run hears of it with the next
write of the attempt.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from leasehold.attempt.values import discard, load, pack_call, put_packed
from leasehold.domain.checkpoint import CallResult, UnconfirmedCall
from leasehold.domain.json_text import MAX_OUTPUT_BYTES, check_json, check_size, digest
from leasehold.domain.kept_checkpoint import may_read
from leasehold.domain.manifest import fits_inline, run_ref
from leasehold.domain.recorded_calls import (
    MAX_PAID_AGAIN,
    MAX_RESULTS_PER_STEP,
    Intent,
    MadeCall,
    Place,
    Request,
    attempts_again,
    call_ref,
    calls_of,
    check_call_key,
    current_calls,
    difference,
    is_for,
    may_have_results,
    places_of,
    recorded_call,
    resumed_by_person,
    run_of,
)
from leasehold.domain.redaction import without_secrets
from leasehold.domain.spend import total_of
from leasehold.domain.stored import (
    Document,
    Ref,
    StoredDocument,
    Write,
    replace,
)
from leasehold.domain.trace import TraceType, diverged_ref, left_once
from leasehold.errors import (
    ArtifactNameError,
    ArtifactNotFoundError,
    AwaitConfirmationError,
    CallMisfitError,
    CallUnconfirmedError,
    CallVariesError,
    DamagedFileError,
    DocumentExistsError,
    LeaseLostError,
    StoreUnavailableError,
    TooManyCallsError,
    VersionConflictError,
)
from leasehold.logs.attempt import STEP_LOG
from leasehold.ports.documents import Committed, Query, Snapshot

if TYPE_CHECKING:  # as in `attempt/calls.py`
    from leasehold.attempt.attempt import Attempt

_LOG: Final = logging.getLogger(STEP_LOG)

_MAKING: Final = threading.Lock()
_RESULTS_PER_QUERY: Final = 200
_ANY_CODE: Final = "unknown"
#: Texts of results that are kept in memory; those beyond are read once more when they are wanted.
_MAX_TEXTS_BYTES: Final = 64 * 1024 * 1024


class _Found(NamedTuple):
    """A recorded call, and its document; None: it is in the run."""

    call: CallResult
    ref: Ref | None


class RecordedCalls:
    """The recorded calls of an attempt; for any thread, but for one key at a time.

    Args:
        attempt: the attempt, which has just begun.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._run = attempt.manifest
        self._found: dict[str, list[_Found]] | None = None
        self._count = self._bytes = 0
        self._begun: dict[str, float] = {}
        self._lost: set[Ref] = set()
        self._intended: dict[str, Snapshot] = {}
        self._has_diverged = False
        self._again: set[str] = set()
        self._code = attempt.engine.rules.code_hash or _ANY_CODE
        self._reading = threading.Lock()
        self._adding = threading.Lock()

    def find(
        self, key: str, type_: str, request: Request | None, intent: Intent | None = None
    ) -> str | None:
        """Return a result, JSON text, and count the call as spared; None: it is to be made.

        With an intent, that is noted before, with one write.

        Raises:
            CallMisfitError: the result is of another type.
            CallVariesError: each attempt asks for something else, and pays for it again.
            AwaitConfirmationError, CallUnconfirmedError: an attempt before ended between the call
                and its record, and a person is to be asked, or the step is to fail.
            TooManyCallsError: there would be no room for the result.
            BudgetExceededError: the call is to be made, and the budget is used up.
            LeaseLostError: the call is to be made, and the lease may be over.
            StoreUnavailableError: the results could not be read.
        """
        check_call_key(key)
        before = self._results().get(key, [])
        one = _that_counts(before, request)
        if one is not None and one.call.is_open:
            self._check_known(one, intent)
        elif one is not None:
            _check_type(one.call, type_)
            text = self._text_of(one)
            if text is not None:
                self._attempt.note_calls(spared=1)
                if (spend := one.call.spend) is not None:
                    self._attempt.tally.note_spared_spend(spend)
                return text
            self._check_known(before[-1], intent)
        elif before and request is not None:
            calls = [one.call for one in before]
            self._note_diverged(calls, request, attempts_again(calls, self._run, self._code))
        self._attempt.tally.check_budget()
        with self._adding:
            if self._count + len(self._begun) >= MAX_RESULTS_PER_STEP and key not in self._begun:
                raise TooManyCallsError(key=key, limit=MAX_RESULTS_PER_STEP)
            self._begun[key] = self._attempt.engine.clock.monotonic()
        self._attempt.check_lease()
        if intent is None:
            return None
        text = self._announce(key, type_, request, intent)
        if text is None:
            self._check_announced(key)
        return text

    def _check_announced(self, key: str) -> None:
        """Refuse a call whose lease was over before it was announced, and withdraw that.

        The store may have been slow. A person may be asked by then, and say that the call has not
        happened: to make it now would be to make it twice.
        """
        try:
            self._attempt.check_lease()
        except LeaseLostError:
            self.forget(key)
            raise

    def forget(self, key: str) -> None:
        """Forget a call that has raised: it needs no room, and it is known what became of it."""
        with self._adding:
            self._begun.pop(key, None)
        intended = self._intended.pop(key, None)
        if intended is not None:
            documents = self._attempt.engine.documents
            with suppress(StoreUnavailableError, VersionConflictError):  # a person is asked then
                documents.delete(intended.ref, if_version=intended)

    def is_at_hand(self, key: str, request: Request | None, intent: Intent | None) -> bool:
        """Return whether `find` asks no store: what it returns is in memory."""
        if self._found is None:
            return False
        before = self._found.get(key, ())
        one = _that_counts(before, request)
        if one is None:
            return not before and intent is None
        return not one.call.is_open and one.call.inline is not None

    def record(self, made: MadeCall) -> str:
        """Record a result, and return the one that counts: the first that was recorded.

        Raises:
            TooLargeError: no result may be as large.
            ValueError: it is not JSON.
            LeaseLostError: the lease may be over; the result is recorded.
            StoreUnavailableError: it could not be recorded while the lease was held.
        """
        attempt, key, spend = self._attempt, made.key, made.spend
        begun = self._begun.get(key)
        now = attempt.engine.clock.monotonic()
        took_s = 0.0 if begun is None else round(max(0.0, now - begun), 6)
        ref, stored, _ = self.keep(made._replace(took_s=took_s))
        found = self._results()
        with self._adding:
            self._begun.pop(key, None)
            self._add(found, _Found(stored, ref))
        attempt.note_calls(made=1)
        if not spend.is_nothing:
            attempt.tally.note_recorded_spend(spend)
        attempt.engine.telemetry.call_recorded(attempt.manifest, key, took_s)
        try:
            attempt.check_lease()  # who has lost it hears of it, with its work kept
        except LeaseLostError:
            self._withdraw_if_purged(ref, stored)
            raise
        return self.text_of(stored, made.result)

    def _withdraw_if_purged(self, ref: Ref, stored: CallResult) -> None:
        """Delete a result whose run was purged before it was written: nothing else ever would.

        A purge marks its run before it deletes the results, so one of the two sees the other.
        """
        engine = self._attempt.engine
        with suppress(StoreUnavailableError):
            found = engine.documents.get(run_ref(self._run.run_id))
            if found is not None and found.document.get("purgedAt") is None:
                return
            engine.documents.delete(ref)
            if stored.ref is not None:
                discard(engine.artifacts, stored.ref, engine.threads)

    def keep(self, made: MadeCall) -> tuple[Ref, CallResult, bool]:
        """Record a result unless its key has one: its document, what is stored, and if it is new.

        Raises as `record`, but knows nothing of the lease.
        """
        check_call_key(made.key)
        check_size(f"the result of call {made.key!r}", made.result, MAX_OUTPUT_BYTES)
        check_json(made.result)  # a process of a handler may send anything
        call = self._call_of(made)
        ref = call_ref(self._run, call)
        stored, is_new = self._store(ref, call)
        return ref, stored, is_new

    def has(self, made: MadeCall) -> bool:
        """Return whether a result is recorded for the key and the request of a call."""
        ref = call_ref(self._run, self._call_of(made))
        found = self._attempt.fetch(partial(self._attempt.engine.documents.get, ref))
        call = found and recorded_call(found.document)
        return call is not None and not call.is_open

    def _call_of(self, made: MadeCall) -> CallResult:
        at = self._run.position
        return CallResult(
            step=at.step,
            trial=at.trial,
            key=made.key,
            type=made.type,
            inline=made.result,
            keep=made.keep or None,
            request=made.request,
            attempt=at.attempt,
            took_s=made.took_s,
            spend=None if made.spend.is_nothing else made.spend,
            again=self._code if made.key in self._again else None,
        )

    def _check_known(self, one: _Found, intent: Intent | None) -> None:
        """Refuse a call of which it is not known whether it has happened."""
        if intent is None:  # the code says now that it may be made again
            return
        call, ref = one.call, one.ref
        if ref is None:  # in the run: a version before this one promised nothing of it
            return
        is_own = ref.collection == calls_of(self._run.run_id)
        if intent.on_unknown == "fail" and is_own:  # in a run that goes on after that, who asks?
            raise CallUnconfirmedError(key=call.key, attempt=call.attempt)
        self._attempt.unconfirmed_call = UnconfirmedCall(
            name=ref.id,
            run_id=None if is_own else run_of(ref),
            key=call.key,
            attempt=call.attempt or 0,
            at=call.at or self._attempt.store_time(),
            arguments=call.arguments or "",
        )
        raise AwaitConfirmationError

    def _announce(
        self, key: str, type_: str, request: Request | None, intent: Intent
    ) -> str | None:
        """Note that a call is to be made; return a result that another worker has recorded."""
        at = self._run.position
        call = CallResult(
            step=at.step,
            trial=at.trial,
            key=key,
            type=type_,
            request=request,
            keep=intent.keep or None,
            attempt=at.attempt,
            is_open=True,
            arguments=without_secrets(intent.arguments),
        )
        ref, is_first = call_ref(self._run, call), key not in self._intended

        def first(document: Document | None, now: datetime) -> Write[CallResult | None]:
            found = None if document is None else recorded_call(document)
            is_ours = is_first and found is not None and found.attempt == at.attempt
            if found is not None and not (found.is_open and is_ours):  # else an answer was lost
                return Write(found)
            return Write(None, StoredDocument(replace(call, at=now)))

        now = self._attempt.store_time()
        transact = partial(
            self._attempt.engine.documents.transact, ref, first, is_new=True, now=now
        )
        committed: Committed[CallResult | None] = self._attempt.persist(transact)
        found = committed.answer
        if found is None:
            if committed.snapshot is not None:  # the store of a test's context forgets it
                self._intended[key] = committed.snapshot
            return None
        if found.is_open:
            self._check_known(_Found(found, ref), intent)
        return self._text_of(_Found(found, ref))

    def text_of(self, stored: CallResult, result: str) -> str:
        """Return the text of a stored result; it is not read where it is what was just made."""
        if stored.ref is not None and stored.digest == digest(result):
            return result
        return self._attempt.fetch(partial(self._load, stored))

    def count(self) -> bool:
        """Note all calls of the trial that are recorded; return whether the run knows of fewer."""
        with self._reading:
            if self._found is None:
                self._found = self._read()
        return self._attempt.notes.recorded_calls > self._run.position.recorded_calls

    def note_request(self, key: str, request: Request) -> bool:
        """Note a remote worker's request before it is paid for; return whether it is another one.

        The code of that worker is not known, so each attempt before that recorded a result of the
        key counts, but for the first one.

        Raises:
            CallVariesError: each attempt asks for something else, and pays for it again.
        """
        calls = [one.call for one in self._results().get(key, [])]
        if not calls or any(is_for(call, request) for call in calls):
            return False
        attempts = {call.attempt for call in calls} - {self._run.position.attempt}
        self._note_diverged(
            calls, request, 0 if resumed_by_person(self._run) else len(attempts) - 1
        )
        return True

    def found(
        self, behind: str = "", key: str | None = None, request: Request | None = None
    ) -> Iterator[tuple[CallResult, str]]:
        """Yield the results that count and their texts, sorted by their keys.

        Args:
            behind: only those of keys behind this one.
            key: only that of this key; None: of any.
            request: only those for this request; None: for any.
        """
        for name, results in sorted(self._results().items()):
            one = _that_counts(results, request)
            is_wanted = name > behind and key in (None, name)
            if one is None or not is_wanted or one.call.is_open:
                continue
            text = self._text_of(one)
            if text is not None:
                yield one.call, text

    def _store(self, ref: Ref, call: CallResult) -> tuple[CallResult, bool]:
        """Write a result unless its key has one; return the one that is stored, and if it is new.

        The answer to a write before may have been lost: what it wrote is not new.
        """
        attempt, engine, written = self._attempt, self._attempt.engine, call
        size = call.text_bytes or 0
        if not fits_inline(size):
            file = pack_call(self._run, engine.clock.new_id(), call)
            if not call.keep:
                attempt.note_temporary_file()
            attempt.persist(partial(put_packed, engine.artifacts, file))
            written = replace(call, inline=None, ref=file.name, digest=file.digest, bytes=size)
        is_lost, intended = ref in self._lost, self._intended.pop(call.key, None)

        def first(document: Document | None, now: datetime) -> Write[tuple[CallResult, bool]]:
            found = None if document is None or is_lost else recorded_call(document)
            if found is not None and not found.is_open:
                return Write((found, False))
            recorded = replace(written, at=now)
            return Write((recorded, True), StoredDocument(recorded))

        is_new, now = not is_lost, attempt.store_time()
        transact = partial(engine.documents.transact, ref, first, is_new=is_new, now=now)
        answer: tuple[CallResult, bool] | None = None
        if intended is not None:
            with suppress(VersionConflictError):
                answer = attempt.persist(
                    partial(transact, if_version=intended, is_new=False)
                ).answer
        answer = answer or attempt.persist(transact).answer
        if written.ref is not None and answer[0].ref != written.ref:  # another worker was faster
            discard(engine.artifacts, written.ref, engine.threads)
        return answer

    def _results(self) -> dict[str, list[_Found]]:
        """Return the results that count, by their keys, in the order in which they came."""
        with self._reading:
            if self._found is None:
                self._found = self._attempt.fetch(self._read)
                self._attempt.tell_progress()
            return self._found

    def _read(self) -> dict[str, list[_Found]]:
        run, own = self._run, list[CallResult]()
        found: dict[str, list[_Found]] = {}
        self._count = self._bytes = 0
        for call in current_calls(run):
            self._add(found, _Found(call, None))
        if may_have_results(run):
            for place in places_of(run):
                for one in sorted(self._recorded_at(place), key=_when):
                    is_own = place.is_own and one.call.trial == run.position.trial
                    if is_own and not one.call.is_open:
                        own.append(one.call)
                    self._add(found, one)
        self._attempt.note_calls(found=len(own))
        spent = total_of(call.spend for call in own)
        if not spent.is_nothing:
            self._attempt.tally.note_recorded_spend(spent)
        return found

    def _recorded_at(self, place: Place) -> Iterator[_Found]:
        query = Query(place.collection, id_prefix=place.prefix, limit=_RESULTS_PER_QUERY)
        while True:
            page = self._attempt.engine.documents.query(query)
            for one in page:
                if place.has(one.ref.id) and (call := recorded_call(one.document)):
                    yield _Found(call, one.ref)
            if len(page) < _RESULTS_PER_QUERY:
                return
            query = dataclasses.replace(query, after=(None, page[-1].ref.id))

    def _add(self, found: dict[str, list[_Found]], one: _Found) -> None:
        """Add a result; its text is not kept here beside too many others."""
        self._count += 1
        if one.ref is not None and one.call.inline is not None:
            self._bytes += one.call.text_bytes or 0
            if self._bytes > _MAX_TEXTS_BYTES:
                one = one._replace(call=replace(one.call, inline=None))
        found.setdefault(one.call.key, []).append(one)

    def _text_of(self, one: _Found) -> str | None:
        """Return the text of a result; None: it is lost or damaged, so the call is made again."""
        call, run = one.call, self._run
        try:
            return self._attempt.fetch(partial(self._text, one))
        except (ArtifactNotFoundError, ArtifactNameError, DamagedFileError) as error:
            at = run.position
            facts = {"run_id": run.run_id, "step": at.step, "attempt": at.attempt}
            words = "the result of call %r is lost, it is made again: %s"
            _LOG.warning(words, call.key, error, extra=facts)
            self._lost.add(call_ref(run, call))
            return None

    def _text(self, one: _Found) -> str:
        call = one.call
        if one.ref is not None and call.inline is None and call.ref is None:
            snapshot = self._attempt.engine.documents.get(one.ref)
            call = (snapshot and recorded_call(snapshot.document)) or call
            if call.inline is None and call.ref is None:
                raise DamagedFileError(name=one.ref.id, problem="its document was deleted")
        if call.ref is not None and not may_read(self._run, call.ref):
            raise DamagedFileError(name=call.ref, problem="it is of another run")
        return self._load(call)

    def _load(self, call: CallResult) -> str:
        return load(self._attempt.engine.artifacts, call.value)

    def _note_diverged(self, before: Sequence[CallResult], request: Request, count: int) -> None:
        """Count a call that is made again for another request; the first one is traced.

        Most calls after it have another request as well: they contain its answer.

        Args:
            before: the results of its key.
            request: what it is made for now.
            count: how many attempts have paid for it again.
        """
        attempt, call = self._attempt, before[-1]
        if count >= MAX_PAID_AGAIN:
            raise CallVariesError(key=call.key, count=count, field=difference(call, request))
        self._again.add(call.key)
        attempt.note_calls(diverged=1)
        if self._has_diverged:
            return
        self._has_diverged = True
        run, field = attempt.manifest, difference(call, request)
        detail = f"call {call.key!r}: another {field}" if field else f"call {call.key!r}"

        with suppress(StoreUnavailableError, DocumentExistsError):  # it is counted anyway
            attempt.engine.documents.transact(
                diverged_ref(run), left_once(run, TraceType.CALL_DIVERGED, detail=detail)
            )


def recorded_calls_of(attempt: Attempt) -> RecordedCalls:
    """Return the recorded calls of an attempt; made at first use, as most steps have none."""
    with _MAKING:
        made: RecordedCalls = attempt.recorded_calls or RecordedCalls(attempt)
        attempt.recorded_calls = made
        return made


def _that_counts(before: Sequence[_Found], request: Request | None) -> _Found | None:
    """Return the result that counts for a request; None: there is none.

    The first one that is in the run: a person has told it, or a version before this one kept it.
    Else the last one that was recorded.
    """
    fitting = [one for one in before if is_for(one.call, request)]
    in_run = (one for one in fitting if one.ref is None)
    return next(in_run, fitting[-1] if fitting else None)


def _when(one: _Found) -> float:
    return 0.0 if one.call.at is None else one.call.at.timestamp()


def _check_type(found: CallResult, type_: str) -> None:
    if found.type and type_ and found.type != type_:
        problem = (
            f"was recorded as {found.type}, and the call returns {type_} now: give a call of "
            f"another type another key"
        )
        raise CallMisfitError(key=found.key, problem=problem)
