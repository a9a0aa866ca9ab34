"""A remote worker in a test: it claims a step, calls a function of the test, and settles.

It does so through the services that `manage_lease` calls, so the same calls are refused:
a lease that is over, an output that does not fit, a file whose name may not be.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pydantic_core

from leasehold.domain.lease import fence_of
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Progress
from leasehold.domain.result import SignalRequest, StepResult
from leasehold.domain.spend import checked_spend
from leasehold.domain.stored import replace
from leasehold.errors import LeaseLostError, NothingToClaimError
from leasehold.frozen import dataclass
from leasehold.hooks import hook
from leasehold.registry.dispatch import REMOTE
from leasehold.registry.pipelines import Catalog
from leasehold.remote_workers import manage_lease
from leasehold.remote_workers.claim_step import ClaimedStep, claim_step
from leasehold.remote_workers.manage_lease import (
    LeaseCredentials,
    complete_step,
    fail_step,
    release_step,
    renew_lease,
    save_checkpoint,
)
from leasehold.services.engine import Engine
from leasehold.services.request_bounds import MAX_PAGE_ITEMS
from leasehold.testing.arguments import json_text, refuse
from leasehold.worker.context.checkpoints import IncrementalState
from leasehold.worker.failures.failures import record_of
from leasehold.worker.failures.retry_hints import is_permanent

#: What a remote worker of a test does: `(step, given)`, sync or async.
RemoteFunction = Callable[["RemoteStep", Any], Any]

_HOLDER: Final = "remote-worker-of-a-test"


class _ReleasedError(BaseException):
    """Ends the function: its worker releases the step."""

    def __init__(self, *, continued: bool) -> None:
        super().__init__()
        self.continued = continued


class _SettledError(BaseException):
    """Ends the function: its attempt is over."""


@dataclass(frozen=True, slots=True)
class RemoteFiles:
    """The files of the run, as `:putFile`, `:getFile` and `:listFiles` have them.

    Raises, in each method:
        LeaseLostError: the lease is over, or another worker has the step.
    """

    _engine: Engine
    _credentials: LeaseCredentials

    def put(self, name: str, data: bytes) -> None:
        """Store a file whole, in place of an earlier one of that name.

        Raises:
            ArtifactNameError, FileTooLargeError: nothing was stored.
        """
        manage_lease.put_file(self._engine, self._credentials, name, data)

    def get(self, name: str) -> bytes:
        """Return the bytes of a file of the run.

        Raises:
            UnknownFileError, ArtifactNameError: there is none of that name, or can be none.
            FileTooLargeError: it is too large for a worker's call.
        """
        return manage_lease.get_file(self._engine, self._credentials, name)

    def list(self) -> Sequence[str]:
        """Return the names of the files of the run: of the first page, sorted."""
        page = manage_lease.list_leased_files(
            self._engine, self._credentials, limit=MAX_PAGE_ITEMS, page_token=None
        )
        return list(page.sizes)


class RemoteStep:
    """The step that a remote worker has, with what it may call under its lease.

    Attributes:
        run_id: the run.
        step: the name of the step in its pipeline.
        step_type: its type.
        attempt: the number of the attempt, from 1.
        trial: the number of the trial, from 1.
        resume: what an earlier attempt kept; None: begin at the beginning.
        findings: what the reviewer of the trial before found: JSON values.
        time_limit: how long the attempt may take, as a timedelta.
        artifacts: the files of the run, a `RemoteFiles`.

    Raises, in each method:
        LeaseLostError: the lease is over, or another worker has the step.
    """

    def __init__(self, engine: Engine, claimed: ClaimedStep) -> None:
        run = claimed.manifest
        self.run_id, self.step, self.step_type = run.run_id, run.position.step, run.step_type
        self.attempt, self.trial = run.position.attempt, run.position.trial
        self.resume = _resume(claimed)
        self.findings = claimed.findings
        self.time_limit = timedelta(milliseconds=run.position.dispatch.timeout_ms)
        self._engine, self._credentials = engine, _credentials_of(run)
        self.artifacts = RemoteFiles(engine, self._credentials)

    @property
    @hook
    def credentials(self) -> LeaseCredentials:
        """Its credentials, with what it has spent, for each call."""
        return self._credentials

    def renew(self) -> None:
        """Let the lease run on."""
        renew_lease(self._engine, self._credentials)

    def progress(self, fraction: float, message: str = "") -> None:
        """Let the lease run on, and note how far the work is.

        Args:
            fraction: from 0 to 1.
            message: for people.
        """
        renew_lease(self._engine, self._credentials, Progress(fraction=fraction, message=message))

    def spend(self, *, tokens: int = 0, usd: float = 0.0) -> None:
        """Note what the work has cost, and let the lease run on.

        Args:
            tokens: how many, beside those that were noted before.
            usd: US dollars, beside those that were noted before.

        Raises:
            InvalidRequestError: an argument is not what it may be; nothing was noted.
        """
        spent = checked_spend(tokens, usd).plus(self._credentials.spent)
        self._credentials = replace(self._credentials, spent=spent)
        self.renew()

    def checkpoint(self, iteration_count: int, partial_results: Any, phase: str = "") -> None:
        """Keep what there is so far, for the next attempt, and let the lease run on.

        Args:
            iteration_count: how many iterations are done; not less than in an earlier checkpoint.
            partial_results: JSON values; the next attempt has them as `resume.partial_results`.
            phase: the part of the work that they belong to.

        Raises:
            InvalidRequestError: an argument is not what it may be; nothing was kept.
            TooLargeError: the results are too large; nothing was kept.
        """
        save_checkpoint(
            self._engine,
            self._credentials,
            iteration_count=iteration_count,
            phase=phase,
            partial_results=json_text("partial_results", partial_results),
        )

    def wait_for(
        self, name: str, *, timeout: timedelta | None = None, otherwise: str = "block"
    ) -> Any:
        """Return a signal; or end the attempt here, for the next one to begin with it.

        Args:
            name: of the signal; 1 to 128 of `a-z A-Z 0-9 _ - .`.
            timeout: how long the run waits; None: for any time.
            otherwise: what then: `block` has a person decide; with `continue` and `fail` the next
                attempt is given None.

        Returns:
            The value of the signal, as JSON has it; None where none came in time.
        """
        timeout_s = None if timeout is None else timeout.total_seconds()
        wanted = SignalRequest(name, timeout_s, otherwise)
        found, _ = manage_lease.await_signal(self._engine, self._credentials, wanted)
        if found is None:
            raise _SettledError
        return pydantic_core.from_json(found.text)

    def release(self) -> None:
        """End here, as a worker that is shut down: another one may claim the step at once."""
        raise _ReleasedError(continued=False)

    def continue_later(self) -> None:
        """End here, to go on from the last checkpoint: the step takes longer than an attempt."""
        raise _ReleasedError(continued=True)


def checked_remote(remote: Mapping[str, RemoteFunction], catalog: Catalog) -> None:
    """Refuse what plays no step for remote workers.

    Raises:
        InvalidRequestError: a name is no such step, or a value cannot be called.
    """
    steps = [entry.step_type for entry in catalog.steps if entry.handler == REMOTE]
    allowed = f"a step whose handler is 'remote' ({', '.join(steps) or 'none'})"
    for name, function in remote.items():
        if name not in steps:
            refuse("remote", name, allowed)
        if not callable(function):
            refuse(f"remote[{name!r}]", function, "a function (step, given)")


def play_remote(engine: Engine, remote: Mapping[str, RemoteFunction]) -> int:
    """Claim and work at each step that waits now, one after the other; return how many.

    Raises:
        InvalidOutputError, TooLargeError: the function's output is refused; it still has the step.
    """
    played = 0
    for step_type, function in remote.items():
        with suppress(NothingToClaimError):
            while True:
                claimed = claim_step(engine, step_type, _HOLDER)
                with suppress(LeaseLostError):  # it took too long: what it made counts for nothing
                    _work(engine, claimed, function)
                played += 1
    return played


def _work(engine: Engine, claimed: ClaimedStep, function: RemoteFunction) -> None:
    step = RemoteStep(engine, claimed)
    try:
        output = _called(function, step, claimed)
    except _ReleasedError as end:
        release_step(engine, step.credentials, continued=end.continued)
    except _SettledError:
        return
    except Exception as error:  # noqa: BLE001 - a worker reports whatever its work raises
        fail_step(engine, step.credentials, record_of(error), permanent=is_permanent(error))
    else:
        result = output if isinstance(output, StepResult) else StepResult(output)
        output = json_text("output", result.output)
        complete_step(engine, step.credentials, output, result.status, result.skip_to)


def _called(function: RemoteFunction, step: RemoteStep, claimed: ClaimedStep) -> Any:
    call = partial(function, step, pydantic_core.from_json(claimed.given))
    answer = call()
    return asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer


async def _awaited(answer: Any) -> Any:
    return await answer


def _credentials_of(run: Manifest) -> LeaseCredentials:
    return LeaseCredentials(run.run_id, fence_of(run))


def _resume(claimed: ClaimedStep) -> IncrementalState | None:
    kept = claimed.manifest.position.checkpoint
    if kept is None or claimed.partial_results is None:
        return None
    found = pydantic_core.from_json(claimed.partial_results)
    return IncrementalState(kept.phase, kept.iteration_count, found)
