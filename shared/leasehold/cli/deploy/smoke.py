"""`leasehold deploy smoke`: whether what was deployed works, a line for each thing.

Strangers are refused, the runs API answers, the sweep has its job, and a small run completes.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import os
import re
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import cached_property, partial
from http import HTTPStatus
from typing import Any, Final

import click
import pydantic_core

from leasehold.bounded_calls import start_call
from leasehold.cli.deploy.options import installation_options
from leasehold.cli.exit_codes import DONE, FOUND
from leasehold.deploy.installation import Installation
from leasehold.domain.json_text import check_json
from leasehold.domain.manifest import is_run_id
from leasehold.domain.printable import one_line
from leasehold.errors import MissingExtraError
from leasehold.frozen import dataclass
from leasehold.google_clients.call_errors import explain
from leasehold.google_clients.clients import ONE_TRY, GoogleClients
from leasehold.registry.extras import require_extra
from leasehold.registry.functions import FunctionEntry

# Calls of the functions that are deployed: with an identity token, or with none.


#: `http://HOST:PORT`, a local server in place of all functions: `/SERVICE/…` is what one is called.
EMULATOR: Final = "LEASEHOLD_FUNCTIONS_EMULATOR"
#: An identity token, for a person who calls: `gcloud auth print-identity-token` prints it.
TOKEN: Final = "LEASEHOLD_IDENTITY_TOKEN"  # noqa: S105 - the name of a variable
#: The secret of `leasehold serve`, which no function of Google's is to get.
_OF_SERVE: Final = "LEASEHOLD_TOKEN"

#: What a header can hold.
_TOKEN: Final = re.compile(r"[\w.~+/=-]+", re.ASCII)
#: An identity token is a JSON Web Token: three parts, the first of them JSON.
_IDENTITY: Final = re.compile(r"eyJ[\w-]*\.[\w-]+\.[\w-]+", re.ASCII)

#: An instance may start cold.
_REQUEST_TIMEOUT_S: Final = 60.0
_MIN_REQUEST_S: Final = 1.0
_MAX_ANSWER_BYTES: Final = 16 * 2**20


class NoTokenError(Exception):
    """There is no identity token; the message says what to do."""


class NoAnswerError(Exception):
    """There was no answer; the message says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a function answered; `body` is None where it is not JSON."""

    status: int
    body: Any


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a token is for one service."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@dataclass
class ServiceCalls:
    """Calls the functions of an installation.

    Args:
        installation: which one.
        environ: has a token, where a person gives one.
        ends_at: of time.monotonic; no call is waited for much longer.
    """

    installation: Installation
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    ends_at: float = math.inf

    def url_of(self, name: str) -> str:
        """Return the address of a function."""
        emulator = self.environ.get(EMULATOR)
        function = self.installation.functions[name]
        if emulator:
            return f"{emulator}/{function.service}"
        return self.installation.url_of(function)

    def without_token(self, name: str) -> Answer:
        """Call a function as a stranger would.

        Raises:
            NoAnswerError: there was no answer.
        """
        return self._call(urllib.request.Request(f"{self.url_of(name)}/", b"{}"))  # noqa: S310 - our own

    def api(self, path: str, body: Any = None) -> Answer:
        """Call the runs API.

        Raises:
            NoTokenError: nothing can be called.
            NoAnswerError: there was no answer.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        url = f"{self.url_of('serve_api')}{path}"
        return self._call(urllib.request.Request(url, data, headers))  # noqa: S310 - as above

    @cached_property
    def _token(self) -> str:
        """The token of a person, or of the account that this program runs as."""
        if given := self.environ.get(TOKEN, "").strip():
            if _TOKEN.fullmatch(given) is None:
                raise NoTokenError(
                    f'{TOKEN} is not a token; set {TOKEN}="$(gcloud auth print-identity-token)"'
                )
            _check_email(given)
            return given
        if _IDENTITY.fullmatch(self.environ.get(_OF_SERVE, "").strip()):
            raise NoTokenError(
                f"{_OF_SERVE} has an identity token, and is the secret of `leasehold serve`; "
                f"set {TOKEN} in its place"
            )
        try:
            require_extra("google", f"a call without {TOKEN}")
        except MissingExtraError as error:
            raise NoTokenError(error.message) from error
        import google.auth.transport.requests as transport  # noqa: PLC0415 - lazy: --help is quick
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415
        from google.oauth2.id_token import fetch_id_token  # noqa: PLC0415

        try:
            audience = self.url_of("serve_api")
            token = fetch_id_token(transport.Request(), audience)  # type: ignore[no-untyped-call]
        except GoogleAuthError as error:
            raise NoTokenError(
                "there is no identity token here; in a build the account needs "
                "roles/iam.serviceAccountOpenIdTokenCreator on itself, and a person sets "
                f'{TOKEN}="$(gcloud auth print-identity-token)"'
            ) from error
        _check_email(str(token))
        return str(token)

    def _call(self, request: urllib.request.Request) -> Answer:
        """Call in a thread: an answer that trickles in has no end that a timeout knows."""
        within_s = max(_MIN_REQUEST_S, min(_REQUEST_TIMEOUT_S, self.ends_at - time.monotonic()))
        asking = start_call(partial(_asked, request, within_s), "service-call")
        if asking is None:
            return _asked(request, within_s)
        try:
            return asking.result(within_s + _MIN_REQUEST_S)
        except TimeoutError:
            raise NoAnswerError(f"{request.full_url} does not answer in time") from None


