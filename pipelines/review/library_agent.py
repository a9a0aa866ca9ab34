"""An agent that asks any model that Pydantic AI knows; each answer is recorded in the step.

Needs the extra `pydantic-ai`, and the extra of that library for the provider of the model.
"""

import asyncio
import os
from http import HTTPStatus

from pydantic import BaseModel
from pydantic_ai import Agent, PromptedOutput
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelHTTPError,
    UnexpectedModelBehavior,
    UserError,
)

from leasehold import AgentClientError, PermanentError, StepContext
from leasehold.integrations.pydantic_ai import LeaseholdDurability, durable
from pipelines.review.tasks import MODEL, A, ModelAgent, answer_seconds, model_name

EXCERPT = 500  # characters of an error that are kept


class LibraryAgent(ModelAgent):
    """Asks the model that REVIEW_MODEL names, as `anthropic:claude-sonnet-4-6`.

    Args:
        ctx: the attempt; no answer is waited for once it should end.
    """

    def __init__(self, ctx: StepContext) -> None:
        super().__init__(ctx, answer_seconds(os.environ))
        self._model = model_name(os.environ)

    @property
    def name(self) -> str:
        """The model."""
        return self._model

    def _ask(self, task: str, question: BaseModel, answer: type[A]) -> A:
        try:
            agent = Agent(
                self._model,
                name="reviewer",
                output_type=PromptedOutput(answer),  # which any model can give
                instructions=task,
                model_settings={"max_retries": 0},  # the engine retries
                capabilities=[LeaseholdDurability()],
            )
            with durable(self._ctx):
                request = agent.run(question.model_dump_json())
                found: A = asyncio.run(self._in_time(request)).output
        except TimeoutError as error:
            message = f"{self._model} did not answer within {error.args[0]:g} s."
            raise AgentClientError(message, code="timeout") from None
        except (ModelAPIError, UnexpectedModelBehavior, UserError) as error:
            raise failure_of(error) from error
        return found


def failure_of(error: Exception) -> AgentClientError | PermanentError:
    """Return the meaning of an error of the library for the step."""
    said = str(error)[:EXCERPT]
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    if isinstance(error, UserError):
        return PermanentError(f"{said} Check {MODEL}.", code="bad_setting")
    if isinstance(error, UnexpectedModelBehavior):
        return AgentClientError(said, code="invalid_answer")
    if status is None:
        return AgentClientError(said, code="unreachable")
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return AgentClientError(said, code="rate_limited", details={"status": status})
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in {408, 409, 425}:
        return AgentClientError(said, code="provider_error", details={"status": status})
    code = "unauthorized" if status in {401, 403} else "bad_request"
    return PermanentError(f"{said} Check {MODEL} and the key of its provider.", code=code)
