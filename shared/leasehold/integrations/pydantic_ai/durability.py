"""The calls of a Pydantic AI agent as recorded calls of the step that it works in."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, Final, Literal, cast, get_args
from weakref import WeakKeyDictionary

from pydantic import JsonValue
from pydantic_ai.capabilities.abstract import WrapRunHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    CallableOperationBackend,
    DurabilityEngineSpec,
    DurableOperationId,
    JournalOperationNamer,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    ToolsetValidateToolArgumentsId,
    conversation_id_from_run_id,
    external_event_scope,
    record_durable_unit,
    replay_scope,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.external_events import ExternalEventError, ExternalEventWaiter
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import AgentDepsT, RunContext
from pydantic_core import PydanticSerializationError

from leasehold.domain.signal import MIN_SIGNAL_WAIT
from leasehold.errors import InvalidRequestError, UnrestorableResultError, WaitTimedOutError
from leasehold.integrations.durable import Durable, current, key_of
from leasehold.integrations.prices import Used
from leasehold.integrations.pydantic_ai.fingerprint import Fingerprints, digest, projected
from leasehold.worker.context.once import OnUnknown

#: The model that the library has for tests, and its provider.
_FREE: Final = ("test", "test")
#: The key of a tool's metadata: `metadata={"leasehold": {"on_unknown": "ask"}}`, or False for a
#: tool that each attempt calls again.
METADATA: Final = "leasehold"
_SHORT: Final = 8

Config = Mapping[str, Any]


class LeaseholdDurability(BaseDurabilityCapability[AgentDepsT]):
    """Records each request of a model and each call of a tool, inside `with durable(ctx):`.

    Outside of that block the agent works as without. A tool says by its metadata what becomes of a
    call of which it is not known whether it happened, as `on_unknown` of `ctx.once` does:
    `metadata={"leasehold": {"on_unknown": "ask"}}`. With `metadata={"leasehold": False}` its calls
    are not recorded, and each attempt makes them.

    Args:
        models: as of `BaseDurabilityCapability`: further models that a run may be given, by name.
        event_stream_handler: is given each event once.
        name: of the agent, where it has none.

    Raises, in a run of the agent:
        InvalidRequestError: the metadata of a tool has another word.
        UnrestorableResultError: a tool returned what is not JSON.
    """

    engine_spec: ClassVar[DurabilityEngineSpec] = DurabilityEngineSpec(
        engine_name="Leasehold",
        durable_unit_noun="recorded call",
        durable_container_noun="step",
        codec=JSON_CODEC,
        toolset_lifecycles={
            "function": "enter-always",
            "mcp": "enter-in-durable-unit",
            "dynamic": "enter-never",
        },
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        tool_config_key=METADATA,
    )

    @property
    def in_durable_context(self) -> bool:
        """Whether the agent works in a step."""
        return current() is not None

    def get_default_run_id(self) -> str | None:
        """Return an id that each attempt gives to the same run, if it starts them in one order."""
        step = current()
        if step is None:
            return None
        return step.numbered(f"{step.ctx.run_id}:{step.ctx.step}:{self.name}")

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """Return an id that follows from that of the run."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    def _find_model_id(self, model: Model) -> str | None:
        """Take a model that a run is given: calls are made in its process, so none is rebuilt."""
        with contextlib.suppress(UserError):
            return super()._find_model_id(model)
        name = f"instance {id(model)}"
        self._models_by_id[name] = model
        return name

    def get_durable_operation_backend(self) -> CallableOperationBackend[Config]:
        """Return what records the calls."""
        return RecordedCalls(self.name, self._build_resolve_tool_config({}))

    async def wrap_run(
        self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler
    ) -> AgentRunResult[Any]:
        """Keep what is only replayed out of traces and metrics."""
        step = current()
        if step is None:
            return await super().wrap_run(ctx, handler=handler)
        runs = _runs_of(step)
        name = runs.name(step, self.name, ctx)
        try:
            with replay_scope(), external_event_scope(SignalWaiter(step, self.name, name)):
                return await super().wrap_run(ctx, handler=handler)
        finally:
            runs.forget(ctx)


