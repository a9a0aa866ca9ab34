"""Who does the thinking of the review, and which one is chosen."""

from collections.abc import Sequence
from typing import Protocol

from pipelines.review.local_agent import LocalAgent
from pipelines.review.questions import (
    DigestDraft,
    DocumentClaims,
    DraftPoint,
    Excerpt,
    FolderClaims,
    Pick,
)


class Agent(Protocol):
    """Reads and condenses. What it answers is checked by the steps, and again by supervision.

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

    def digest(self, given: FolderClaims) -> DigestDraft:
        """Say what matters most over all documents; near-identical claims become one point."""
        ...


def chosen_agent() -> Agent:
    """Return the agent that the steps work with."""
    return LocalAgent()
