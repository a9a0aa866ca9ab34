"""Failures of an endpoint, as errors that the engine retries, or does not."""

from http import HTTPStatus
from typing import Any, Final

import openai
from pydantic import BaseModel, ValidationError

from leasehold import AgentClientError, PermanentError
from pipelines.review.llm_settings import KEY, MODEL, URL, Endpoint

EXCERPT: Final = 500  # characters of an answer that are kept
ISSUES: Final = 10
_WORDS: Final = 120
_REFUSED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_PASSING: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY})


def failure_of(error: openai.OpenAIError, endpoint: Endpoint) -> AgentClientError | PermanentError:
    """Return what an error of the client means for the step; the key stands nowhere in it."""
    if isinstance(error, openai.APITimeoutError):
        return timed_out(endpoint, endpoint.answer_s)
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__
        problem = endpoint.hide(f"{type(cause).__name__}: {cause}" if cause else error.message)
        return AgentClientError(f"{endpoint.host} cannot be reached: {problem}", code="unreachable")
    if isinstance(error, openai.APIStatusError):
        return _of_status(error, endpoint)
    problem = endpoint.hide(str(error))[:EXCERPT]
    return AgentClientError(
        f"The request to {endpoint.host} failed: {problem}", code="provider_error"
    )


def timed_out(endpoint: Endpoint, seconds: float) -> AgentClientError:
    """Return the error of an endpoint that did not answer in time."""
    return AgentClientError(
        f"{endpoint.host} did not answer within {seconds:g} s.",
        code="timeout",
        details={"model": endpoint.model, "seconds": seconds},
    )


def misfit(
    error: ValidationError, text: str, answer: type[BaseModel], **facts: Any
) -> AgentClientError:
    """Return the error of an answer that is not JSON or does not fit, with its issues."""
    issues = [
        {
            "path": ".".join(str(part) for part in issue["loc"])[:_WORDS],
            "message": issue["msg"][:_WORDS],
        }
        for issue in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    first = issues[0]
    return AgentClientError(
        f"The model's answer does not fit {answer.__name__}: "
        f"{first['path'] or 'the answer itself'}: {first['message']}"
        + (f" (and {len(issues) - 1} more)" if len(issues) > 1 else ""),
        code="invalid_answer",
        details={"issues": issues[:ISSUES], "excerpt": text[:EXCERPT], **facts},
    )


def is_about_the_schema(error: openai.OpenAIError) -> bool:
    """Return whether an endpoint refuses to be told the shape of the answer."""
    refuses = isinstance(error, openai.BadRequestError | openai.UnprocessableEntityError)
    words = str(error).lower()
    return refuses and ("response_format" in words or "json_schema" in words)


def _of_status(
    error: openai.APIStatusError, endpoint: Endpoint
) -> AgentClientError | PermanentError:
    status = error.status_code
    message = endpoint.hide(_message_of(error))[:EXCERPT]
    facts = {
        "status": status,
        "said": message,
        "providerCode": error.code and endpoint.hide(error.code)[:_WORDS],
        "requestId": error.request_id and endpoint.hide(error.request_id)[:_WORDS],
    }
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        after = error.response.headers.get("retry-after")
        return AgentClientError(
            f"{endpoint.host} takes no more requests now"
            + (f" (retry-after: {after[:_WORDS]})" if after else "")
            + f": {message}",
            code="rate_limited",
            details=facts | {"retryAfter": after and after[:_WORDS]},
        )
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _PASSING:
        return AgentClientError(
            f"{endpoint.host} answered {status}: {message}", code="provider_error", details=facts
        )
    if status in _REFUSED:
        return PermanentError(
            f"{endpoint.host} refuses the key ({status}): {message} Check {KEY} and {URL}.",
            code="unauthorized",
        )
    if status == HTTPStatus.NOT_FOUND:
        return PermanentError(
            f"{endpoint.host} does not know model {endpoint.model!r}, or has no chat completions "
            f"there (404): {message} Check {MODEL} and {URL}.",
            code="unknown_model",
        )
    return PermanentError(
        f"{endpoint.host} refuses the request ({status}): {message} Check {MODEL}, or review less "
        "at a time.",
        code="bad_request",
    )


def _message_of(error: openai.APIStatusError) -> str:
    """Return what the endpoint says of it, which may be anything."""
    body = error.body
    message = body.get("message") if isinstance(body, dict) else body
    words = " ".join(str(message or error.message).split())
    return words if words.endswith((".", "!", "?")) else f"{words}."