class _Runs:
    """The runs of agents in a step, each with a name that every attempt gives to it.

    A run is named by what it is asked, so that runs beside one another need no order; of several
    that are asked the same, the first to start is the first in each attempt.
    """

    def __init__(self) -> None:
        self.fingerprints = Fingerprints()
        self._names: dict[str | None, str] = {}

    def name(self, step: Durable, agent: str, ctx: RunContext[Any]) -> str:
        """Return the name of the run, made when it is first asked for."""
        if ctx.run_id not in self._names:
            history = self.fingerprints.of_messages(ctx.messages)
            asked = digest([projected(ctx.prompt), history])[:_SHORT]
            self._names[ctx.run_id] = _numbered(step, agent, asked)
        return self._names[ctx.run_id]

    def forget(self, ctx: RunContext[Any]) -> None:
        """Forget a run that is over: another one may have its id."""
        self._names.pop(ctx.run_id, None)


_RUNS: Final[WeakKeyDictionary[Durable, _Runs]] = WeakKeyDictionary()


def _runs_of(step: Durable) -> _Runs:
    return _RUNS.setdefault(step, _Runs())


def _numbered(step: Durable, *parts: str) -> str:
    """Return the last part, with a number from the second time on that all of them are used."""
    return step.numbered("\n".join(parts)).rpartition("\n")[2]


class RecordedCalls(CallableOperationBackend[Config]):
    """Makes each call once.

    Args:
        agent: its name.
        resolve_tool: returns the settings of a tool, by its metadata.
    """

    def __init__(
        self, agent: str, resolve_tool: Callable[[Any, str], Config | Literal[False]]
    ) -> None:
        super().__init__(
            namer=JournalOperationNamer(agent),
            config=RoleBasedOperationConfig(
                model={},
                event={},
                capability={},
                tool={},
                resolve_tool=lambda _id, tool, name: resolve_tool(tool, name),
            ),
        )
        self._agent = agent

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: Config,
    ) -> object:
        """Return the recorded result of a call, or make it."""
        step = cast("Durable", current())
        _check(config)
        key, request, tool = self._identity(step, operation_id, name, cache_key)
        executed = False

        async def made() -> object:
            nonlocal executed
            executed = True
            try:
                result = await body()
            except PydanticSerializationError as error:
                problem = f"is not JSON: {error}"
                raise UnrestorableResultError(key=key, problem=problem) from None
            if not isinstance(operation_id, ModelRequestId):
                return result
            response = JSON_CODEC.load(ModelResponse, result)
            spend(step, response)
            return without_defaults(response, result)

        arguments = cast("Mapping[str, Any]", cache_key[1]) if tool else None
        result = await step.call(
            key, made, request=request, tool=tool, arguments=arguments, **config
        )
        record_durable_unit(executed=executed)
        if tool and not (isinstance(result, dict) and "kind" in result):
            return {"kind": "tool_return", "result": result}  # a person has told it
        return result

    def _identity(
        self, step: Durable, operation: DurableOperationId, name: str, inputs: tuple[Any, ...]
    ) -> tuple[str, object, str]:
        """Return the key of a call, what its result depends on, and the tool that is called."""
        runs = _runs_of(step)
        ctx = next((each for each in inputs if isinstance(each, RunContext)), None)
        run = [self._agent]
        if ctx is not None:
            run += [runs.name(step, self._agent, ctx), str(ctx.run_step)]
        if isinstance(operation, ModelRequestId):
            _, messages, settings, parameters, _ = inputs
            request = runs.fingerprints.of_model_request(
                operation.model_name, messages, settings, parameters
            )
            return key_of(*run, _numbered(step, *run, "model")), request, ""
        if isinstance(operation, ToolsetCallToolId | ToolsetValidateToolArgumentsId):
            tool, args = inputs[0], inputs[1]
            what = ["validate"] if isinstance(operation, ToolsetValidateToolArgumentsId) else []
            asked = {
                "arguments": projected(args),
                "approved": ctx is not None and ctx.tool_call_approved,
                "metadata": projected(ctx.tool_call_metadata) if ctx else None,
            }
            of_tool = "" if what else tool
            return key_of(*run, *what, tool, str(ctx and ctx.tool_call_id)), asked, of_tool
        others = [each for each in inputs if each is not ctx]
        called = name.removeprefix(f"{self._agent}__")
        return (
            key_of(*run, called, _numbered(step, *run, called, digest(others)[:_SHORT])),
            None,
            "",
        )


