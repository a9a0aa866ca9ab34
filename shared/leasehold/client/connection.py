"""Where the calls of a client are answered: by a server, by a store, or by an engine at hand.

All three take the rows of the table of calls: the server is sent them over HTTP; on a store this
process does what the row says, with an engine that knows as much as the row needs.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol, cast
from urllib.parse import quote, urlencode, urlsplit

import pydantic_core
from pydantic import JsonValue

from leasehold.api import calls
from leasehold.api.call_row import (
    ACTOR_HEADER,
    Answer,
    AnyRow,
    CallRequest,
    CallRow,
    Created,
    Given,
    JsonText,
    Needs,
    PlainText,
)
from leasehold.api.runs import RunResponse, StartBody
from leasehold.bootstrap import delivers_events, delivers_tasks, system_clock
from leasehold.client.http_calls import RunsApi, is_server
from leasehold.client.run_wait import ASK_AGAIN_S, Patience
from leasehold.client.store import Store
from leasehold.domain.manifest import MAX_RUN_ID_CHARS, is_run_id
from leasehold.domain.summary import Summary
from leasehold.errors import InvalidRequestError, LeaseholdError, SettingError, UnknownRunError
from leasehold.registry.setting_texts import NOT_SHOWN, is_loopback
from leasehold.registry.settings import SETTINGS
from leasehold.services.engine import Engine
from leasehold.services.worker_notes import missing_server

LOG: Final = logging.getLogger("leasehold.client")

_PLACE: Final = re.compile(r"<(?:path:)?(\w+)>")
_CREATED: Final = 201


class Connection(Protocol):
    """Runs, wherever they are kept; each call means the same, and raises the same, in all places.

    Raises, in each method:
        ServerUnreachableError, StoreUnavailableError: there is no answer, or not now. Retryable.
    """

    def call(self, row: CallRow[Given, Answer], request: CallRequest[Given]) -> Answer:
        """Return the answer to a call; what is JSON of any shape, as its value."""
        ...

    def now(self) -> datetime:
        """Return the time."""
        ...

    def announces(self) -> bool:
        """Return whether what is due to a channel reaches who sends it, without a server here."""
        ...

    def delivers(self) -> bool:
        """Return whether what is changed here reaches a worker without a server of the store."""
        ...

    def missing_server(self) -> str | None:
        """Return in words that live runs wait and no process works on them; None: one does."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...


def connect(
    address: str | Connection | None,
    environ: Mapping[str, str] | None,
    warn: Callable[[str], object] | None,
) -> Connection:
    """Return what is at the address; see `Client`."""
    if not isinstance(address, str | None):
        return address
    settings = os.environ if environ is None else environ
    if address is not None and is_server(address):
        return ServerConnection(address, token_for(address, settings, warn or LOG.warning))
    if address is not None:
        settings = {**settings, "LEASEHOLD_STORE": _checked(address)}
    return StoreConnection(Store(settings, warn or LOG.warning))


def token_for(url: str, settings: Mapping[str, str], warn: Callable[[str], object]) -> str:
    """Return the token that a server is sent; empty: none is set.

    Args:
        url: where the server is.
        settings: the environment.
        warn: given a line where the token can be read on the way.

    Raises:
        SettingError: it is none that a server can have.
    """
    setting = SETTINGS["LEASEHOLD_TOKEN"]
    try:
        tokens = setting.read(settings.get(setting.name, setting.default))
    except ValueError:
        raise SettingError(name=setting.name, value=NOT_SHOWN, allowed=setting.allowed) from None
    token = str(tokens[0]) if tokens else ""
    parts = urlsplit(url)
    if token and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        warn(f"LEASEHOLD_TOKEN is sent to {url} without encryption: https keeps it secret")
    return token


class ServerConnection:
    """A server, over its runs API; no connection is kept open.

    Args:
        url: where it is.
        token: with which to sign in; empty: it asks for none.

    Raises, in each method:
        ServerUnreachableError: it does not answer.
        ServerRefusedError: what it answers is not of this API.
        LeaseholdError: the error that it answers with, as if it had been raised here.
    """

    def __init__(self, url: str, token: str = "") -> None:
        self.api: Final = RunsApi(url, token)

    def call(self, row: CallRow[Given, Answer], request: CallRequest[Given]) -> Answer:
        """Return the answer of the server."""
        path, given = _path_of(row, request), cast("Any", request.given)
        if row.gives is bytes:
            return cast("Answer", self.api.open(path))
        if row.gives is PlainText:
            return cast("Answer", PlainText(self.api.text(path, timeout=row.timeout_s)))
        body = None
        if row.method == "POST":
            body = {} if given is None else given.to_json()
        elif given is not None and (query := given.to_texts()):
            path = f"{path}?{urlencode(query, doseq=True)}"
        headers = _named(request.actor) if row.names_actor else {}
        status, found = self.api.call(path, body, headers=headers, timeout=row.timeout_s)
        value = self.api.read(partial(_read, row, request), found)
        return cast("Answer", Created(value, status == _CREATED) if row.creates else value)

    def now(self) -> datetime:
        """Return the time of this machine; the API has none."""
        return system_clock().now()

    def announces(self) -> bool:
        """Return True: the server sees to what is due to its channels."""
        return True

    def delivers(self) -> bool:
        """Return True: the server sees to what it has changed."""
        return True

    def missing_server(self) -> str | None:
        """Return None: the server works, or its functions do when they are called."""
        return None

    def close(self) -> None:
        """Close nothing."""


