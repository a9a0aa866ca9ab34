"""Recorded sessions: an attempt that comes later finds the history that the first one found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from agents.memory import Session

from leasehold.integrations.scope import scope


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