def _check(config: Config) -> None:
    on_unknown = config.get("on_unknown", "repeat")
    if config.keys() - {"on_unknown"} or on_unknown not in get_args(OnUnknown):
        allowed = f'False, or {{"on_unknown": one of {", ".join(get_args(OnUnknown))}}}'
        raise InvalidRequestError(field=f"metadata[{METADATA!r}]", value=config, allowed=allowed)


def without_defaults(response: ModelResponse, result: Any) -> Any:
    """Return the JSON of a response without what it does not say: most of it is `null` and 0."""
    usage = {name: value for name, value in result["usage"].items() if value}
    parts = [_said(part) for part in result["parts"]]
    short = {**_said(result), "usage": usage, "parts": parts}
    return short if JSON_CODEC.load(ModelResponse, short) == response else result


def _said(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def spend(step: Durable, response: ModelResponse) -> None:
    """Note what a response has cost: as the user says, the response itself, or the library."""
    usage = response.usage

    def known(_: Used) -> float | None:
        usd = usage.cost
        if usd is None and (response.model_name, response.provider_name) == _FREE:
            return 0.0
        if usd is None and response.model_name:
            with contextlib.suppress(LookupError, ValueError):  # the model has no known price
                usd = response.cost().total_price
        return None if usd is None else float(usd)

    of_cache = usage.cache_read_tokens, usage.cache_write_tokens
    name = response.model_name or ""
    step.spend(Used(name, usage.input_tokens, usage.output_tokens, *of_cache), otherwise=known)


# Waits of an agent for external events (`RequestInput`, `wait_for_external_event`) as signals.


_NOT_OF_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_NAME_CHARS: Final = 80


class SignalWaiter(ExternalEventWaiter):
    """Has the attempt end while an agent waits; the next one is given the signal.

    The token is `RUN/signals/NAME`: the answer goes to `/runs/{token}`, or by `leasehold signal`.

    Args:
        step: the step that the agent works in.
        agent: its name, and that of its run, which each attempt gives to it.
    """

    def __init__(self, step: Durable, *agent: str) -> None:
        self._step = step
        self._agent = agent

    async def wait(
        self,
        name: str,
        *,
        ask: Callable[[str], Awaitable[JsonValue]],
        timeout: timedelta | None,  # noqa: ASYNC109 - the shape of the library
    ) -> JsonValue:
        """Ask once, which is recorded; then wait for the signal, unless the answer was there."""
        step, ctx = self._step, self._step.ctx
        base = _NOT_OF_NAMES.sub("-", f"{name}-{self._agent[-1]}")[:_MAX_NAME_CHARS]
        signal = _NOT_OF_NAMES.sub("-", step.numbered(f"signal {base}").removeprefix("signal "))
        token = f"{ctx.run_id}/signals/{signal}"
        answer: JsonValue = await step.call(
            key_of(*self._agent, "ask", signal), partial(ask, token), request=None
        )
        if answer is not None:
            return answer
        try:
            value: JsonValue = await ctx.await_for(
                signal,
                timeout=None if timeout is None else max(timeout, MIN_SIGNAL_WAIT),
                otherwise="block" if timeout is None else "fail",
            )
        except WaitTimedOutError as error:
            raise ExternalEventError(str(error)) from None
        return value
