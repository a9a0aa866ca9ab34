"""An agent that asks a model, at any endpoint that speaks OpenAI's chat completions.

Needs the extra `llm`. The engine retries, so the client does not; and the time an answer may take
is counted here, because the client's own limit begins anew with each byte that trickles in.
"""

import asyncio
import functools
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import openai
from pydantic import BaseModel, Field, ValidationError

from leasehold import AgentClientError, PermanentError, StepContext
from pipelines.review.tasks import MODEL, A, ModelAgent, answer_seconds, model_name, refuse

KEY: Final = "OPENAI_API_KEY"
URL: Final = "OPENAI_BASE_URL"
_SHORTEST_SECRET: Final = 6  # what is shorter stands for no key, and may be any word

EXCERPT: Final = 500  # characters of an answer that are kept
ISSUES: Final = 10


class Message(BaseModel):
    """The text of the model, or its reason for none."""

    content: str | None = None
    refusal: str | None = None


class Choice(BaseModel):
    """One answer, and why it ended."""

    message: Message
    finish_reason: str | None = None


class Completion(BaseModel):
    """The response, as far as it is used; the client itself takes any for one."""

    choices: list[Choice] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint that speaks OpenAI's chat completions.

    Args:
        key: sent with each request, and shown nowhere.
        url: where `/chat/completions` is added.
        model: its name there.
        answer_s: seconds that one answer may take.
    """

    key: str = field(repr=False)
    url: str
    model: str
    answer_s: float

    @property
    def host(self) -> str:
        """Its host and port, for people."""
        return urlsplit(self.url).netloc

    def hide(self, text: str) -> str:
        """Return the text without the key: some endpoints say in their answers what they got."""
        return text if len(self.key) < _SHORTEST_SECRET else text.replace(self.key, f"[{KEY}]")


class OpenAIAgent(ModelAgent):
    """Asks a model, and takes nothing for an answer but what fits.

    Args:
        ctx: the attempt; no answer is waited for once it should end.
        endpoint: which model, and where.
    """

    def __init__(self, ctx: StepContext, endpoint: Endpoint) -> None:
        super().__init__(ctx, endpoint.answer_s)
        self._endpoint = endpoint

    @property
    def name(self) -> str:
        """The model and its host."""
        return f"{self._endpoint.model} at {self._endpoint.host}"

    def _ask(self, task: str, question: BaseModel, answer: type[A]) -> A:
        shape = json.dumps(answer.model_json_schema(), separators=(",", ":"))
        request = self._response(
            f"{task}Answer with JSON alone, which fits this JSON schema: {shape}",
            question.model_dump_json(),
        )
        try:
            text = asyncio.run(self._in_time(request))
        except openai.OpenAIError as error:
            # without its cause, whose words may hold the key
            raise failure_of(error, self._endpoint) from None
        except TimeoutError as error:
            (seconds,) = error.args
            raise AgentClientError(
                f"{self._endpoint.host} did not answer within {seconds:g} s.",
                code="timeout",
                details={"model": self._endpoint.model, "seconds": seconds},
            ) from None
        return _answer(self._endpoint.hide(text), answer)

    async def _response(self, task: str, material: str) -> str:
        """Return the body of the response, whatever it is."""
        async with openai.AsyncOpenAI(
            api_key=self._endpoint.key,
            base_url=self._endpoint.url,
            timeout=None,
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(verify=_trusted()),
        ) as client:
            raw = await client.chat.completions.with_raw_response.create(
                model=self._endpoint.model,
                messages=[
                    {"role": "system", "content": task},
                    {"role": "user", "content": material},
                ],
            )
        return str(raw.http_response.text)


@functools.cache
def _trusted() -> ssl.SSLContext:
    """Return whom to trust; it is read once, as that takes far longer than all else of a client."""
    return httpx2.create_ssl_context()


def endpoint_of(environ: Mapping[str, str]) -> Endpoint:
    """Return the endpoint that the environment names.

    Raises:
        PermanentError: a variable is missing or has a value that cannot be used.
    """
    key = environ.get(KEY, "")
    if not (key.isascii() and key.isprintable() and key and " " not in key):
        allowed = "a key in printable ASCII; any word where the endpoint asks for none"
        refuse(KEY, "not a key" if key else "not set", allowed)
    return Endpoint(
        key=key,
        url=_url(environ.get(URL) or "https://api.openai.com/v1"),
        model=model_name(environ),
        answer_s=answer_seconds(environ),
    )


def failure_of(error: openai.OpenAIError, endpoint: Endpoint) -> AgentClientError | PermanentError:
    """Return what an error of the client means for the step; the key stands nowhere in it."""
    if not isinstance(error, openai.APIStatusError):
        cause = error.__cause__
        problem = endpoint.hide(f"{type(cause).__name__}: {cause}" if cause else str(error))
        code = "unreachable" if isinstance(error, openai.APIConnectionError) else "provider_error"
        return AgentClientError(f"{endpoint.host} cannot be asked: {problem[:EXCERPT]}", code=code)
    status, said = error.status_code, endpoint.hide(_message_of(error))[:EXCERPT]
    message = f"{endpoint.host} answered {status}: {said}"
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= 500 or status in {408, 409, 425}:  # noqa: PLR2004
        return AgentClientError(
            message,
            code="rate_limited" if status == HTTPStatus.TOO_MANY_REQUESTS else "provider_error",
            details={"status": status, "said": said, "requestId": error.request_id},
            retry_after=error.response.headers.get("retry-after"),
        )
    code, advice = {
        401: ("unauthorized", f"Check {KEY} and {URL}."),
        403: ("unauthorized", f"Check {KEY} and {URL}."),
        404: ("unknown_model", f"Check {MODEL} and {URL}."),
    }.get(status, ("bad_request", f"Check {MODEL}, or review less at a time."))
    return PermanentError(f"{message} {advice}", code=code)


def _answer(body: str, answer: type[A]) -> A:
    try:
        choice = Completion.model_validate_json(body).choices[0]
    except ValidationError as error:
        raise _misfit(error, body, Completion) from None
    message, reason = choice.message, choice.finish_reason
    if message.refusal or reason == "content_filter":
        raise AgentClientError(
            "The model refuses to answer.",
            code="refused",
            details={"said": (message.refusal or "")[:EXCERPT], "finishReason": reason},
        )
    content = message.content or ""
    try:
        return answer.model_validate_json(_without_fence(content))
    except ValidationError as error:
        raise _misfit(error, content, answer, finishReason=reason) from None


def _misfit(
    error: ValidationError, text: str, answer: type[BaseModel], **facts: Any
) -> AgentClientError:
    """Return the error of an answer that is not JSON or does not fit, with its issues."""
    issues = error.errors(include_url=False, include_context=False, include_input=False)
    return AgentClientError(
        f"The model's answer does not fit {answer.__name__}: {issues[0]['msg'][:EXCERPT]}",
        code="invalid_answer",
        details={"issues": issues[:ISSUES], "excerpt": text[:EXCERPT], **facts},
    )


def _without_fence(content: str) -> str:
    """Return the JSON of an answer that stands in a block of code, as some models write it."""
    text = content.strip()
    first, _, rest = text.partition("\n")
    fenced = first.startswith("```") and text.endswith("\n```")
    return rest.removesuffix("```") if fenced else content


def _message_of(error: openai.APIStatusError) -> str:
    """Return what the endpoint says of it, which may be anything."""
    body = error.body
    message = body.get("message") if isinstance(body, dict) else body
    said = " ".join(str(message or error.message).split())
    return said if said.endswith((".", "!", "?")) else f"{said}."


def _url(text: str) -> str:
    allowed = f"http://HOST/PATH or https://…, without user or query; the key stands in {KEY}"
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        refuse(URL, "not an address", allowed)
    if not usable or "@" in parts.netloc or parts.query or parts.fragment:
        refuse(URL, "not such an address", allowed)
    return text
