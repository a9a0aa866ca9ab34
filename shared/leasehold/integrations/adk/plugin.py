"""The runs of agents within a step: what they call is recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any, Final

from google.adk.agents import LlmAgent
from google.adk.plugins import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService

from leasehold.integrations.adk.model import ASKING, record_model
from leasehold.integrations.adk.session import RecordedSessions
from leasehold.integrations.adk.tools import record_tool
from leasehold.integrations.durable import warn_of_version
from leasehold.integrations.prices import Price
from leasehold.integrations.scope import Scope, current_block, entered, scope_of_run
from leasehold.worker.context.once import OnUnknown
from leasehold.worker.context.step_context import StepContext

TESTED: Final = ("2.13",)
_NAME: Final = "leasehold"


@contextlib.contextmanager
def durable(
    ctx: StepContext,
    runner: Runner,
    *,
    on_unknown: Mapping[str, OnUnknown] | None = None,
    price: Price | None = None,
) -> Iterator[None]:
    """Have the agents of a runner that run inside record what they call in the step of `ctx`.

    Args:
        ctx: of the step.
        runner: of the agents.
        on_unknown: for tools that must not be repeated, by their names: what becomes of a call of
            which it is not known whether it happened, as of `ctx.once`.
        price: returns what a response of a model has cost, in US dollars, where the prices of
            `genai-prices` are not yours; None: that is not known.
    """
    warn_of_version("google-adk", version("google-adk"), TESTED)
    if runner.plugin_manager.get_plugin(_NAME) is None:
        runner.plugin_manager.register_plugin(Recording())
    sessions = runner.session_service
    if not isinstance(sessions, InMemorySessionService | RecordedSessions):
        runner.session_service = RecordedSessions(sessions)
    try:
        with entered(ctx, on_unknown, price):
            yield
    finally:
        if isinstance(runner.session_service, RecordedSessions):
            runner.session_service.forget()


class Recording(BasePlugin):
    """Has what the agents of a runner call recorded, where they run within a step.

    It answers for no model and no tool, so that other plugins and callbacks do what they did:
    models and tools are changed in place, and do outside of a step what they did before.
    """

    def __init__(self) -> None:
        super().__init__(_NAME)
        self._runs: dict[str, Scope] = {}

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        """Begin a run."""
        if (block := current_block()) is not None:
            content = invocation_context.user_content
            given = content and content.model_dump(mode="json", exclude_none=True)
            run = scope_of_run(block, invocation_context.agent.name, given)
            self._runs[invocation_context.invocation_id] = run

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        """End a run: the session is given its events."""
        run = self._runs.pop(invocation_context.invocation_id, None)
        sessions = invocation_context.session_service
        if run is not None and isinstance(sessions, RecordedSessions):
            await sessions.keep(run, invocation_context.session)

    async def before_agent_callback(self, *, agent: Any, callback_context: Any) -> None:  # noqa: ARG002 - the library's
        """Have the calls of an agent's model recorded."""
        if current_block() is not None and isinstance(agent, LlmAgent):
            record_model(agent.canonical_model)

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Note which agent asks the model next."""
        run = self._scope(callback_context)
        ASKING.set(run)
        if run is not None:
            run.block.note_tools(llm_request.tools_dict)

    async def before_tool_callback(
        self,
        *,
        tool: Any,
        tool_args: dict[str, Any],  # noqa: ARG002 - the library's
        tool_context: Any,
    ) -> None:
        """Have the calls of a tool recorded."""
        run = self._scope(tool_context)
        if run is not None:
            record_tool(tool)
            tool_context.leasehold = run

    def _scope(self, context: Any) -> Scope | None:
        """Return where a call of an agent belongs: agents at work at once are told apart."""
        run = self._runs.get(context.invocation_id)
        if run is None:
            return None
        place = (*run.place, context.branch or "", context.agent_name)
        return Scope(run.block, tuple(filter(None, place)), run.made)
