"""`leasehold deploy smoke`: whether what was deployed works, a line for each thing.

Strangers are refused, the runs API answers, the sweep has its job, and a small run completes.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import click

from leasehold.cli.deploy.options import installation_options
from leasehold.cli.exit_codes import DONE, FOUND
from leasehold.deploy.installation import Installation
from leasehold.deploy.service_calls import Answer, NoAnswerError, NoTokenError, ServiceCalls
from leasehold.domain.json_text import check_json
from leasehold.domain.manifest import is_run_id
from leasehold.domain.printable import one_line
from leasehold.errors import MissingExtraError
from leasehold.live.call_errors import explain
from leasehold.registry.functions import FunctionEntry

#: The label of its runs.
LABEL: Final = "smoke-test"

#: 401 and 403: IAM lets no one in. 404: Google answers so where a service is not reached at all.
_REFUSALS: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND})
#: What passes: who may call is known everywhere after some minutes, and an instance has to start.
_NOT_YET: Final = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
_LONGEST: Final = 200
_FINAL: Final = ("COMPLETED", "BLOCKED")


class SmokeError(Exception):
    """Something does not work: one line, without a full stop."""


@dataclass
class Smoke:
    """The smoke test of one installation.

    Args:
        calls: of its functions.
        label: by which its run is found.
        timeout_s: how long all of it may take.
        pause: waits so many seconds, between two looks.
    """

    calls: ServiceCalls
    label: str
    timeout_s: float
    pause: Callable[[float], object] = field(default_factory=lambda: threading.Event().wait)

    def __post_init__(self) -> None:
        self._end = self.calls.ends_at = time.monotonic() + self.timeout_s

    def check_strangers(self, function: FunctionEntry) -> str:
        """Call a function without a token, and want an answer of Google's; return what was found.

        Raises:
            SmokeError: anyone may call it, or it could not be asked.
        """
        try:
            answer = self.calls.without_token(function.name)
        except NoAnswerError as error:
            raise SmokeError(str(error)) from error
        status = answer.status
        if _is_of_a_function(answer):
            raise SmokeError(
                f"{function.service} is reached without a token, and has to refuse it itself "
                f"({status}): IAM lets everyone in; `leasehold doctor --live` has the command"
            )
        if status in _REFUSALS:
            return f"{function.service} refuses a call without a token ({status})"
        if status < HTTPStatus.BAD_REQUEST:
            raise SmokeError(f"{function.service} answers anyone ({status}): no one may call it so")
        raise SmokeError(f"{function.service} answers {status} to a call without a token, not 403")

    def check_api(self) -> str:
        """Wait until the runs API answers; return what was found.

        Raises:
            SmokeError: it does not.
        """
        answer = self._until_it_works("/health")
        if not isinstance(answer.body, dict) or answer.body.get("status") != "ok":
            raise SmokeError(f"GET /health is answered by something else: {_short(answer.body)}")
        return f"the runs API answers at {self.calls.url_of('serve_api')}"

    def check_run(self, pipeline: str, given: Any) -> str:
        """Start a run and wait until it has completed; return what was found.

        Raises:
            SmokeError: it has not.
        """
        began = time.monotonic()
        body = {
            "pipeline": pipeline,
            "input": given,
            "labels": {LABEL: self.label},
            "idempotencyKey": f"{LABEL}-{self.label}",
        }
        run_id = self._run_id(self._until_it_works("/runs", body))
        run = self._ended(run_id)
        if run["status"] != "COMPLETED":
            error = (run.get("error") or {}).get("message", "")
            why = f"{run['status']}{': ' + error if error else ''}"
            raise SmokeError(f"run {run_id} of {pipeline} is {_short(why)}; {_why(run_id)}")
        return f"run {run_id} of {pipeline} completed in {time.monotonic() - began:.0f} s"

    def _ended(self, run_id: str) -> dict[str, Any]:
        while True:
            run = self._until_it_works(f"/runs/{run_id}").body
            if not isinstance(run, dict) or "status" not in run:
                raise SmokeError(f"run {run_id} is answered as {_short(run)}")
            if run["status"] in _FINAL or run.get("deadLettered"):
                return run
            if time.monotonic() >= self._end:
                raise SmokeError(
                    f"run {run_id} is still {_short(run['status'])} after {self.timeout_s:g} s; "
                    f"{_why(run_id)}"
                )
            self.pause(1.0)

    def _run_id(self, answer: Answer) -> str:
        run_id = answer.body.get("runId") if isinstance(answer.body, dict) else None
        is_one = isinstance(run_id, str) and is_run_id(run_id)
        if answer.status >= HTTPStatus.BAD_REQUEST or not is_one:
            raise SmokeError(f"no run is started: {answer.status} {_short(answer.body)}")
        return str(run_id)

    def _until_it_works(self, path: str, body: Any = None) -> Answer:
        """Call the runs API until what passes has passed."""
        while True:
            try:
                answer = self.calls.api(path, body)
                problem = f"{path} is answered {answer.status} {_short(answer.body)}"
                if not _may_pass(answer):
                    return answer
            except NoTokenError as error:
                raise SmokeError(str(error)) from error
            except NoAnswerError as error:
                problem = str(error)
            if time.monotonic() >= self._end:
                raise SmokeError(f"after {self.timeout_s:g} s {problem}")
            self.pause(2.0)


def _may_pass(answer: Answer) -> bool:
    """Return whether another answer may come later."""
    if _is_of_a_function(answer):
        return answer.status == HTTPStatus.SERVICE_UNAVAILABLE
    return answer.status in _NOT_YET


def _is_of_a_function(answer: Answer) -> bool:
    """Return whether a function has refused it: what Google answers itself is not JSON."""
    return isinstance(answer.body, dict) and "error" in answer.body


def _why(run_id: str) -> str:
    return f"look at it: leasehold why {run_id}"


def _short(value: object) -> str:
    """Return what someone sent in one line."""
    return one_line(value if isinstance(value, str) else json.dumps(value), _LONGEST)


def check_sweep(installation: Installation) -> str:
    """Look for the job that calls the sweep; return what was found.

    Raises:
        SmokeError: there is none, it does not run, or it cannot be looked at.
    """
    from leasehold.live.clients import ONE_TRY, GoogleClients  # noqa: PLC0415 - lazy

    wanted = installation.url_of(installation.functions["sweep_dead_letters"])
    try:
        clients = GoogleClients(installation.project)
    except MissingExtraError as error:
        raise SmokeError(f"jobs: {error.message}") from error
    try:
        scheduler = clients.scheduler
        jobs = list(scheduler.list_jobs({"parent": installation.location}, **ONE_TRY))
    except Exception as error:
        raise SmokeError(f"jobs: {explain(error, installation.project)}") from error
    for job in jobs:
        if job.http_target.uri.startswith(wanted):
            if job.state.name != "ENABLED":
                raise SmokeError(f"job {job.name} is {job.state.name}: no sweep comes")
            return f"the sweep is called by {job.name.rpartition('/')[2]}, {job.schedule}"
    raise SmokeError("no job calls the sweep: leasehold deploy apply makes it")


@click.command()
@installation_options
@click.option(
    "--pipeline",
    envvar="LEASEHOLD_SMOKE_PIPELINE",
    default="",
    help="Start a run of it and wait until it has completed; by default none is started.",
)
@click.option(
    "--input", "text", envvar="LEASEHOLD_SMOKE_INPUT", default="{}", help="Its input, as JSON."
)
@click.option(
    "--timeout",
    type=click.FloatRange(1, 3600),
    default=600.0,
    show_default=True,
    help="How many seconds all of it may take.",
)
def smoke(*, installation: Installation, pipeline: str, text: str, timeout: float) -> int:
    """Test what was deployed: a line for each thing that works or does not; 1 if one does not."""
    try:
        check_json(text or "{}")
    except ValueError:
        raise click.UsageError(f"--input is {text[:_LONGEST]!r}; allowed: JSON.") from None
    given = json.loads(text or "{}")
    label = os.environ.get("LEASEHOLD_BUILD") or secrets.token_hex(4)
    smoke = Smoke(ServiceCalls(installation), label, timeout)
    failed = 0
    for check in _checks(smoke, installation, pipeline, given):
        try:
            click.echo(f"ok      {check()}")
        except SmokeError as error:
            failed += 1
            click.echo(f"failed  {str(error).rstrip('.')}.")
    if not pipeline:
        click.echo("skipped a run: --pipeline NAME --input JSON starts one.")
    return FOUND if failed else DONE


def _checks(
    smoke: Smoke, installation: Installation, pipeline: str, given: Any
) -> Iterator[Callable[[], str]]:
    for function in installation.functions:
        yield partial(smoke.check_strangers, function)
    yield partial(check_sweep, installation)
    yield smoke.check_api
    if pipeline:
        yield partial(smoke.check_run, pipeline, given)
