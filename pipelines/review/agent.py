"""The agent that does the thinking of the review, and which one is chosen."""

import os
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from leasehold import PermanentError, StepContext
from pipelines.review.local_agent import LocalAgent
from pipelines.review.questions import (
    DocumentClaims,
    DraftPoint,
    Excerpt,
    FolderClaims,
    Inspection,
    Objection,
    Pick,
)

AGENT: Final = "REVIEW_AGENT"
PACE: Final = "REVIEW_AGENT_PACE_MS"
_LONGEST_PACE_MS: Final = 60_000
#: The agents that ask a model, and the extra that each needs.
_EXTRAS: Final = {"openai": "llm", "pydantic-ai": "pydantic-ai"}


class Agent(Protocol):
    """Reads and condenses. The steps check its answers, and supervision checks them again.

    Every method raises `AgentClientError` when the agent or its provider fails.
    """

    @property
    def name(self) -> str:
        """Who answered, for the report: the method or model, with its version if it has one."""
        ...

    def claims(self, excerpt: Excerpt) -> Sequence[Pick]:
        """Pick the sentences that state something checkable, in any order, each once."""
        ...

    def summary(self, given: DocumentClaims) -> Sequence[DraftPoint]:
        """Say what one document says, in its own order."""
        ...

    def digest(self, given: FolderClaims) -> Sequence[DraftPoint]:
        """Say what matters most over all documents; near-identical claims become one point."""
        ...

    def objections(self, given: Inspection) -> Sequence[Objection]:
        """Say which points of a digest are wrong under one aspect, in any order, each once."""
        ...


def chosen_agent(ctx: StepContext) -> Agent:
    """Return the agent that REVIEW_AGENT names; it stops answering once the attempt should end.

    `local`, the default, answers within milliseconds, and a model does not. REVIEW_AGENT_PACE_MS
    makes it wait that long before each answer, to see how the engine handles slow steps;
    `make demo CHAOS=1` sets it. `openai` asks a model: see `model_agent`;
    `pydantic-ai` asks one by that library: see `library_agent`.

    Raises:
        PermanentError: a variable has a value that cannot be used, or the extra is missing.
    """
    name = os.environ.get(AGENT) or "local"
    if name == "local":
        return LocalAgent(partial(_think, ctx, pace_of(os.environ.get(PACE, ""))))
    if name not in _EXTRAS:
        message = f"{AGENT} is {name[:40]!r}; allowed: local, {', '.join(_EXTRAS)}."
        raise PermanentError(message, code="bad_setting")
    try:
        # only here: the client of an unused model would cost each start half a second
        if name == "pydantic-ai":
            from pipelines.review.library_agent import LibraryAgent  # noqa: PLC0415

            return LibraryAgent(ctx)
        from pipelines.review.model_agent import OpenAIAgent, endpoint_of  # noqa: PLC0415
    except ImportError as error:
        extra = _EXTRAS[name]
        message = (
            f"{AGENT}={name} needs the extra {extra}, which is not there ({error}). Install it: "
            f".venv/bin/python -m pip install -c constraints.txt -e '.[{extra}]'"
        )
        raise PermanentError(message, code="extra_missing") from error
    return OpenAIAgent(ctx, endpoint_of(os.environ))


def pace_of(text: str) -> float:
    """Return the seconds that REVIEW_AGENT_PACE_MS stands for, or raise PermanentError."""
    if not text:
        return 0.0
    if not (text.isascii() and text.isdigit() and int(text) <= _LONGEST_PACE_MS):
        allowed = f"milliseconds, a whole number up to {_LONGEST_PACE_MS}"
        raise PermanentError(f"{PACE} is {text[:40]!r}; allowed: {allowed}.", code="bad_setting")
    return int(text) / 1000


def _think(ctx: StepContext, pace: float, answers: int) -> None:
    """Take the time of so many answers, or raise as soon as the attempt should end."""
    if ctx.wait_or_shutdown(pace * answers):
        raise InterruptedError("asked to stop before the agent had answered")