def _check_email(token: str) -> None:
    """Refuse a token without the claim by which the API knows a caller; Google has both kinds.

    A text that is not a token of three parts is left to the service.
    """
    try:
        part = token.split(".")[1]
        claims = _json_of(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError):
        return
    if isinstance(claims, dict) and not claims.get("email"):
        raise NoTokenError(
            "the identity token names no e-mail, by which callers are known: get one with "
            "`gcloud auth print-identity-token`, and `--include-email` where it impersonates an "
            "account; the metadata server needs `format=full`, generateIdToken `includeEmail`"
        )


def _asked(request: urllib.request.Request, within_s: float) -> Answer:
    opener = urllib.request.build_opener(_Stay)
    try:
        with opener.open(request, timeout=within_s) as answer:
            return Answer(answer.status, _json_of(answer.read(_MAX_ANSWER_BYTES)))
    except urllib.error.HTTPError as refused:
        with refused:
            return Answer(refused.code, _json_of(refused.read(_MAX_ANSWER_BYTES)))
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        why = one_line(str(reason), _MAX_WORDS_CHARS)
        raise NoAnswerError(f"{request.full_url} does not answer: {why}") from error


def _json_of(body: bytes) -> Any:
    try:
        return pydantic_core.from_json(body)
    except ValueError:  # or it is nested too deep to be read
        return None


#: The label of its runs.
LABEL: Final = "smoke-test"

#: 401 and 403: IAM refuses the caller. 404: Google answers so for a service that is not reached.
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
_MAX_WORDS_CHARS: Final = 200
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
            SmokeError: it is public, or it could not be asked.
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
            raise SmokeError(
                f"{function.service} answers without a sign-in ({status}), and must not"
            )
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
    """Return a received text in one line."""
    return one_line(value if isinstance(value, str) else json.dumps(value), _MAX_WORDS_CHARS)


def check_sweep(installation: Installation) -> str:
    """Look for the job that calls the sweep; return what was found.

    Raises:
        SmokeError: there is none, it does not run, or it cannot be looked at.
    """
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
    """Test what was deployed: a line for each thing that works or does not; 1 if one does not.

    \b
    Example:
      leasehold deploy smoke --project shop-prod --region europe-west1
    """  # noqa: D301
    try:
        check_json(text or "{}")
    except ValueError:
        raise click.UsageError(f"--input is {text[:_MAX_WORDS_CHARS]!r}; allowed: JSON.") from None
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
