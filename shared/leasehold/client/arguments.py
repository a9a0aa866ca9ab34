"""The arguments of a client's methods, and how they are sent."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar

import pydantic_core
from pydantic import TypeAdapter, ValidationError

from leasehold.client.run_wait import OnChange
from leasehold.domain.json_text import canonical, plain
from leasehold.domain.manifest import Manifest
from leasehold.domain.printable import one_line
from leasehold.domain.spend import Budget
from leasehold.domain.status import DeadLetterReason, RunStatus
from leasehold.domain.summary import Summary
from leasehold.domain.trouble import Trouble
from leasehold.errors import (
    MAX_VALUE_SHOWN_CHARS,
    InvalidRequestError,
    ResultMismatchError,
    UnknownKeyError,
)
from leasehold.registry.dispatch import STEP_TYPE_WORDS, is_step_type
from leasehold.services.request_bounds import MAX_ACTOR_CHARS, MAX_FILE_BYTES, MAX_NAME_CHARS

#: A run: its id, or what another call answered of it.
Run = str | Summary | Manifest


class Filters(TypedDict, total=False):
    """Which runs: all that is given must hold; None is not given.

    `label` is "key:value", or several of them; `since` and `until` are when they began, `step` is
    where they are. A status does not find the runs that were cancelled in it: `cancelled=True`
    does. `reason` is why they were given up, `id_prefix` how their ids begin; `trouble` is
    "retrying", "silent", "overdue" or "announcement": see docs/operations.md.
    """

    status: RunStatus | str | None
    pipeline: str | None
    dead_lettered: bool | None
    label: str | Sequence[str] | None
    paused: bool | None
    cancelled: bool | None
    since: datetime | str | None
    until: datetime | str | None
    step: str | None
    reason: DeadLetterReason | str | None
    id_prefix: str | None
    trouble: Trouble | str | None


class Decision(TypedDict, total=False):
    """The arguments of an operation.

    `reason` is kept in the run's trace. `generation` and `step` are those of the run that was
    looked at: if the run has another one now, StateChangedError is raised and nothing is done.
    """

    reason: str
    generation: int | None
    step: str | None


#: Files by name: their bytes, or where they lie.
Files = Mapping[str, bytes | Path]


#: The classes of runs in the lines of limits.
PriorityName = Literal["high", "normal", "low"]


class StartOptions(TypedDict, total=False):
    """How a run is started; see `Client.start`."""

    idempotency_key: str | None
    labels: Mapping[str, str] | None
    max_retries: int | None
    budget: Budget | None
    priority: PriorityName
    files: Files | None


class RunOptions(StartOptions, total=False):
    """How a run is started and waited for; see `Client.start` and `Client.wait`."""

    timeout: float | None
    on_change: OnChange | None


def id_of(run: Run) -> str:
    """Return the id of a run."""
    return run if isinstance(run, str) else run.run_id


def filter_fields(wanted: Filters) -> dict[str, Any]:
    """Return the fields of a filter that are given, as JSON has them."""
    given = without_none(wanted)
    return {name: it.isoformat() if isinstance(it, datetime) else it for name, it in given.items()}


def without_none(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are given: None is not."""
    return {name: value for name, value in given.items() if value is not None}


def check_step(step: str) -> None:
    """Refuse what can be the name of no step: it would be another address."""
    if not is_step_type(step):
        raise UnknownKeyError(registry="dispatch", key=step[:MAX_NAME_CHARS], known=STEP_TYPE_WORDS)


def start_options(how: RunOptions) -> StartOptions:
    """Return how a run is started, without how it is waited for."""
    return StartOptions(
        idempotency_key=how.get("idempotency_key"),
        labels=how.get("labels"),
        max_retries=how.get("max_retries"),
        budget=how.get("budget"),
        priority=how.get("priority", "normal"),
        files=how.get("files"),
    )


def read_files(files: Files | None) -> dict[str, bytes]:
    """Return the bytes of files.

    Raises:
        InvalidRequestError: one cannot be read.
    """
    return {name: _bytes_of(name, given) for name, given in (files or {}).items()}


def _bytes_of(name: str, given: bytes | Path) -> bytes:
    if not isinstance(given, Path):
        return given
    try:
        with given.open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)  # one that is larger, or has no end, is refused
    except OSError as error:
        problem = f"a file that can be read ({given}: {error.strerror})"
        raise InvalidRequestError(field="files", value=str(name)[:200], allowed=problem) from None


def plain_input(value: Any, field: str = "input") -> Any:
    """Return the JSON value of an input or an output, which may be a model.

    Raises:
        InvalidRequestError: JSON has no such value.
    """
    given = plain(value)
    try:
        canonical(given)
    except (ValueError, TypeError) as error:
        allowed = f"a pydantic model, or a JSON value ({error})"
        shown = f"{type(value).__name__}: {value!r}"[:MAX_VALUE_SHOWN_CHARS]
        raise InvalidRequestError(field=field, value=shown, allowed=allowed) from None
    return given


# The name of the caller in the trace of a run.


def this_user() -> str:
    """Return who runs this process: `user@host`."""
    return one_line(f"{_user()}@{socket.gethostname()}", MAX_ACTOR_CHARS)


def checked_actor(actor: str) -> str:
    """Return the name of a caller, or raise InvalidRequestError."""
    name = actor.strip()
    if not 0 < len(name) <= MAX_ACTOR_CHARS or not name.isprintable():
        allowed = f"1 to {MAX_ACTOR_CHARS} printable characters"
        raise InvalidRequestError(field="actor", value=actor[:MAX_ACTOR_CHARS], allowed=allowed)
    return name


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # this user has no name
        return f"uid-{os.getuid()}"


# The result of a run as a model has it.


T = TypeVar("T")


def read_as(model: type[T], value: Any, run_id: str) -> T:
    """Return a JSON value as a model has it, or raise ResultMismatchError."""
    try:
        return TypeAdapter(model).validate_json(pydantic_core.to_json(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "it"
        name = getattr(model, "__name__", str(model))
        problem = f"{place}: {first['msg']}"
        raise ResultMismatchError(run_id=run_id, model=name, problem=problem) from None
