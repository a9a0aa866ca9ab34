"""An agent that asks a model, at any endpoint that speaks OpenAI's chat completions.

Needs the extra `llm`. The engine retries, so the client does not; and the time an answer may take
is counted here, because the client's own limit begins anew with each byte that trickles in.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

import openai
from pydantic import BaseModel, Field, ValidationError

from leasehold import AgentClientError, StepContext
from pipelines.review.llm_failures import failure_of, is_about_the_schema, misfit, timed_out
from pipelines.review.llm_prompts import (
    ASPECTS,
    CLAIMS,
    DIGEST,
    INSPECTION,
    SUMMARY,
    Objections,
    Picks,
    Points,
    instructions,
    schema_of,
)
from pipelines.review.llm_settings import Endpoint
from pipelines.review.questions import (
    DigestDraft,
    DocumentClaims,
    DraftPoint,
    Excerpt,
    FolderClaims,
    Inspection,
    Objection,
    Pick,
)

A = TypeVar("A", bound=BaseModel)

CLOSING_S: Final = 1.0  # for the connection of a request that is given up


class Message(BaseModel):
    """What the model says, or why it does not."""

    content: str | None = None
    refusal: str | None = None


class Choice(BaseModel):
    """One answer, and why it ended."""

    message: Message
    finish_reason: str | None = None


class Completion(BaseModel):
    """The response, as far as it is used; the client itself takes any for one."""

    choices: list[Choice] = Field(min_length=1)


class OpenAIAgent:
    """Asks a model, and takes nothing for an answer but what fits.

    Args:
        ctx: the attempt; no answer is waited for once it should end.
        endpoint: which model, and where.
    """

    def __init__(self, ctx: StepContext, endpoint: Endpoint) -> None:
        self._ctx = ctx
        self._endpoint = endpoint
        self._with_schema = True  # until the endpoint refuses to be told one

    @property
    def name(self) -> str:
        """The model and its host."""
        return f"{self._endpoint.model} at {self._endpoint.host}"

    def claims(self, excerpt: Excerpt) -> Sequence[Pick]:
        """Have the model pick sentences by their numbers."""
        return self._ask(CLAIMS, excerpt, Picks).picks

    def summary(self, given: DocumentClaims) -> Sequence[DraftPoint]:
        """Have the model say what one document says."""
        return self._ask(SUMMARY, given, Points).points

    def digest(self, given: FolderClaims) -> DigestDraft:
        """Have the model say what matters most over all documents."""
        return self._ask(DIGEST, given, DigestDraft)

    def objections(self, given: Inspection) -> Sequence[Objection]:
        """Have the model say which points are wrong under one aspect."""
        return self._ask(INSPECTION + ASPECTS[given.aspect], given, Objections).objections

    def _ask(self, task: str, question: BaseModel, answer: type[A]) -> A:
        """Return the model's answer, or raise what the engine can judge."""
        try:
            text = asyncio.run(self._in_time(self._response(task, question, answer)))
        except openai.OpenAIError as error:
            # without its cause, whose words may hold the key
            raise failure_of(error, self._endpoint) from None
        return _answer(self._endpoint.hide(text), answer)

    async def _in_time(self, request: Coroutine[Any, Any, str]) -> str:
        """Wait for the response, but no longer than it may take or the attempt lasts."""
        seconds = min(self._endpoint.answer_s, self._ctx.time_left().total_seconds())
        answering = asyncio.ensure_future(request)
        over = asyncio.ensure_future(self._ctx.await_or_shutdown(seconds))
        await asyncio.wait((answering, over), return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            return answering.result()
        answering.cancel()
        await asyncio.wait((answering,), timeout=CLOSING_S)
        if over.result():
            raise InterruptedError("asked to stop before the model had answered")
        raise timed_out(self._endpoint, seconds)

    async def _response(self, task: str, question: BaseModel, answer: type[BaseModel]) -> str:
        """Return the body of the response, whatever it is."""
        endpoint = self._endpoint
        async with openai.AsyncOpenAI(
            api_key=endpoint.key, base_url=endpoint.url, timeout=None, max_retries=0
        ) as client:
            if self._with_schema:
                try:
                    return await self._post(client, task, question, answer, with_schema=True)
                except openai.APIStatusError as error:
                    if not is_about_the_schema(error):
                        raise
                    self._with_schema = False
            return await self._post(client, task, question, answer, with_schema=False)

    async def _post(
        self,
        client: openai.AsyncOpenAI,
        task: str,
        question: BaseModel,
        answer: type[BaseModel],
        *,
        with_schema: bool,
    ) -> str:
        schema = {"name": answer.__name__, "schema": schema_of(answer), "strict": True}
        shape: Any = {"type": "json_schema", "json_schema": schema}
        raw = await client.chat.completions.with_raw_response.create(
            model=self._endpoint.model,
            messages=[
                {"role": "system", "content": instructions(task, answer)},
                {"role": "user", "content": question.model_dump_json()},
            ],
            response_format=shape if with_schema else openai.omit,
        )
        return raw.http_response.text


def _answer(body: str, answer: type[A]) -> A:
    try:
        choice = Completion.model_validate_json(body).choices[0]
    except ValidationError as error:
        raise misfit(error, body, Completion) from None
    message, reason = choice.message, choice.finish_reason
    if message.refusal or reason == "content_filter":
        raise AgentClientError(
            "The model refuses to answer.",
            code="refused",
            details={"said": (message.refusal or "")[:500], "finishReason": reason},
        )
    content = message.content or ""
    try:
        return answer.model_validate_json(_without_fence(content))
    except ValidationError as error:
        raise misfit(error, content, answer, finishReason=reason) from None


def _without_fence(content: str) -> str:
    """Return the JSON of an answer that stands in a block of code, as some models write it."""
    text = content.strip()
    first, _, rest = text.partition("\n")
    fenced = first.startswith("```") and text.endswith("\n```")
    return rest.removesuffix("```") if fenced else content
