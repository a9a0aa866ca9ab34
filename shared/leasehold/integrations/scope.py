"""What the libraries share whose agents run in tasks: where a call belongs, and how errors pass."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from leasehold.errors import ContinuedError, LeaseholdError
from leasehold.integrations.durable import (
    Durable,
    PassingError,
    checked_on_unknown,
    durable,
    key_of,
    refuse_misspelt,
    warn_of_tools,
)
from leasehold.integrations.prices import Price
from leasehold.worker.context.once import OnUnknown
from leasehold.worker.context.step_context import StepContext

_MARK: Final = 8


class Block:
    """A `with durable(ctx):` of a library that catches errors of tools, or loses those of tasks.

    Args:
        step: the step.
        on_unknown: what becomes of tools that must not be repeated, by their names.

    Attributes:
        tools: the names of all tools that the agents have had.
    """

    def __init__(self, step: Durable, on_unknown: Mapping[str, OnUnknown]) -> None:
        self.step = step
        self.on_unknown = on_unknown
        self.tools: set[str] = set()
        self.ends_with: BaseException | None = None

    def note_tools(self, names: Iterable[str]) -> None:
        """Note tools that an agent has, before its model is asked.

        Raises:
            PassingError: one that is to be kept from repetition is misspelt.
        """
        self.tools.update(names)
        refuse_misspelt(self.on_unknown, self.tools)

    def check_names(self) -> None:
        """Warn of a tool that is to be kept from repetition and that no agent has."""
        if self.tools:
            warn_of_tools(self.step.ctx, set(self.on_unknown) - self.tools, self.tools)

    async def call(self, key: str, body: Callable[[], Awaitable[Any]], **more: Any) -> Any:
        """Do as `Durable.call`.

        Raises:
            ContinuedError: the attempt ends here.
            PassingError: the result cannot be recorded, or the attempt is over.
        """
        try:
            return await self.step.call(key, body, **more)
        except ContinuedError as error:
            self.ends_with = error
            raise
        except PassingError as passing:
            self.ends_with = passing.error
            raise
        except LeaseholdError as error:
            raise PassingError(error) from error

    async def stream(
        self, call: Callable[[Callable[[Any], None]], Awaitable[Any]]
    ) -> AsyncIterator[tuple[Any, bool]]:
        """Make a call that emits values while it is made; one that is recorded emits nothing.

        Args:
            call: is given what emits.

        Yields:
            Each value that was emitted, and False; then what the call returned, and True.
        """
        emitted: asyncio.Queue[tuple[Any, bool]] = asyncio.Queue()
        calling = asyncio.ensure_future(call(lambda each: emitted.put_nowait((each, False))))
        calling.add_done_callback(lambda _: emitted.put_nowait((None, True)))
        try:
            while not (each := await emitted.get())[1]:
                yield each
            yield await calling, True
        finally:
            calling.cancel()


_BLOCK: Final[ContextVar[Block | None]] = ContextVar("leasehold_block", default=None)


@contextlib.contextmanager
def entered(
    ctx: StepContext, on_unknown: Mapping[str, OnUnknown] | None, price: Price | None
) -> Iterator[Block]:
    """Have the agents that run inside record their calls in the step of `ctx`.

    An error that ends the attempt, as a lost lease, leaves this block in any case.
    """
    with durable(ctx, price=price) as step:
        block = Block(step, checked_on_unknown(on_unknown))
        token = _BLOCK.set(block)
        try:
            yield block
            block.check_names()
        finally:
            _BLOCK.reset(token)
            if block.ends_with is not None:
                raise block.ends_with


def current_block() -> Block | None:
    """Return the block that agents work in here; None: they work outside of any."""
    return _BLOCK.get()


@dataclass(frozen=True)
class Scope:
    """The run of an agent, or the call of a tool, that calls belong to.

    Args:
        block: of the step.
        place: the run within the step; a run that a tool makes is within that tool's call.
        made: how many calls of each kind were made.
    """

    block: Block
    place: tuple[str, ...]
    made: Counter[str] = field(default_factory=Counter)

    @property
    def ctx(self) -> StepContext:
        """The context of the step."""
        return self.block.step.ctx

    def key(self, *parts: str) -> str:
        """Return the key of a call that belongs here."""
        return key_of(*self.place, *parts)

    def within(self, *parts: str) -> Scope:
        """Return the scope of what such a call calls itself."""
        return Scope(self.block, (*self.place, *parts))


_SCOPE: Final[ContextVar[Scope | None]] = ContextVar("leasehold_scope", default=None)


def scope() -> Scope | None:
    """Return the scope of the code that asks; None: it is part of no run."""
    return _SCOPE.get()


@contextlib.contextmanager
def inside(scope: Scope) -> Iterator[Scope]:
    """Have what runs inside belong to a scope."""
    token = _SCOPE.set(scope)
    try:
        yield scope
    finally:
        _SCOPE.reset(token)


def scope_of_run(block: Block, agent: str, given: object) -> Scope:
    """Return the scope of a run that begins.

    Args:
        block: of the step.
        agent: its name.
        given: the input: which of several agents at work at once comes first is chance.
    """
    around = scope()
    text = json.dumps(given, sort_keys=True, default=repr)
    name = f"{agent}-{hashlib.sha256(text.encode()).hexdigest()[:_MARK]}"
    place = (*(around.place if around else ()), name)
    return Scope(block, (*place[:-1], numbered(block, *place)))


def numbered(block: Block, *place: str) -> str:
    """Return the last part of a place, with a number from its second use in the attempt on."""
    return block.step.numbered("\n".join(place)).rpartition("\n")[2]
