"""The runs of agents within a step: what they call is recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any, Final

from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.plugins import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService, Session
from google.adk.workflow import Workflow  # noqa: F401

from leasehold.integrations.adk.model import ASKING, record_model
from leasehold.integrations.adk.tools import record_tool
from leasehold.integrations.durable import key_of, warn_of_version
from leasehold.integrations.prices import Price
from leasehold.integrations.scope import (
    Scope,
    current_block,
    entered,
    numbered,
    scope,
    scope_of_run,
)
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
            which it is not known whether it happened: "ask" or "fail", as of `ctx.once`.
        price: given the `Used` of a response, returns what it has cost in US dollars; None: that
            is not known. For models of which `genai-prices` does not have your prices.

    Raises:
        ContinuedError: the time of the attempt is short, or it is to stop. Let it pass.
        InvalidRequestError: `on_unknown` has another word, or a name that is nearly that of a tool.
        And what `ctx.once` raises, of each call.
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


# Recorded sessions: an attempt that comes later finds the history that the first one found.


_OF_A_SESSION: Final = frozenset({"app_name", "user_id", "session_id"})


class RecordedSessions(BaseSessionService):
    """A session service whose sessions are the same in each attempt.

    A session is read once, and given the events of a run once they are all there: else an attempt
    that comes later would find in it what the one before it has added, and ask the model something
    else.

    Args:
        inner: keeps the sessions.
    """

    def __init__(self, inner: BaseSessionService) -> None:
        self._inner = inner
        self._added: dict[str, list[Event]] = {}

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # while it is copied
            raise AttributeError(name)
        return getattr(self._inner, name)

    async def create_session(self, **given: Any) -> Session:
        """Create a session, once."""
        made = await self._recorded("create_session", given)
        return Session.model_validate(made)

    async def get_session(self, **given: Any) -> Session | None:
        """Return a session as it was in the first attempt."""
        found = await self._recorded("get_session", given)
        return None if found is None else Session.model_validate(found)

    async def list_sessions(self, **given: Any) -> Any:
        """List the sessions of a user."""
        return await self._inner.list_sessions(**given)

    async def delete_session(self, **given: Any) -> None:
        """Delete a session."""
        await self._inner.delete_session(**given)

    async def append_event(self, session: Session, event: Event) -> Event:
        """Add an event to a session; in its store it stands once the run is over."""
        if current_block() is None:
            return await self._inner.append_event(session, event)
        if not event.partial:
            self._added.setdefault(session.id, []).append(event)
        return await super().append_event(session, event)

    async def keep(self, run: Scope, session: Session) -> None:
        """Give a session the events of a run, once."""
        added = self._added.pop(session.id, [])

        async def made() -> None:
            stored = await self._inner.get_session(
                app_name=session.app_name, user_id=session.user_id, session_id=session.id
            )
            if stored is None:
                return
            for number, event in enumerate(added):
                event.id = run.key("event", str(number))  # the same in each attempt
                if all(event.id != other.id for other in stored.events):
                    await self._inner.append_event(stored, event)

        await run.block.call(run.key("session"), made, request=None)

    def forget(self) -> None:
        """Forget the events of runs that have failed: the next attempt has them again."""
        self._added.clear()

    async def _recorded(self, name: str, given: dict[str, Any]) -> Any:
        block, around = current_block(), scope()
        call = getattr(self._inner, name)

        async def made() -> Any:
            session = await call(**given)
            return session and session.model_dump(mode="json")

        if block is None:
            return await made()
        place = (*(around.place if around else ()), "session", str(given.get("session_id") or ""))
        request = {key: value for key, value in given.items() if key in _OF_A_SESSION}
        key = key_of(*place, numbered(block, *place, name))
        return await block.call(key, made, request=request)
