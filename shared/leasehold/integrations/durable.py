"""What all integrations share: the step that an agent works in, and the record of its calls."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import threading
import time
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from difflib import get_close_matches
from typing import Any, Final, get_args
from weakref import WeakKeyDictionary, WeakValueDictionary

from leasehold.domain.recorded_calls import MAX_CALL_KEY_CHARS
from leasehold.domain.spend import checked_spend
from leasehold.errors import (
    ContinuedError,
    InvalidRequestError,
    LeaseholdError,
    LeaseLostError,
    StoreUnavailableError,
)
from leasehold.integrations.prices import Price, Used, listed_price
from leasehold.worker.context.once import OnUnknown
from leasehold.worker.context.step_context import StepContext

_CURRENT: Final[ContextVar[Durable | None]] = ContextVar("leasehold_durable", default=None)
#: How many calls the code here is a part of; infinite where it must not end before its call does.
_WITHIN: Final[ContextVar[float]] = ContextVar("leasehold_within", default=0)
#: How often each name was used in an attempt, over all its `durable` blocks.
_USED: Final[WeakKeyDictionary[StepContext, Counter[str]]] = WeakKeyDictionary()
#: One an attempt, by the identity of its context, for as long as one of its blocks lasts: agents at
#: work at once end none of another's calls.
_STEPS: Final[WeakValueDictionary[int, Durable]] = WeakValueDictionary()
#: The user's own prices; None: those of the list.
_PRICE: Final[ContextVar[Price | None]] = ContextVar("leasehold_price", default=None)
_HASH: Final = 32
_STOP_POLL_S: Final = 0.05
#: A name of five letters of which one is wrong is as near as this.
_NEARLY: Final = 0.8


class PassingError(BaseException):
    """An error of ours on its way through an agent library to the handler.

    A `BaseException`: what the library tells the model, or tries again, are errors of the user's.

    Args:
        error: what the handler gets.
    """

    def __init__(self, error: LeaseholdError) -> None:
        super().__init__(str(error))
        self.error = error


class _Shown(str):
    """An argument by its name, as a person reads it."""

    __slots__ = ()
    __repr__ = str.__str__


def _shown(arguments: Mapping[str, Any] | None) -> list[_Shown]:
    return [_Shown(f"{name}={value!r}") for name, value in (arguments or {}).items()]


class Durable:
    """The step that agents work in, and the calls that they have under way.

    Args:
        ctx: of the step.
    """

    def __init__(self, ctx: StepContext) -> None:
        self.ctx = ctx
        self._under_way = 0
        self._counting = threading.Lock()
        self._failed = 0
        self._without_price: set[str] = set()
        self._used = _USED.setdefault(ctx, Counter())

    async def call(
        self,
        key: str,
        body: Callable[[], Awaitable[Any]],
        *,
        request: object,
        on_unknown: OnUnknown = "repeat",
        tool: str = "",
        arguments: Mapping[str, Any] | None = None,
        returns: Any = Any,
    ) -> Any:
        """Return the recorded result of a call, or make the call and record it.

        Between two calls, while none is under way but those that this one is a part of, the attempt
        ends where its time is short, or where it is asked to stop; calls of other agents that are
        under way are waited for. A call that is cancelled because
        another one has failed is made and recorded to its end: it is paid for.

        Args:
            key: what tells the call from all others of the step: see `key_of`.
            body: makes the call.
            request: what its result depends on.
            on_unknown: as of `ctx.once`.
            tool: of a call of a tool, its name: the first one ends the start of the agent.
            arguments: of the tool, for a person who is asked whether it was called.
            returns: the type of the result; Any: plain JSON values.

        Raises:
            PassingError: the attempt is over, or the store is away: `durable` raises what it is.
            And what `ctx.aonce` raises.
        """
        within = _WITHIN.get()
        if self._under_way == within or not within:
            for _ in self._until_due():
                await asyncio.sleep(_STOP_POLL_S)

        async def made(*_: _Shown) -> Any:
            _WITHIN.set(within + 1 if on_unknown == "repeat" else math.inf)
            return await body()

        made.__annotations__["return"] = returns
        with self._making(tool):
            return await self._to_the_end(
                self.ctx.aonce(
                    key, made, *_shown(arguments), request=request, on_unknown=on_unknown
                )
            )

    def call_in_thread(
        self,
        key: str,
        body: Callable[[], Any],
        *,
        request: object,
        on_unknown: OnUnknown = "repeat",
        tool: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> Any:
        """Do as `call`, of a library that makes its calls in threads; of plain JSON values."""
        within = _WITHIN.get()
        if self._under_way == within or not within:
            for _ in self._until_due():
                time.sleep(_STOP_POLL_S)

        def made(*_: _Shown) -> Any:
            token = _WITHIN.set(within + 1 if on_unknown == "repeat" else math.inf)
            try:
                return body()
            finally:
                _WITHIN.reset(token)

        with self._making(tool):
            return self.ctx.once(
                key, made, *_shown(arguments), request=request, on_unknown=on_unknown
            )

    @contextlib.contextmanager
    def _making(self, tool: str) -> Iterator[None]:
        """Have one more call under way inside; what ends the attempt passes the library."""
        if tool:
            self.ctx.mark_bootstrap_complete(tool)
        with self._counting:
            self._under_way += 1
        try:
            yield
        except (LeaseLostError, StoreUnavailableError) as error:
            raise PassingError(error) from error
        finally:
            with self._counting:
                self._under_way -= 1

    def _until_due(self) -> Iterator[None]:
        """End the attempt where its time is short: once no call is under way that would be lost.

        Yields:
            Each time that the caller is to wait for those calls.
        """
        try:
            if self.ctx.shutdown_requested:
                self.ctx.continue_later()  # which stops it
            self.ctx.continue_if_short()
        except ContinuedError as error:
            due = error
        else:
            return
        while self._under_way and not _WITHIN.get():  # of other threads, too
            yield
        raise due

    async def _to_the_end(self, call: Awaitable[Any]) -> Any:
        failed = self._failed
        making = asyncio.ensure_future(call)
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            if self._failed == failed:  # no call has failed: it is the caller who wants it to end
                making.cancel()
            while not making.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([making])
            if not making.cancelled():
                making.exception()  # the error of the call that failed first is the one to report
            raise
        except BaseException:
            self._failed += 1
            raise

    def spend(self, used: Used, tokens: int | None = None, otherwise: Price = listed_price) -> None:
        """Note what a response has cost; where that is not known, it is said once for each model.

        Args:
            used: by the response.
            tokens: all of them, where the library counts others as well.
            otherwise: its price, where the user gives none.
        """
        tokens = used.input_tokens + used.output_tokens if tokens is None else tokens
        usd = self._usd_of(used, _PRICE.get() or otherwise) if tokens else None
        if tokens or usd:
            self.ctx.spend(tokens=tokens, usd=usd or 0)

    def _usd_of(self, used: Used, price: Price) -> float | None:
        try:
            usd = price(used)
            if usd is not None:
                checked_spend(0, usd)
                return usd
            problem = "it has no known price"
        except Exception as error:  # noqa: BLE001 - the response is paid for, and is to be recorded
            problem = f"its price cannot be had: {type(error).__name__}: {error}".rstrip(".")
        if used.model not in self._without_price:
            self._without_price.add(used.model)
            self.ctx.log.warning(
                "responses of the model %s count no US dollars, and no budget of dollars ends its "
                "work: %s; say what they cost by durable(…, price=…)",
                used.model or "without a name",
                problem,
            )
        return None

    def numbered(self, name: str) -> str:
        """Return a name with a number from its second use in this attempt on.

        For calls that only their order tells apart: they are to be asked for in the same order by
        each attempt.
        """
        with self._counting:
            self._used[name] += 1
            used = self._used[name]
        return name if used == 1 else f"{name}~{used}"


@contextlib.contextmanager
def durable(ctx: StepContext, *, price: Price | None = None) -> Iterator[Durable]:
    """Have the agents that run inside record their calls in the step of `ctx`.

    Args:
        ctx: of the step.
        price: given the `Used` of a response, returns what it has cost in US dollars; None: that
            is not known. For models of which `genai-prices` does not have your prices.

    Yields:
        What an integration needs of the block; your code needs none of it.

    Raises:
        ContinuedError: the time of the attempt is short, or it is to stop. Let it pass.
        And what `ctx.once` raises, of each call.
    """
    step = _STEPS.get(id(ctx))
    if step is None:
        step = _STEPS[id(ctx)] = Durable(ctx)
    token, before = _CURRENT.set(step), _PRICE.set(price or _PRICE.get())
    try:
        yield step
    except (PassingError, BaseExceptionGroup) as error:
        passing = _passing_in(error)
        if passing is None:
            raise
        raise passing.error from passing.error.__cause__
    finally:
        _PRICE.reset(before)
        _CURRENT.reset(token)


def _passing_in(error: BaseException) -> PassingError | None:
    """Return the first error of ours in what came through a library; None: there is none."""
    if isinstance(error, BaseExceptionGroup):
        found = error.subgroup(PassingError)
        return None if found is None else _passing_in(found.exceptions[0])
    return error if isinstance(error, PassingError) else None


def checked_on_unknown(given: Mapping[str, OnUnknown] | None) -> dict[str, OnUnknown]:
    """Return what becomes of tools that must not be repeated, or raise InvalidRequestError.

    Before a model is paid: the call of the tool itself would be refused after it.
    """
    for name, word in (given or {}).items():
        if word not in get_args(OnUnknown):
            allowed = ", ".join(get_args(OnUnknown))
            raise InvalidRequestError(field=f"on_unknown[{name!r}]", value=word, allowed=allowed)
    return dict(given or {})


def refuse_misspelt(given: Mapping[str, OnUnknown], tools: set[str]) -> None:
    """Refuse the name of a tool that no agent has, where it is nearly that of one that they have.

    The tool that it means would be repeated without a word. Any other name is warned of: it may be
    a tool that agents have for some inputs alone.

    Raises:
        PassingError: as said; the handler gets InvalidRequestError.
    """
    for name in sorted(given.keys() - tools):
        for near in get_close_matches(name, sorted(tools - given.keys()), n=1, cutoff=_NEARLY):
            allowed = f"names of tools: {near!r} is one (with 'repeat', where both are meant)"
            raise PassingError(InvalidRequestError(field="on_unknown", value=name, allowed=allowed))


def warn_of_tools(ctx: StepContext, unknown: Iterable[str], tools: Iterable[str]) -> None:
    """Warn of tools that are to be kept from repetition and that no agent has, if there are any."""
    if names := ", ".join(sorted(unknown)):
        words = "on_unknown names %s, and the agents had no such tool; they had: %s"
        ctx.log.warning(words, names, ", ".join(sorted(tools)) or "none")


def current() -> Durable | None:
    """Return the step that agents work in here; None: they work outside of any."""
    return _CURRENT.get()


def key_of(*parts: str) -> str:
    """Return the key of a call, as readable as its length allows: long ones end with a hash."""
    key = "/".join(part.replace("/", "_") for part in parts)
    if len(key) <= MAX_CALL_KEY_CHARS and key.isprintable():
        return key
    printable = "".join(each if each.isprintable() else "?" for each in key)
    mark = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{printable[: MAX_CALL_KEY_CHARS - _HASH - 1]}~{mark}"


def warn_of_version(package: str, version: str, tested: tuple[str, ...]) -> None:
    """Warn once of a version of a library that was not tested, and name those that were."""
    if not any(version == each or version.startswith(f"{each}.") for each in tested):
        words = (
            f"{package} {version} was not tested with Leasehold; tested: {', '.join(tested)}. "
            f"Run your own tests, or install one of those."
        )
        warnings.warn(words, stacklevel=3)
