"""The runs of agents within a step: what they call is recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any, Final

from agents import Agent, RunConfig, RunResult, RunResultStreaming, RunState
from agents.memory import Session
from agents.models.interface import Model
from agents.run import (
    AgentRunner,
    get_default_agent_runner,
    set_default_agent_runner,
)

from leasehold.integrations.durable import PassingError, warn_of_version
from leasehold.integrations.openai_agents.model import (
    RecordingProvider,
    record_agent,
    recorded_model,
)
from leasehold.integrations.prices import Price
from leasehold.integrations.scope import (
    Block,
    Scope,
    current_block,
    entered,
    inside,
    scope,
    scope_of_run,
)
from leasehold.worker.context.once import OnUnknown
from leasehold.worker.context.step_context import StepContext

TESTED: Final = ("0.24",)


@contextlib.contextmanager
def durable(
    ctx: StepContext,
    *,
    on_unknown: Mapping[str, OnUnknown] | None = None,
    price: Price | None = None,
) -> Iterator[None]:
    """Have the agents that run inside record what they call in the step of `ctx`.

    Args:
        ctx: of the step.
        on_unknown: for tools that must not be repeated, by their names: what becomes of a call of
            which it is not known whether it happened: "ask" or "fail", as of `ctx.once`.
        price: given the `Used` of a response, returns what it has cost in US dollars; None: that
            is not known. For models of which `genai-prices` does not have your prices.

    Raises:
        ContinuedError: the time of the attempt is short, or it is to stop. Let it pass.
        InvalidRequestError: `on_unknown` has another word, or a name that is nearly that of a tool.
        And what `ctx.once` raises, of each call.
    """
    warn_of_version("openai-agents", version("openai-agents"), TESTED)
    if not isinstance(get_default_agent_runner(), RecordingRunner):
        set_default_agent_runner(RecordingRunner(get_default_agent_runner()))
    with entered(ctx, on_unknown, price):
        yield


class RecordingRunner(AgentRunner):
    """The library's runner: within a step, it has what the agents call recorded.

    The library tells agents and tools apart by what object they are, so they are not copied: they
    are changed in place, and do outside of a step what they did before.

    Args:
        inner: runs the agents.
    """

    def __init__(self, inner: AgentRunner) -> None:
        self._inner = inner

    async def run(self, starting_agent: Agent[Any], input: Any, **kwargs: Any) -> RunResult:  # noqa: A002 - the library's name
        """Run an agent to its end."""
        if (block := current_block()) is None:
            return await self._inner.run(starting_agent, input, **kwargs)
        is_within = scope() is not None
        recorded = _recorded(kwargs)
        with inside(_begin(block, starting_agent, input)):
            try:
                return await self._inner.run(starting_agent, input, **recorded)
            except PassingError as passing:
                if is_within:
                    raise
                raise passing.error from passing.error.__cause__
            finally:
                if kwargs.get("run_config") is None:  # the runner would close the one that it makes
                    await recorded["run_config"].model_provider.aclose()

    def run_streamed(
        self,
        starting_agent: Agent[Any],
        input: Any,  # noqa: A002 - the library's name
        **kwargs: Any,
    ) -> RunResultStreaming:
        """Run an agent, and stream what it does."""
        if (block := current_block()) is None:
            return self._inner.run_streamed(starting_agent, input, **kwargs)
        with inside(_begin(block, starting_agent, input)):
            return self._inner.run_streamed(starting_agent, input, **_recorded(kwargs))


def _begin(block: Block, agent: Agent[Any], given: Any) -> Scope:
    """Have what an agent calls recorded; return the scope of its run."""
    if isinstance(given, RunState):
        state = given.to_json(context_serializer=lambda _: {})
        agent = given._current_agent or agent  # noqa: SLF001 - it has no other name
        given = [state["original_input"], state["current_turn"]]
    record_agent(agent)
    return scope_of_run(block, agent.name, given)


def _recorded(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a run, with what it calls recorded."""
    given = kwargs.get("run_config")
    config = RunConfig(**(given or {})) if isinstance(given, dict | None) else given
    provider = config.model_provider
    if not isinstance(provider, RecordingProvider):
        provider = RecordingProvider(provider)
    config = replace(config, model_provider=provider)
    if isinstance(config.model, Model):
        config = replace(config, model=recorded_model(config.model))
    recorded = {**kwargs, "run_config": config}
    if (session := kwargs.get("session")) is not None and not isinstance(session, RecordedSession):
        recorded["session"] = RecordedSession(session)
    return recorded


# Recorded sessions: an attempt that comes later finds the history that the first one found.


class RecordedSession:
    """A session of which each reading and each writing is made once.

    Else an attempt that comes later would find in it what the one before it has added, ask the
    model something else, and add all of it again.

    Args:
        inner: keeps the history.
    """

    def __init__(self, inner: Session) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # while it is copied
            raise AttributeError(name)
        return getattr(self._inner, name)

    @property
    def session_id(self) -> str:
        """Which history it is."""
        return self._inner.session_id

    @property
    def session_settings(self) -> Any:
        """How it is read."""
        return self._inner.session_settings

    async def get_items(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Return the history."""
        return await self._recorded(
            "get_items", lambda: self._inner.get_items(*args, **kwargs), [args, kwargs]
        )

    async def add_items(self, items: list[Any]) -> None:
        """Add to the history."""
        await self._recorded("add_items", lambda: self._inner.add_items(items), items)

    async def pop_item(self) -> Any:
        """Take the last item out of the history."""
        return await self._recorded("pop_item", self._inner.pop_item)

    async def clear_session(self) -> None:
        """Begin a new history."""
        await self._recorded("clear_session", self._inner.clear_session)

    async def _recorded(
        self, name: str, call: Callable[[], Awaitable[Any]], request: object = None
    ) -> Any:
        if (run := scope()) is None:
            return await call()
        run.made[name] += 1
        key = run.key("session", f"{name} {run.made[name]}")
        return await run.block.call(key, call, request={"arguments": request})
