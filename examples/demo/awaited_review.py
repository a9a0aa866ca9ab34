"""Step review of `make demo`: before its last iteration its first attempt waits to be killed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from leasehold import StepContext
from pipelines.review.agent import Agent, chosen_agent
from pipelines.review.models import Digest, Review
from pipelines.review.questions import Inspection, Objection
from pipelines.review.review import supervised
from pipelines.review.supervision import ASPECTS

#: The kill comes within a moment; without one, the step goes on after this.
LONGEST_WAIT_S: Final = 60.0


def supervise(ctx: StepContext, given: Digest) -> Review:
    """Supervise as ever, but for the wait."""
    return supervised(ctx, given, AwaitingAgent(ctx, chosen_agent(ctx)))


@dataclass(frozen=True, slots=True)
class AwaitingAgent:
    """An agent that waits before its last answer, in the first attempt of the first trial."""

    ctx: StepContext
    agent: Agent

    def objections(self, given: Inspection) -> Sequence[Objection]:
        """Answer as the agent does."""
        if given.aspect == ASPECTS[-1] and self.ctx.attempt == self.ctx.trial == 1:
            self.ctx.wait_or_shutdown(LONGEST_WAIT_S)
        return self.agent.objections(given)
