"""What remote workers do with a lease that they were given: renew it, and settle the step.

A worker sends its credentials with each call: the run, its lease and the token that came with it.
The lifecycle decides what they are worth. How it gets a lease: `remote_workers/claim_step.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from leasehold.attempt.attempt import Attempt
from leasehold.attempt.calls import AttemptCalls, FoundSignal
from leasehold.attempt.checkpoints import keep_checkpoint
from leasehold.attempt.recorded_calls import recorded_calls_of
from leasehold.attempt.settlement import ending_of
from leasehold.domain import lifecycle
from leasehold.domain.artifact_name import check_artifact_name, files_folder
from leasehold.domain.change import Change
from leasehold.domain.checkpoint import CallResult
from leasehold.domain.json_text import MAX_OUTPUT_BYTES, check_size
from leasehold.domain.lease import Fence
from leasehold.domain.lifecycle.settle import first_answer
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import ErrorRecord, Progress
from leasehold.domain.recorded_calls import MAX_RESULTS_PER_STEP, MadeCall, fingerprint_of
from leasehold.domain.result import (
    Continued,
    Failed,
    Finished,
    Result,
    SignalRequest,
    Stopped,
    Unable,
)
from leasehold.domain.spend import Spend
from leasehold.domain.status import BlockCode, Termination
from leasehold.errors import (
    MAX_VALUE_SHOWN_CHARS,
    CallVariesError,
    FileTooLargeError,
    HandlerNotFoundError,
    LeaseLostError,
    TooManyCallsError,
)
from leasehold.frozen import dataclass
from leasehold.services.engine import Engine, find_run, publish_owed
from leasehold.services.execute_step import through_gates
from leasehold.services.output_checks import check_output, check_verdict
from leasehold.services.read_results import FilePage, list_files, open_file
from leasehold.services.request_bounds import MAX_FILE_BYTES

#: A page of recorded calls has texts of so many bytes, or one result.
_MAX_PAGE_BYTES: Final = 8 * 1024 * 1024

_RELEASED: Final = "The worker released the step; another one may claim it at once."


@dataclass(frozen=True, slots=True)
class LeaseCredentials:
    """What a worker sends with each call: the run, and the lease on it that it was given.

    `spent`: what its attempt has spent so far, which is kept with what the call writes.
    """

    run_id: str
    fence: Fence
    spent: Spend | None = None


def renew_lease(
    engine: Engine, credentials: LeaseCredentials, progress: Progress | None = None
) -> Change:
    """Let the lease run on, and note how far the worker is.

    Raises:
        UnknownRunError, StoreUnavailableError: nothing was changed.
        LeaseLostError: nothing was changed; or the attempt was still at work at its dispatch
            deadline, and was ended as failed.
    """
    attempt = _attempt(engine, credentials)
    if progress is not None:
        attempt.progress = progress
    return attempt.renew()


def save_checkpoint(
    engine: Engine,
    credentials: LeaseCredentials,
    *,
    iteration_count: int,
    phase: str,
    partial_results: str,
) -> Manifest:
    """Keep the worker's results so far, JSON text, for the next attempt; renew the lease.

    Raises:
        InvalidRequestError: it goes back behind the worker's last one. Nothing was changed.
        TooLargeError, and as `renew_lease`: nothing was changed.
    """
    check_size("partialResults", partial_results, MAX_OUTPUT_BYTES)
    attempt = _attempt(engine, credentials)
    attempt.check_held()  # before anything is stored
    keep_checkpoint(attempt, iteration_count, phase, partial_results)
    return attempt.manifest


def record_call(
    engine: Engine, credentials: LeaseCredentials, made: MadeCall
) -> tuple[Manifest, str]:
    """Record the result of a call, unless its key has one; renew the lease.

    Returns:
        The run, and the result that counts, JSON text: the first one that was recorded.

    Raises:
        TooManyCallsError: there is no room for it. Nothing was changed.
        TooLargeError, and as `renew_lease`: nothing was changed.
    """
    attempt = _attempt(engine, credentials)
    attempt.check_held()  # before anything is stored
    calls = recorded_calls_of(attempt)
    is_full = attempt.manifest.position.recorded_calls >= MAX_RESULTS_PER_STEP
    if is_full and not calls.has(made):  # one that is sent again needs no room
        raise TooManyCallsError(key=made.key, limit=MAX_RESULTS_PER_STEP)
    _, stored, is_new = calls.keep(made)
    if is_new:
        attempt.renew(partial(lifecycle.record_call, spend=made.spend))
    else:  # the process that recorded it may not have lived to count it
        calls.count()
        attempt.renew()
    return attempt.manifest, calls.text_of(stored, made.result)


def recorded_calls(
    engine: Engine,
    credentials: LeaseCredentials,
    *,
    key: str | None,
    request: object,
    limit: int,
    page_token: str | None,
) -> tuple[list[tuple[CallResult, str]], str | None]:
    """Return recorded calls that count for the attempt, with their results, sorted by their keys.

    Args:
        engine: the parts.
        credentials: of the worker.
        key: that of this call alone; None: all.
        request: those for this request alone, JSON values; None: for any.
        limit: how many at most.
        page_token: of an earlier page; None: the first one.

    Returns:
        Some calls and the text of each, and the token of the next page; None: there are no more.

    Raises:
        CallVariesError: it asks before it pays for a call, and each attempt asks for something
            else. The run is blocked, as for a mistake of any handler.
        UnknownRunError, LeaseLostError, StoreUnavailableError: as `renew_lease`.
    """
    attempt = _attempt(engine, credentials)
    attempt.check_held()
    page: list[tuple[CallResult, str]] = []
    size = 0
    asked = None if request is None else fingerprint_of(request)
    calls = recorded_calls_of(attempt)
    has_news = calls.count()
    if key is not None and asked is not None:
        try:
            has_news |= calls.note_request(key, asked)
        except CallVariesError as error:
            _settle(engine, attempt, Unable(BlockCode.HANDLER_MISTAKE, ErrorRecord.of(error)))
            raise
    if has_news:
        attempt.renew()
    for call, text in calls.found(page_token or "", key, asked):
        size += len(text)
        if page and (len(page) == limit or size > _MAX_PAGE_BYTES):
            return page, page[-1][0].key
        page.append((call, text))
    return page, None


def complete_step(
    engine: Engine,
    credentials: LeaseCredentials,
    output: str,
    status: str,
    skip_to: str | None = None,
) -> Change:
    """Record the output, JSON text, and hand off to the next step, or to the one it skips to.

    Raises:
        InvalidRequestError: it cannot skip there.
        InvalidOutputError: it does not fit the step's model, or what the next step is given; or
            it is a reviewer's and has no verdict.
        TooLargeError, and as `renew_lease`: nothing was changed; an output that could not be
            stored may be sent again.
    """
    attempt = _attempt(engine, credentials)
    try:
        attempt.check_held()
    except LeaseLostError:  # the output counts for nothing, unless it was recorded before
        if answer := first_answer(attempt.manifest, attempt.fence):
            return publish_owed(engine, answer)
        raise
    done = Finished(output, status, skip_to=skip_to)
    finished: Result = done
    try:
        check_output(engine, attempt.manifest, output, skip_to)
    except HandlerNotFoundError as error:  # no mistake of the worker's, and its work is done
        if status != "ERROR":
            finished = Unable(BlockCode.HANDLER_UNAVAILABLE, ErrorRecord.of(error), done)
    if status != "ERROR":  # which fails the attempt, whatever it says
        check_verdict(attempt.manifest, output)
    check_size("output", output, MAX_OUTPUT_BYTES)
    return _settle(engine, attempt, finished)


def fail_step(
    engine: Engine, credentials: LeaseCredentials, error: ErrorRecord, *, permanent: bool
) -> Change:
    """Record why the attempt failed; it is repeated after its backoff, or the run is given up.

    Raises:
        UnknownRunError, LeaseLostError, StoreUnavailableError: as `renew_lease`.
    """
    return _settle(engine, _attempt(engine, credentials), Failed(error, permanent))


def block_step(
    engine: Engine, credentials: LeaseCredentials, code: BlockCode, error: ErrorRecord
) -> Change:
    """Block the run until the code, or what it is given, is put right; the attempt counts not.

    Raises:
        UnknownRunError, LeaseLostError, StoreUnavailableError: as `renew_lease`.
    """
    return _settle(engine, _attempt(engine, credentials), Unable(code, error))


def release_step(
    engine: Engine, credentials: LeaseCredentials, *, continued: bool = False
) -> Change:
    """Release the lease: another worker may go on at once, and no retry is used up.

    Args:
        engine: the parts.
        credentials: of the worker.
        continued: the step takes longer than an attempt may, and is to be continued; else the
            worker is interrupted.

    Raises:
        UnknownRunError, LeaseLostError, StoreUnavailableError: as `renew_lease`.
    """
    stopped = Stopped(Termination.INSTANCE_SHUTDOWN, _RELEASED)
    return _settle(engine, _attempt(engine, credentials), Continued() if continued else stopped)


def await_signal(
    engine: Engine, credentials: LeaseCredentials, wanted: SignalRequest
) -> tuple[FoundSignal | None, Change | None]:
    """Return a signal, and keep the lease; or end the attempt, for the next one to begin with it.

    Args:
        engine: the parts.
        credentials: of the worker.
        wanted: the signal.

    Returns:
        The signal, or how the attempt ended.

    Raises:
        UnknownRunError, LeaseLostError, StoreUnavailableError: as `renew_lease`.
    """
    attempt = _attempt(engine, credentials)
    try:
        attempt.check_held()
    except LeaseLostError:  # it may have ended by this very call, whose answer was lost
        if answer := first_answer(attempt.manifest, attempt.fence):
            return None, publish_owed(engine, answer)
        raise
    found = None if wanted.refused else AttemptCalls(attempt).find_signal(wanted.name)
    if found is None:
        return None, _settle(engine, attempt, Continued(wanted=wanted))
    attempt.renew()  # with the note that the step has it
    return found, None


def check_lease(engine: Engine, credentials: LeaseCredentials) -> Manifest:
    """Return the run if the worker holds its lease now, or raise as `renew_lease`."""
    attempt = _attempt(engine, credentials)
    attempt.check_held()
    return attempt.manifest


def _attempt(engine: Engine, credentials: LeaseCredentials) -> Attempt:
    known = find_run(engine, credentials.run_id)
    attempt = Attempt(engine, known, credentials.fence)
    if credentials.spent is not None:
        attempt.tally.note_spend(credentials.spent)
    return attempt


def _settle(engine: Engine, attempt: Attempt, result: Result) -> Change:
    """End the attempt with what the gates make of its result, and publish what that owes."""
    result = through_gates(engine, attempt, result)
    settled = attempt.settle(ending_of(attempt, result))
    return publish_owed(engine, settled.answer, settled.snapshot)


# The files of a run, for the remote worker that holds its lease.
#
# The lease is checked before each call, and nothing holds it meanwhile: as with a handler's
# files, a worker that loses it in between may still write, and the last writer wins.


def put_file(engine: Engine, credentials: LeaseCredentials, name: str, data: bytes) -> None:
    """Store a file whole or not at all, in place of an earlier file.

    Raises:
        ArtifactNameError, FileTooLargeError, UnknownRunError, LeaseLostError: nothing was stored.
        StoreUnavailableError: it may be stored; the call may be repeated.
    """
    check_artifact_name(name)
    if len(data) > MAX_FILE_BYTES:
        remedy = "Store it elsewhere, and give its address in the output."
        raise _too_large(name, len(data), remedy)
    run = check_lease(engine, credentials)
    engine.artifacts.put(f"{files_folder(run)}/{name}", data)


def get_file(engine: Engine, credentials: LeaseCredentials, name: str) -> bytes:
    """Return a file of the run.

    Raises:
        UnknownFileError, and as `put_file`.
    """
    run = check_lease(engine, credentials)
    with open_file(engine, run.run_id, name) as content:
        if content.size > MAX_FILE_BYTES:
            remedy = f"Read it with GET /runs/{run.run_id}/files/NAME of serve_api."
            raise _too_large(name, content.size, remedy)
        return b"".join(content.blocks)


def list_leased_files(
    engine: Engine, credentials: LeaseCredentials, *, limit: int, page_token: str | None
) -> FilePage:
    """Return the files of the run, as `list_files`."""
    run = check_lease(engine, credentials)
    return list_files(engine, run.run_id, limit=limit, page_token=page_token)


def _too_large(name: str, size: int, remedy: str) -> FileTooLargeError:
    return FileTooLargeError(
        name=name[:MAX_VALUE_SHOWN_CHARS], size=size, limit=MAX_FILE_BYTES, remedy=remedy
    )
