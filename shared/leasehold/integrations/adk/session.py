"""Recorded sessions: an attempt that comes later finds the history that the first one found."""

from __future__ import annotations

from typing import Any, Final

from google.adk.events import Event
from google.adk.sessions import BaseSessionService, Session

from leasehold.integrations.durable import key_of
from leasehold.integrations.scope import Scope, current_block, numbered, scope

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