class EngineConnection:
    """An engine that is open in this process, whatever a call needs of it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def call(self, row: CallRow[Given, Answer], request: CallRequest[Given]) -> Answer:
        """Return what the row answers with the engine."""
        answer: Any = row.answer(self._engine_for(row.needed_for(request.given)), request)
        return cast(
            "Answer", pydantic_core.from_json(answer) if isinstance(answer, JsonText) else answer
        )

    def now(self) -> datetime:
        """Return the time of the store."""
        return self._engine_for(Needs.READ).clock.now()

    def announces(self) -> bool:
        """Return whether there is a bus that takes messages to the sender of another process."""
        return delivers_events(self._engine_for(Needs.CHANGE))

    def delivers(self) -> bool:
        """Return whether there is a queue that takes tasks to workers of other processes."""
        return delivers_tasks(self._engine_for(Needs.READ))

    def missing_server(self) -> str | None:
        """Return in words that live runs wait and no process works on them; None: one does."""
        return missing_server(self._engine_for(Needs.READ))

    def close(self) -> None:
        """Close nothing: the engine belongs to the caller."""

    def _engine_for(self, _: Needs) -> Engine:
        return self._engine


class StoreConnection(EngineConnection):
    """A store, which is opened when it is needed, and with a catalog only for what needs one."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def call(self, row: CallRow[Given, Answer], request: CallRequest[Given]) -> Answer:
        """Return what the row answers on the store; what is refused makes no store."""
        if row.needs is Needs.BEGIN and not self._store.is_there():
            row.answer(self._store.to_change(), request)
            self._store.make()
        answer = super().call(row, request)
        if row.needs is Needs.SWEEP:
            self._store.deliver_due()
        return answer

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _engine_for(self, needs: Needs) -> Engine:
        match needs:
            case Needs.READ | Needs.PAUSE:
                return self._store.to_read()
            case Needs.EXPLAIN:
                return self._store.to_explain()
            case Needs.CANCEL:
                return self._store.to_cancel()
            case Needs.CATALOG:
                return self._store.to_report()
            case Needs.CHANGE | Needs.SWEEP | Needs.BEGIN:
                return self._store.to_change()


def _path_of(row: AnyRow, request: CallRequest[Any]) -> str:
    """Return the path of a request, or raise UnknownRunError for what can be the id of none."""

    def value(place: re.Match[str]) -> str:
        given: str = getattr(request, place[1])
        if place[1] == "run_id" and not is_run_id(given):
            raise UnknownRunError(run_id=given[:MAX_RUN_ID_CHARS])
        return quote(given, safe="/" if place[1] == "name" else "")

    return _PLACE.sub(value, row.path)


def _read(row: AnyRow, request: CallRequest[Any], answer: Any) -> Any:
    """Return an answer as its row has it.

    Raises:
        ValueError: it is another one; or a page that leads to itself, and would be read forever.
    """
    if row.gives is JsonValue:
        return answer
    value = row.gives.model_validate(answer)
    if isinstance(value, RunResponse) and value.run_id != request.run_id:
        raise ValueError(value.run_id)
    token = getattr(request.given, "page_token", None)
    if token is not None and value.next_page_token == token:
        raise ValueError(token)
    return value


def _named(actor: str) -> dict[str, str]:
    """Return the header that says who asks: UTF-8, in the way that headers are sent."""
    return {ACTOR_HEADER: actor.encode(errors="replace").decode("latin-1")}


def _checked(address: str) -> str:
    """Return the address of a store, or raise InvalidRequestError."""
    setting = SETTINGS["LEASEHOLD_STORE"]
    try:
        return str(setting.read(address))
    except ValueError:
        allowed = f"http://HOST:PORT, https://HOST, {setting.allowed}"
        raise InvalidRequestError(field="address", value=address, allowed=allowed) from None


# A start that is one start: whose answer was lost, it is asked for again with the same key.


def start_once(connection: Connection, body: StartBody) -> Created[Summary]:
    """Start the run, or find the one that the key started before.

    A request without an idempotency key gets one, so that it can be made again. It is, for a
    while, where the answer was lost: then only this call can know whether there is a run.

    Raises:
        ServerUnreachableError, StoreUnavailableError: it may be started or not; a note has the key
            to start it with once more.
    """
    key = body.idempotency_key or f"client-{secrets.token_hex(8)}"
    request = CallRequest(body.model_copy(update={"idempotency_key": key}))
    patience = Patience()
    while True:
        try:
            begun = connection.call(calls.start, request)
        except LeaseholdError as error:
            _raise_unless_retried(error, patience, key)
        else:
            return begun._replace(is_new=begun.is_new or body.idempotency_key is None)
        time.sleep(ASK_AGAIN_S)


def _raise_unless_retried(error: LeaseholdError, patience: Patience, key: str) -> None:
    if error.details.get("sent") is False:  # nothing was started, and the caller may know it
        raise error
    try:
        patience.tolerate(error)
    except LeaseholdError:
        if error.retryable:
            error.add_note(f"The same start with the idempotency key {key!r} begins no second run.")
        raise
