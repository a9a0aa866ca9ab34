"""What all integrations share: the step that an agent works in, and the record of its calls."""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final

from leasehold.domain.recorded_calls import MAX_KEY
from leasehold.worker.context.step_context import OnUnknown, StepContext

_CURRENT: Final[ContextVar[Durable | None]] = ContextVar("leasehold_durable", default=None)
_HASH: Final = 32


class Durable:
    """The step that agents work in, and the calls that they have under way.

    Args:
        ctx: of the step.
    """

    def __init__(self, ctx: StepContext) -> None:
        self.ctx = ctx
        self._under_way = 0

    async def call(
        self,
        key: str,
        body: Callable[[], Awaitable[Any]],
        *,
        request: object,
        on_unknown: OnUnknown = "repeat",
    ) -> Any:
        """Return the recorded result of a call, JSON values, or make the call and record it.

        Between two calls, while none is under way, the attempt ends where its time is short.

        Args:
            key: what tells the call from all others of the step: see `key_of`.
            body: makes the call; returns JSON values.
            request: what its result depends on.
            on_unknown: as of `ctx.once`.
        """
        if self._under_way == 0:
            self.ctx.continue_if_short()
        self._under_way += 1
        try:

            async def made() -> Any:
                return await body()

            return await self.ctx.aonce(key, made, request=request, on_unknown=on_unknown)
        finally:
            self._under_way -= 1


@contextlib.contextmanager
def durable(ctx: StepContext) -> Iterator[Durable]:
    """Have the agents that run inside record their calls in the step of `ctx`."""
    step = Durable(ctx)
    token = _CURRENT.set(step)
    try:
        yield step
    finally:
        _CURRENT.reset(token)


def current() -> Durable | None:
    """Return the step that agents work in here; None: they work outside of any."""
    return _CURRENT.get()


def key_of(*parts: str) -> str:
    """Return the key of a call, as readable as its length allows: long ones end with a hash."""
    key = "/".join(part.replace("/", "_") for part in parts)
    if len(key) <= MAX_KEY and key.isprintable():
        return key
    printable = "".join(each if each.isprintable() else "?" for each in key)
    mark = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{printable[: MAX_KEY - _HASH - 1]}~{mark}"


def warn_of_version(package: str, version: str, tested: tuple[str, ...]) -> None:
    """Warn once of a version of a library that was not tested, and name those that were."""
    if not any(version == each or version.startswith(f"{each}.") for each in tested):
        words = (
            f"{package} {version} was not tested with Leasehold; tested: {', '.join(tested)}. "
            f"Run your own tests, or install one of those."
        )
        warnings.warn(words, stacklevel=3)
